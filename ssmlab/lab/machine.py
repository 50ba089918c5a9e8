"""What moving a number costs on the GPU that is here: python -m ssmlab.lab.machine [file.json]   (about half a minute).

The kernels of notebook 03 against the clock: copies with strides, walks through two layouts, copies at every occupancy,
conflicts in the banks, and how long one load takes from each level of the memory. Needs torch, CuPy and a GPU.
"""

import datetime
import json
import sys
from functools import partial
from statistics import median

from ssmlab import RawKernel, kernels
from ssmlab.devices import KB
from ssmlab.lab.environment import device, name

LANES = 256  # threads of a block in all copies here
STRIDES = (1, 2, 3, 4, 8, 16, 32)
FLOATS = 1 << 28  # of the arrays: 1 GiB, far more than any L2 holds

# A chain of loads, each address read from the last: nothing overlaps, so time over loads is the latency.
CHASE = r"""
template <int SPACE> __device__ int look(const int* table, const int* tile, int at);
template <> __device__ int look<0>(const int*, const int* tile, int at) { return tile[at]; }
template <> __device__ int look<1>(const int* table, const int*, int at) { return __ldca(table + at); }
template <> __device__ int look<2>(const int* table, const int*, int at) { return __ldcg(table + at); }

template <int SPACE> __global__ void chase(const int* table, int start, int loads, long long* took) {
    __shared__ int tile[4096];
    for (int i = 0; i < 4096; i++) {
        tile[i] = (i + 33) % 4096;
    }
    int at = start;
    for (int i = 0; i < loads; i++) {                               // once without the clock: fills the caches
        at = look<SPACE>(table, tile, at);
    }
    const long long before = clock64();
    for (int i = 0; i < loads; i++) {
        at = look<SPACE>(table, tile, at);
    }
    took[0] = clock64() - before;
    took[1] = at;                                                   // used, so that the loads are not removed
}
"""

# Every warp reads shared memory over and over, its lanes `stride` words apart.
TURNS = r"""
extern "C" __global__ void turns(int stride, int rounds, int* out) {
    __shared__ int tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
        tile[i] = 0;
    }
    __syncthreads();
    int at = threadIdx.x % 32 * stride % 1024;
    for (int i = 0; i < rounds; i++) {
        at += tile[at];                                             // adds 0, but the next address waits for it
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}
"""

# Reads one buffer several times; small enough, it stays in the L2.
REREAD = r"""
extern "C" __global__ void reread(const float4* x, float* out, int n, int rounds) {
    const int step = gridDim.x * blockDim.x;
    float sum = 0;
    for (int r = 0; r < rounds; r++) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
            const float4 v = __ldcg(x + i);
            sum += v.x + v.y + v.z + v.w;
        }
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""


def milliseconds(run, repeats=7):
    """Median time [ms] of what run() starts on the GPU, recorded once as a CUDA graph: the host's share is left out."""
    import torch

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return _clocked(graph.replay, repeats)


def _clocked(run, repeats):
    """Median time [ms] between two events around run(), after one run that does not count."""
    import torch

    times = []
    for _ in range(repeats + 1):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return median(times[1:])


def access_kernel(file, function, *options):
    """A kernel of kernels_cu/access_*.cu for timing: no waiting after a launch."""
    return RawKernel(kernels.source(file), function, options, filename=file, mode="native")


def copies():
    """{mapping: useful GB/s} of copies that read with strides, misaligned, and 16 bytes a thread.

    Useful: 4 bytes read and 4 written for each number copied.
    """
    import torch

    x = torch.rand(FLOATS + 32, device="cuda")
    y = torch.empty(FLOATS, device="cuda")
    one = access_kernel("access_stride.cu", "strided_copy", "-DELEMENT=float")
    four = access_kernel("access_stride.cu", "strided_copy", "-DELEMENT=float4")
    found = {}
    for stride in STRIDES:
        n = FLOATS // stride
        took = milliseconds(partial(one, -(-n // LANES), LANES, (x, y, n, stride, 0)))
        found[f"stride {stride}"] = 8 * n / took / 1e6
    took = milliseconds(partial(one, FLOATS // LANES, LANES, (x, y, FLOATS, 1, 1)))
    found["offset 1"] = 8 * FLOATS / took / 1e6
    took = milliseconds(partial(four, FLOATS // 4 // LANES, LANES, (x, y, FLOATS // 4, 1, 0)))
    found["float4"] = 8 * FLOATS / took / 1e6
    return found


def walks():
    """{mapping: useful GB/s} of one thread a channel: the same numbers, laid out in two ways, for two shapes."""
    import torch

    kernel = access_kernel("access_walk.cu", "walk")
    x, y = (torch.rand(FLOATS // 4, device="cuda") for _ in range(2))
    found = {}
    for shape, steps in (("time", 2048), ("states", 16)):
        channels = FLOATS // 4 // steps
        for layout, strides in (("channels innermost", (1, channels)), (f"{shape} innermost", (steps, 1))):
            took = milliseconds(partial(kernel, channels // 128, 128, (x, y, channels, steps, *strides)))
            found[f"{steps} steps, {layout}"] = 8 * channels * steps / took / 1e6
    return found


def residents():
    """{element: {resident blocks of 256 threads: GB/s}} of a plain copy; unused shared memory keeps others out."""
    import torch

    x, y = (torch.rand(FLOATS, device="cuda") for _ in range(2))
    properties = torch.cuda.get_device_properties(0)
    found = {}
    for element, width in (("float", 1), ("float4", 4)):
        kernel = access_kernel("access_stride.cu", "strided_copy", f"-DELEMENT={element}")
        n = FLOATS // width
        found[element] = {}
        for blocks in range(1, properties.max_threads_per_multi_processor // LANES + 1):
            shared = (properties.shared_memory_per_multiprocessor // blocks - KB) // 128 * 128
            launch = partial(kernel, n // LANES, LANES, (x, y, n, 1, 0), shared_mem=shared)
            found[element][blocks] = 8 * FLOATS / milliseconds(launch) / 1e6
    return found


def latencies():
    """{level: [clock cycles, ns]} of one load that waits for the load before it; the best of three."""
    import torch

    megabyte = 1 << 18  # ints
    took = torch.zeros(2, dtype=torch.int64, device="cuda")
    clock = _clock()
    found = {}
    for level, space, ints, step in (("shared", 0, megabyte, 1), ("L1", 1, 4096, 33), ("L2", 2, 8 * megabyte, 4129),
                                     ("DRAM", 2, 1024 * megabyte, 1057)):  # DRAM: each address is met once
        table = ((torch.arange(ints, device="cuda") + step) % ints).int()
        kernel = RawKernel(CHASE, f"chase<{space}>", mode="native")
        cycles = []
        for start in (0, ints // 3, ints // 3 * 2):
            kernel(1, 1, (table, start if space else 0, 4096, took))
            cycles.append(took[0].item() / 4096)
        found[level] = [min(cycles), min(cycles) / clock * 1e3]
    return found


def _clock():
    """[MHz] of the multiprocessors under load: cycles counted by a kernel over its time."""
    import torch

    table = torch.zeros(4096, dtype=torch.int32, device="cuda")
    took = torch.zeros(2, dtype=torch.int64, device="cuda")
    kernel = RawKernel(CHASE, "chase<1>", mode="native")
    loads = 1 << 20
    time = milliseconds(partial(kernel, 1, 1, (table, 0, loads, took)))
    return 2 * took[0].item() / time / 1e3  # the kernel makes all loads twice and counts the second time


def turns():
    """{stride: ns for one read of shared memory by one warp, others waiting} with 32 warps on every multiprocessor."""
    import torch

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    kernel = RawKernel(TURNS, "turns", mode="native")
    out = torch.zeros(sms * 1024, dtype=torch.int32, device="cuda")
    rounds = 4096
    return {stride: milliseconds(partial(kernel, sms, 1024, (stride, rounds, out))) * 1e6 / rounds / 32
            for stride in (1, 2, 4, 8, 16, 17, 32, 33)}


def l2_bandwidth():
    """GB/s at which all multiprocessors read 16 MiB again and again, past their L1."""
    import torch

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    x = torch.rand(1 << 22, device="cuda")
    out = torch.zeros(sms * 2048, device="cuda")
    kernel = RawKernel(REREAD, "reread", mode="native")
    rounds = 200
    took = milliseconds(partial(kernel, sms * 2, 1024, (x, out, x.numel() // 4, rounds)))
    return rounds * 4 * x.numel() / took / 1e6


def copy_bandwidth():
    """GB/s of torch's copy of 4 GiB, read plus written."""
    import torch

    x, y = (torch.rand(1 << 30, device="cuda") for _ in range(2))
    return 8 * x.numel() / _clocked(partial(y.copy_, x), 7) / 1e6  # long enough to hide the host's share


def measure():
    """All of the above for the GPU that is here, with its name and the date. RuntimeError without one."""
    import torch

    if device() != "cuda":
        raise RuntimeError("there is no GPU here that torch and CuPy can both use")
    properties = torch.cuda.get_device_properties(0)
    found = {
        "device": name(),
        "date": datetime.date.today().isoformat(),
        "source": "python -m ssmlab.lab.machine",
        "driver says": {
            "SMs": properties.multi_processor_count,
            "L2 [B]": properties.L2_cache_size,
            "shared memory of an SM [B]": properties.shared_memory_per_multiprocessor,
            "threads of an SM": properties.max_threads_per_multi_processor,
            "most clock [MHz]": properties.clock_rate / 1e3,
        },
        "clock [MHz]": _clock(),
        "copy [GB/s]": copy_bandwidth(),
        "L2 read [GB/s]": l2_bandwidth(),
        "latency [cycles, ns]": latencies(),
        "copies [useful GB/s]": copies(),
        "walks [useful GB/s]": walks(),
        "resident blocks [GB/s]": residents(),
        "shared read of a warp [ns]": turns(),
    }
    return json.loads(json.dumps(found))  # as it will be read from a file: all keys are texts


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    text = json.dumps(_rounded(measure()), indent=1)
    print(text)
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write(text + "\n")
