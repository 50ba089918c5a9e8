"""Runs launches of right kernels and mutants on a GPU, one after the other: what compare_tools.py starts under a tool.

    python tests/gpu/launch_case.py tests/mutants/v1_without_b0.cu kernels_cu/block_scan_v1_one_buffer.cu ...

Prints one line a launch, `LAUNCHED {"id": ..., "error": null | text, "first_bad": null | "h[4]"}`; the tool's own lines
stand between them. Only NumPy and CuPy are imported, so that a process starts fast. Arrays come from cudaMalloc itself,
not from CuPy's pool, so that memcheck knows where each one ends.
"""
import json
import os
import sys
from pathlib import Path

os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

import cupy as cp  # noqa: E402
import kernel_files as files  # noqa: E402
import numpy as np  # noqa: E402


def launch(case):
    """Run one launch; returns {argument: array after the run}."""
    module = cp.RawModule(code=case.source(), options=(*case.options, "-std=c++17", "-lineinfo"), backend="nvrtc",
                          enable_cooperative_groups=case.cooperative)
    values = case.arguments()
    device = [cp.asarray(v) if isinstance(v, np.ndarray) else cp.uintp(0) if v is None else v for v in values.values()]
    module.get_function(case.kernel)(case.grid, case.block, tuple(device), shared_mem=case.shared)
    cp.cuda.runtime.deviceSynchronize()
    return {name: array.get() for name, array in zip(values, device, strict=True) if isinstance(array, cp.ndarray)}


def main(paths):
    cp.cuda.set_allocator(None)
    for case in [case for path in paths for case in files.launches(Path(path).resolve())]:
        told = {"id": case.id, "error": None, "first_bad": None}
        try:
            told["first_bad"] = case.first_bad(launch(case))
        except (cp.cuda.runtime.CUDARuntimeError, cp.cuda.driver.CUDADriverError) as error:
            told["error"] = str(error)
        print("LAUNCHED", json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
