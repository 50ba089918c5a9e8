"""NVIDIA's own front end, which needs no GPU: does this text compile, and with which instructions?"""
from pathlib import Path

import pytest

ARCHITECTURES = ("compute_75", "compute_80", "compute_90", "compute_120")


def include_folders():
    """The CUDA headers of the installed packages, libcu++ (in cccl) among them."""
    nvidia = pytest.importorskip("nvidia", reason="the packages nvidia-cuda-nvrtc and -runtime are not installed")
    found = [path.parent for root in nvidia.__path__ for path in Path(root).rglob("cuda_fp16.h")]
    return [folder for path in found for folder in (path, path / "cccl")]


def ptx(text, filename, options=(), architecture="compute_90"):
    """Compile to PTX. Raises AssertionError with NVRTC's log."""
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="CuPy is not installed")
    program = nvrtc.createProgram(text, filename, [], [])
    folders = [f"-I{folder}" for folder in include_folders()]
    try:
        nvrtc.compileProgram(program, [f"-arch={architecture}", "-std=c++17", *options, *folders])
        code = nvrtc.getPTX(program)
        return code.decode() if isinstance(code, bytes) else code
    except nvrtc.NVRTCError as error:
        raise AssertionError(f"{filename} {options} {architecture}: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
