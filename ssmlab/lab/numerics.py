"""How a GPU rounds: python -m ssmlab.lab.numerics [file.json]   (about ten seconds; notebook 08 shows the numbers).

Errors of the exponentials over every float of their range, what flush-to-zero does to a tiny product, how the error of
a scan grows with its length, and what a scan costs whose pairs carry logarithms or exponents. Needs torch and CuPy.
"""

import datetime
import json
import sys
from functools import partial

from ssmlab import RawKernel
from ssmlab.lab import pairs
from ssmlab.lab.environment import device, name

# A in ordinary and in prescaled form, as the selective kernels have it: exp(delta A) = exp2(delta (A log2 e)).
EXPONENTIALS = r"""
#include <cuda_bf16.h>

extern "C" __global__ void exponentials(const float* x, float* y, long long n, float scale) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = expf(x[i]);
        y[i + n] = __expf(x[i]);
        y[i + 2 * n] = exp2f(x[i] * scale);
        y[i + 3 * n] = __bfloat162float(hexp(__float2bfloat16_rn(x[i])));
    }
}
"""
NAMES = ("expf(x)", "__expf(x)", "exp2f(x log2e)", "hexp(bf16(x))")
LOG2E_32 = 1.44269502162933349609375  # log2 e as a float has it

# h[t] as (product of all decays) * (sum of 1 / product), which fails as soon as a product or its inverse leaves the
# range of a float. CuPy compiles with -ftz=true and takes no other wish; PTX without .ftz keeps subnormals even so.
DIVIDE = r"""
#if KEEP
__device__ float times(float x, float y) {
    float z;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
__device__ float inverse(float x) {
    float z;
    asm("rcp.rn.f32 %0, %1;" : "=f"(z) : "f"(x));
    return z;
}
#else
__device__ float times(float x, float y) { return x * y; }
__device__ float inverse(float x) { return 1.0f / x; }
#endif

extern "C" __global__ void divide(const float* a, float* product, float* h, int length) {
    float p = 1.0f, sum = 0.0f;
    for (int t = 0; t < length; ++t) {
        p = times(p, a[t]);
        sum = sum + inverse(p);
        product[t] = p;
        h[t] = times(p, sum);
    }
}
"""


def exponentials(least=-24, most=7):
    """{"worst [ulp]", "mean [ulp]"}: {function: [of each binade 2^k <= -x < 2^(k+1), k from least]} over every float.

    x ends at -87.3, where the results are no longer normal. hexp takes x rounded to bfloat16 and is measured in ulp of
    bfloat16, against the exponential of the unrounded x. mean is signed: what is left if errors average.
    """
    import torch

    kernel = RawKernel(EXPONENTIALS, "exponentials", mode="native")
    n = 1 << 23
    y = torch.empty(4, n, device="cuda")
    worst, mean = ({function: [] for function in NAMES} for _ in range(2))
    for k in range(least, most):
        bits = (127 + k << 23) + torch.arange(n, device="cuda", dtype=torch.int32)
        x = -bits.view(torch.float32)
        kernel(n // 256, 256, (x, y, n, LOG2E_32))
        exact = torch.exp(x.double())
        ulp = torch.exp2(torch.floor(torch.log2(exact)) - 23)
        inside = x > -87.3
        for row, function in zip(y, NAMES, strict=True):
            unit = ulp * 2**16 if "bf16" in function else ulp
            error = ((row.double() - exact) / unit)[inside]
            worst[function].append(float(error.abs().max()))
            mean[function].append(float(error.mean()))
    return {"worst [ulp]": worst, "mean [ulp]": mean}


def tiny(length=120):
    """When the running product of exp(-1) leaves the normals, when it is 0, and when dividing by it fails [index]."""
    import torch

    a = torch.full((length,), -1.0, device="cuda").exp()
    found = {}
    for keep, what in ((0, "as CuPy compiles it"), (1, "subnormals kept")):
        product, h = torch.zeros(2, length, device="cuda")
        RawKernel(DIVIDE, "divide", (f"-DKEEP={keep}",))(1, 1, (a, product, h, length))
        bits = product.view(torch.int32)                        # torch's own comparisons may flush
        found[what] = {
            "product no longer normal": _first(bits < 1 << 23),
            "product zero": _first(bits == 0),
            "h not finite": _first(~torch.isfinite(h)),
        }
    return found


def _first(mask):
    where = mask.nonzero()
    return int(where[0]) if len(where) else None


KINDS = ("sums", "random gates", "one gate near one")


def problem(kind, length, rows, generator):
    """log a and b of shape (rows, length, 1): float32, on the GPU."""
    import torch

    shape = (rows, length, 1)
    if kind == "sums":
        decay = torch.ones(shape, device="cuda")
    else:
        decay = torch.rand(shape if kind == "random gates" else (rows, 1, 1), device="cuda", generator=generator)
        decay = 0.998 + 0.002 * decay
    b = torch.rand(shape, device="cuda", generator=generator)
    return torch.log(decay.double()).float().expand(shape).contiguous(), b


def growth(longest=1 << 14, rows=64):
    """{kind: {algorithm: root mean square error [ulp] at lengths 2, 4, ... longest}} of ssmlab.scan, float32."""
    import torch

    import ssmlab

    generator = torch.Generator("cuda").manual_seed(8)
    at = [(1 << k) - 1 for k in range(1, longest.bit_length())]
    found = {}
    for kind in KINDS:
        log_a, b = problem(kind, longest, rows, generator)
        a = torch.exp(log_a)
        exact = ssmlab.scan(a.double(), b.double(), algorithm="thread")
        ulp = torch.exp2(torch.floor(torch.log2(exact)) - 23)
        found[kind] = {}
        for algorithm in ("thread", "block", "totals", "lookback"):
            error = (ssmlab.scan(a, b, algorithm=algorithm).double() - exact) / ulp
            found[kind][algorithm] = torch.sqrt((error**2).mean(dim=(0, 2)))[at].tolist()
    return {"lengths": [t + 1 for t in at], **found}


def accuracy(length=1024, rows=4096):
    """{kind of problem: {kind of pair: root mean square error [ulp] of the last step}}, against exact exp(log a)."""
    import torch

    generator = torch.Generator("cuda").manual_seed(9)
    found = {}
    for problem_kind in KINDS:
        log_a, b = (tensor[:, :, 0].contiguous() for tensor in problem(problem_kind, length, rows, generator))
        exact = torch.zeros(rows, dtype=torch.float64, device="cuda")
        for t in range(length):
            exact = torch.exp(log_a[:, t].double()) * exact + b[:, t].double()
        ulp = torch.exp2(torch.floor(torch.log2(exact)) - 23)
        h = torch.empty_like(b)
        found[problem_kind] = {}
        for kind in ("plain", "log", "offset"):
            kernel = pairs.scan_kernel(kind, tile=length, mode="native")
            kernel(rows, length, (log_a if kind == "log" else torch.exp(log_a), b, h, length))
            error = (h[:, -1].double() - exact) / ulp
            found[problem_kind][kind] = float(torch.sqrt((error**2).mean()))
    return found


def costs(rows=1 << 17, length=256):
    """{kind of pair: [ms]} for one block a row, and how many bytes go to and from global memory."""
    import torch

    from ssmlab.bench import median_ms

    a, b = 0.5 + 0.5 * torch.rand(rows, length, device="cuda"), torch.randn(rows, length, device="cuda")
    h = torch.empty_like(b)
    found = {"rows": rows, "steps": length, "bytes": 12 * rows * length}
    for kind in ("plain", "log", "offset"):
        kernel = pairs.scan_kernel(kind, tile=length, mode="native")
        gates = torch.log(a) if kind == "log" else a
        run = partial(kernel, rows, length, (gates, b, h, length))
        found[f"{kind} [ms]"] = median_ms(run, a.device, warmup_ms=5, measure_ms=40)
    return found


def measure():
    """All of the above for the GPU that is here, with its name and the date. RuntimeError without one."""
    if device() != "cuda":
        raise RuntimeError("there is no GPU here that torch and CuPy can both use")
    return {
        "device": name(),
        "date": datetime.date.today().isoformat(),
        "source": "python -m ssmlab.lab.numerics",
        "tiny": tiny(),
        "costs": costs(),
        "accuracy of pairs": accuracy(),
        "exponentials": {"first binade": -24, **exponentials()},
        "growth": growth(),
    }


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
