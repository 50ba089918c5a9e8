"""What this machine has, in one line; and which of its devices the notebooks use."""

import os
import platform

import numpy as np

from ssmlab import gpu


def _gpu():
    """(name, reason): the GPU that torch and CuPy can both use, or None and why there is none."""
    import torch

    if not torch.cuda.is_available():
        return None, "torch sees no GPU"
    try:
        gpu.require()
    except RuntimeError as error:
        return None, str(error)
    return torch.cuda.get_device_name(0), ""


def device():
    """The torch device on which the notebooks work: "cuda" where torch and CuPy both reach a GPU, else "cpu"."""
    return "cuda" if _gpu()[0] else "cpu"


def name():
    """The GPU's name, or "CPU"."""
    return _gpu()[0] or "CPU"


def here():
    """Print what this machine has: device, cores, versions. Its cell is tagged nbval-ignore-output."""
    import torch

    found, reason = _gpu()
    where = f"GPU {found}" if found else f"CPU, {os.cpu_count()} cores ({reason})"
    print(f"{where} · {platform.system()} {platform.machine()} · "
          f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}")
