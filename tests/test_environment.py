"""Which device the notebooks use, and that the reason for the CPU is told."""

import pytest
import torch

from ssmlab import gpu
from ssmlab.lab import environment


@pytest.fixture
def torch_sees_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")


def test_without_a_gpu_in_torch_it_is_the_cpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    environment.here()
    assert environment.device() == "cpu" and environment.name() == "CPU"
    assert "torch sees no GPU" in capsys.readouterr().out


def test_a_gpu_that_cupy_cannot_use_is_told_with_the_cause(torch_sees_a_gpu, monkeypatch, capsys):
    def refuse():
        raise RuntimeError("CUDA says: the driver is too old")

    monkeypatch.setattr(gpu, "require", refuse)
    environment.here()
    assert environment.device() == "cpu"
    assert "CPU, " in (out := capsys.readouterr().out) and "the driver is too old" in out


def test_a_gpu_that_both_can_use_is_used(torch_sees_a_gpu, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "require", lambda: None)
    environment.here()
    assert environment.device() == "cuda" and environment.name() == "a GPU"
    assert "GPU a GPU" in capsys.readouterr().out
