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
must name the line. `//! race?`: it may. `//! wrong-result`: the line is to blame for wrong numbers, nothing is found.
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
MARKER = re.compile(r"//!\s*([\w? -]+)$")
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
    """One launch of one file. shape of grid and block as written; marks {kind: {line: must it be named}}."""

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
        return self.path.stem + (f"[{' '.join(self.options)}]" if self.header["several"] else "")

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
        return {name.strip(): np.asarray(eval(text, {"__builtins__": {}}, names)) for name, text in outputs}

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
            marks.setdefault(kind.rstrip("?"), {})[number] = not kind.endswith("?")
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


def launches(path):
    """The launches of any of these files: what its header says, or for the ladder rows of 256 and of 1024 steps."""
    return [ladder(path, 256, 4, 256), ladder(path, 1024, 2, 1000)] if path in LADDER else cases(path)


def check(case, **schedule):
    """ssmlab.check of one launch, in the order of blocks that its header asks for."""
    import ssmlab

    wanted = dict(word.split("=") for word in case.header.get("schedule", "").split())
    if "resident" in wanted:
        wanted["resident"] = int(wanted["resident"])
    kernel = ssmlab.RawKernel(case.source(), case.kernel, options=case.options, filename=case.path.name,
                              enable_cooperative_groups=case.cooperative)
    return ssmlab.check(kernel, case.grid, case.block, list(case.arguments().values()), case.shared,
                        **{**schedule, **wanted})


def results(case, report):
    """{argument name: array after the run}."""
    return dict(zip(case.arguments(), report.arrays, strict=True))


def code_lines(text):
    """The text without comments and blank lines: what an edit is measured by."""
    text = re.sub(r"//.*", "", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def all_cases(paths):
    return [case for path in paths for case in cases(path)]
