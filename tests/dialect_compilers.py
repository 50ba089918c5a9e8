"""A fixture that runs a test once for each C++ compiler that is here."""

import shutil

import pytest

from ssmlab.simt.toolchain import zig_program

COMMANDS = {"g++": shutil.which("g++"), "clang++": shutil.which("clang++"), "zig": zig_program()}


@pytest.fixture(params=COMMANDS)
def compiler(request, monkeypatch):
    command = COMMANDS[request.param]
    if command is None:
        pytest.skip(f"{request.param} is not installed")
    monkeypatch.setenv("CXX", f"{command} c++" if request.param == "zig" else command)
    return request.param
