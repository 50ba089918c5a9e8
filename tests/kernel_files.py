"""Reads headers and markers of tests/right/*.cu and tests/mutants/*.cu, and makes their arguments. NumPy only.

    // launch: grid=2 block=32,8 shared=512 options=-DTILE=64,-DSTEP=2 cooperative=yes conflicts=0 read-sectors=4
    // args: a=decay[2,60] x=modulo7:int32[64] y=nan[64] b=3,1,7 length=60 state=1.5f bias=null
    // expect: y = scan(a, b); last = scan(a, b)[:, -1]    each output against float64, in the words of NumPy
    // From       tests/right/guarded_work.cu              a mutant: the right file it is one edit away from
    // schedule: block_order=reverse resident=4            a mutant that only shows itself in this order of blocks
    // severity: warning                                   all findings are warnings; otherwise at least one is an error
    // refused: 1025                                       the launch is refused, and the message holds this
    // first-bad: h[4]                                     where a wrong result starts

A file may hold several launches, each with its own args and expect. `//! race` behind a line: a finding of this kind
must name the line, and no other. `//! wrong-result`: the line is to blame for wrong numbers, and nothing is found.
"""
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ssmlab import kernels, reference
from ssmlab.simt.includes import paste

TESTS = Path(__file__).resolve().parent
RIGHT = sorted((TESTS / "right").glob("*.cu"))
MUTANTS = sorted((TESTS / "mutants").glob("*.cu"))
MARKER = re.compile(r"//!\s*([\w -]+)$")
KERNEL = re.compile(r'extern "C" __global__[^{]*?void (\w+)\(')
KEYS = ("launch", "args", "expect", "schedule", "severity", "refused", "first-bad")


def exclusive(a, b):
    return np.concatenate([[0.0], scan(a, b)[:-1]])


def scan(a, b, start=None):
    """Along the last axis."""
    return reference.scan(a, b, None if start is None else np.full(a.shape[:-1], start), dim=-1)[0]


def halves(x):
    """The lower half of each warp sums its lanes, the upper half takes their maximum."""
    y = x.reshape(-1, 2, 16)
    return np.stack([np.full(16, half[i].sum() if i == 0 else half[i].max()) for half in y for i in (0, 1)]).reshape(-1)


def steps_inside_tiles(x, tile):
    """Each element minus its left neighbour; the first of a tile stays as it is."""
    y = x.copy()
    inside = np.arange(1, len(x)) % tile != 0
    y[1:][inside] -= x[:-1][inside]
    return y


def inner_difference(x):
    y = np.zeros(x.shape)
    y[:, :-1] = x[:, 1:] - x[:, :-1]
    return y


def front(x):
    """The non-zero elements of each 32, moved to the front."""
    return np.concatenate([np.pad(part[part != 0], (0, (part == 0).sum())) for part in x.reshape(-1, 32)])


def collatz(count):
    def turns(n):
        return 0 if n == 1 else 1 + turns(n // 2 if n % 2 == 0 else 3 * n + 1)

    return np.array([turns(n + 1) for n in range(count)])


def vectors(x, width, stride):
    """Lane l takes `width` neighbours from x, `stride` vectors after lane l - 1's; the rest of y stays NaN."""
    y = np.full(256, np.nan)
    y[: 32 * width] = x[: 32 * width * stride].reshape(32, stride, width)[:, 0].ravel()
    return y


ORACLE = {
    f.__name__: f
    for f in (scan, exclusive, halves, steps_inside_tiles, inner_difference, front, collatz, vectors)
}


def _value(text, rng):
    """One argument: an array, a scalar, or None for a null pointer."""
    match = re.fullmatch(r"(\w+?)(?::(\w+))?\[([\d,]+)\]", text)
    if match:
        kind, dtype, shape = match[1], match[2] or "float32", tuple(int(n) for n in match[3].split(","))
        make = {
            "decay": lambda: rng.uniform(0.5, 0.95, shape),
            "slow": lambda: rng.uniform(0.97, 1.0, shape),  # a state is still felt hundreds of steps later
            "normal": lambda: rng.standard_normal(shape),
            "small": lambda: rng.integers(-8, 9, shape),  # sums of these are exact in float32
            "modulo7": lambda: np.arange(np.prod(shape)).reshape(shape) % 7,
            "zero": lambda: np.zeros(shape),
            "ones": lambda: np.ones(shape),
            "halves": lambda: np.full(shape, 0.5),
            "nan": lambda: np.full(shape, np.nan),
        }
        return make[kind]().astype(dtype)
    if text == "null":
        return None
    if text.endswith("f"):
        return np.float32(text[:-1])
    return np.array([float(n) for n in text.split(",")], "float32") if "," in text else np.int32(text)


@dataclass(frozen=True)
class Case:
    """One launch of one file. shape of grid and block as written; marks {kind: {lines that must be named}}."""

    path: Path
    number: int  # which launch of the file, from 0
    grid: tuple
    block: tuple
    shared: int
    options: tuple
    cooperative: bool
    counts: dict  # expected totals of the report, {"conflicts": 0, "read-sectors": 4}
    args: str
    expect: str
    header: dict = field(hash=False)
    marks: dict = field(hash=False)

    @property
    def kernel(self):
        return KERNEL.search(self.path.read_text(encoding="utf-8"))[1]

    @property
    def id(self):
        """The file's name; where it has several launches, with the number, the options and the scalars of this one."""
        scalars = [part for part in self.args.split() if re.fullmatch(r"\w+=\d+", part)]
        return self.path.stem + (f"[{' '.join([str(self.number), *self.options, *scalars])}]" if self.header["several"]
                                 else "")

    def source(self):
        """The text with affine.cuh pasted in; line numbers are those of the file."""
        return paste(self.path.read_text(encoding="utf-8"), self.path.name, [kernels.FOLDER])

    def arguments(self):
        """{name: array, scalar or None}, in the kernel's order; the same numbers in every call."""
        rng = np.random.default_rng(zlib.crc32(self.path.stem.encode()))
        return {name: _value(text, rng) for name, text in (part.split("=", 1) for part in self.args.split())}

    def wanted(self):
        """{output: float64 array}, from the arguments by NumPy and the sequential loop."""
        given = {k: v.astype("float64") if isinstance(v, np.ndarray) and v.dtype == "float32" else v
                 for k, v in self.arguments().items()}
        outputs = [part.split("=", 1) for part in self.expect.split(";") if part.strip()]
        names = {"np": np, **ORACLE, **given}
        return {name.strip(): np.asarray(eval(text, dict(names))) for name, text in outputs}

    def first_bad(self, got):
        """'h[4]' for the first output element that is not right, None if all are. got {name: array}."""
        for name, want in self.wanted().items():
            have = np.asarray(got[name], "float64").ravel()
            want = np.asarray(want, "float64").ravel()
            assert have.shape == want.shape, f"{self.id}: {name} has {have.size} elements, {want.size} are expected"
            scale = np.nanmax(np.abs(want), initial=1.0)
            good = (np.abs(have - want) <= 1e-5 * scale) | (np.isnan(have) & np.isnan(want))  # cases.md: 1e-5 x max
            if not good.all():
                return f"{name}[{int(np.argmin(good))}]"
        return None


def cases(path):
    """All launches of one file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    entries = [(key, line[len(key) + 4:].strip()) for line in lines for key in KEYS if line.startswith(f"// {key}:")]
    single = {key: value for key, value in entries if key not in ("launch", "args", "expect")}
    base = re.search(r"^// From +(\S+)", text, re.M)
    launches = [value for key, value in entries if key == "launch"]
    header = {**single, "base": base and base[1], "several": len(launches) > 1}
    marks = {}
    for number, line in enumerate(lines, 1):
        match = MARKER.search(line)
        for kind in match[1].split() if match else ():
            marks.setdefault(kind, set()).add(number)
    args = [value for key, value in entries if key == "args"]
    expect = [value for key, value in entries if key == "expect"] or [""] * len(launches)
    assert len(launches) == len(args) == len(expect) > 0, f"{path}: each launch needs its args, and its expect or none"
    return [Case(path, n, header=header, marks=marks, args=args[n], expect=expect[n], **_launch(launches[n]))
            for n in range(len(launches))]


def _launch(text):
    words = dict(word.split("=", 1) for word in text.split())
    return dict(
        grid=tuple(int(n) for n in words.pop("grid").split(",")),
        block=tuple(int(n) for n in words.pop("block").split(",")),
        shared=int(words.pop("shared", 0)),
        options=tuple(words.pop("options").split(",")) if "options" in words else (),
        cooperative=words.pop("cooperative", "no") == "yes",
        counts={key: int(value) for key, value in words.items()},
    )


def ladder(version_path, tile, rows, length):
    """A launch of one of kernels_cu/block_scan_v*.cu; the trees take half as many threads as steps."""
    threads = tile // 2 if "_tree" in version_path.stem else tile
    return Case(version_path, 0, (rows,), (threads,), 0, (f"-DTILE={tile}",), False, {},
                f"a=decay[{rows},{length}] b=normal[{rows},{length}] h=nan[{rows},{length}] length={length}",
                "h = scan(a, b)", header={"several": True, "base": None}, marks={})


LADDER = [kernels.path(name) for name in kernels.names() if re.match(r"block_scan_v\d", name)]


def _access_launches():
    """{file: [(grid, block, option, args, expect)]} for the access patterns of notebook 03."""
    banks = [((1,), (32,), f"-DELEMENT={element}", f"x=small[{32 * n}] y=nan[{32 * n}] stride={stride}", "y = x")
             for element, n, strides in (("float", 1, (1, 2, 8, 16, 17, 32, 33)), ("float2", 2, (1, 2, 16, 17)),
                                         ("float4", 4, (1, 2, 8, 9)))
             for stride in strides]
    stride = [((2,), (128,), f"-DELEMENT={element}", f"x=small[{n * 256 * 32}] y=nan[{n * 250}] n=250 {more}", "")
              for element, n in (("float", 1), ("float4", 4))
              for more in ("stride=1 offset=0", "stride=1 offset=1", "stride=2 offset=0", "stride=8 offset=0")]
    walk = [((1,), (64,), "-std=c++17", "x=small[512] y=nan[512] channels=64 steps=8 " + strides, "")
            for strides in ("channel_stride=8 step_stride=1", "channel_stride=1 step_stride=64")]
    return {
        "access_banks.cu": banks,
        "access_stride.cu": stride,
        "access_runs.cu": [((2,), (128,), "-DRUN=4", "x=small[1000] y=nan[1000] n=1000", "y = 2 * x")],
        "access_transpose.cu": [((2, 3), (32, 8), "-std=c++17", "x=small[96,64] y=nan[64,96] rows=96 columns=64",
                                 "y = x.T")],
        "access_walk.cu": walk,
    }


ACCESS = _access_launches()


def launches(path):
    """The launches of any of these files: what its header says, and for kernels_cu rows of 256 and of 1024 steps."""
    if path in LADDER:
        return [ladder(path, 256, 4, 256), ladder(path, 1024, 2, 1000)]
    if path.parent == kernels.FOLDER:
        return [Case(path, n, grid, block, 0, (option,), False, {}, args, expect,
                     header={"several": True, "base": None}, marks={})
                for n, (grid, block, option, args, expect) in enumerate(ACCESS[path.name])]
    return cases(path)


def raw_kernel(case, **more):
    import ssmlab  # here: launch_case.py must not wait for it

    return ssmlab.RawKernel(case.source(), case.kernel, options=case.options, filename=case.path.name,
                            enable_cooperative_groups=case.cooperative, **more)


def check(case, **schedule):
    """ssmlab.check of one launch, in the order of blocks that its header asks for."""
    import ssmlab

    wanted = dict(word.split("=") for word in case.header.get("schedule", "").split())
    if "resident" in wanted:
        wanted["resident"] = int(wanted["resident"])
    return ssmlab.check(raw_kernel(case), case.grid, case.block, list(case.arguments().values()), case.shared,
                        **{**schedule, **wanted})


def results(case, report):
    """{argument name: array after the run}."""
    return dict(zip(case.arguments(), report.arrays, strict=True))


def run(case, to_device=np.asarray, **more):
    """Launch a RawKernel on arrays made by `to_device`; returns {argument name: array after the run}."""
    values = {k: to_device(v) if isinstance(v, np.ndarray) else v for k, v in case.arguments().items()}
    raw_kernel(case, **more)(case.grid, case.block, list(values.values()), shared_mem=case.shared)
    return {k: v.get() if hasattr(v, "get") else v for k, v in values.items()}


def code_lines(text):
    """The text without comments and blank lines: what an edit is measured by."""
    text = re.sub(r"//.*", "", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def all_cases(paths):
    return [case for path in paths for case in cases(path)]
