"""The ladder of block scans: right numbers, and every number that its headers and its README table state."""
import re

import kernel_files as files
import numpy as np
import nvrtc
import pytest

import ssmlab
from ssmlab import kernels

VERSIONS = [files.KERNEL.search(path.read_text(encoding="utf-8"))[1] for path in files.LADDER]
PATHS = dict(zip(VERSIONS, files.LADDER, strict=True))
each_version = pytest.mark.parametrize("version", VERSIONS)
TOLERANCE = 4e-6  # relative to the row's largest state; the worst of 5400 rows was 9.0e-7, with decays near one
TABLE = (kernels.FOLDER / "README.md").read_text(encoding="utf-8")


def kernel(version, tile):
    path = PATHS[version]
    return ssmlab.RawKernel(kernels.source(path.name), version, options=(f"-DTILE={tile}",), filename=path.name)


def run(version, a, b, tile=256):
    """The report and h for rows a, b (rows, length)."""
    rows, length = a.shape
    threads = files.ladder(PATHS[version], tile, rows, length).block
    h = np.full((rows, length), np.nan, "float32")
    report = ssmlab.check(kernel(version, tile), (rows,), threads, [a, b, h, np.int32(length)])
    return report, report.arrays[2]


def problem(rows, length, low=0.5, high=0.95, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(low, high, (rows, length)).astype("float32")
    return a, rng.standard_normal((rows, length)).astype("float32")


def error(h, a, b):
    """The worst row's largest deviation from the float64 loop, relative to that row's largest state."""
    want = files.scan(a.astype("float64"), b.astype("float64"))
    return np.max(np.max(np.abs(h - want), axis=1) / np.max(np.abs(want), axis=1))


@pytest.mark.parametrize("tile", [32, 64, 256])
@pytest.mark.parametrize("regime", [(0.5, 0.95), (0.999, 1.0), (-1.1, 1.1)], ids=["decay", "near one", "sign flips"])
@each_version
def test_each_version_equals_the_sequential_loop_without_a_finding(version, regime, tile):
    for length in sorted({1, 2, 31, 32, tile // 2 + 1, tile - 1, tile} & set(range(tile + 1))):
        a, b = problem(3, length, *regime, seed=length)
        report, h = run(version, a, b, tile)
        assert report.ok, str(report)
        assert error(h, a, b) <= TOLERANCE


@each_version
def test_whole_numbers_come_out_exactly(version):
    b = np.array([[3, 1, 7, 0, 4, 1, 6, 3]], "float32")
    _, h = run(version, np.ones_like(b), b, tile=32)
    assert h.tolist() == [[3, 4, 11, 11, 15, 16, 22, 25]]
    _, h = run(version, np.full_like(b, 0.5), b, tile=32)
    assert h.tolist() == [[3, 2.5, 8.25, 4.125, 6.0625, 4.03125, 8.015625, 7.0078125]]
    for n in (256, 1024):
        ones = np.ones((1, n), "float32")
        _, h = run(version, ones, ones, tile=n)
        assert h[0].tolist() == list(range(1, n + 1))


@pytest.mark.parametrize("tile", [32, 256, 1024])
@each_version
def test_each_version_is_right_without_checks_too(version, tile):
    case = files.ladder(PATHS[version], tile, 5, tile - 3)
    assert case.first_bad(files.run(case, mode="native")) is None


@pytest.mark.gpu
@pytest.mark.parametrize("tile", [32, 256, 1024])
@each_version
def test_each_version_is_right_on_a_gpu(version, tile):
    import cupy

    case = files.ladder(PATHS[version], tile, 5, tile - 3)
    assert case.first_bad(files.run(case, to_device=cupy.asarray)) is None


def header(version, word):
    """The number behind TILE=256 in one line of the header."""
    text = PATHS[version].read_text(encoding="utf-8")
    return int(re.search(rf"^// {word} .*?TILE=256: (\d+)", text, re.M)[1])


def table_row(version):
    """{column: text} of the version's row in kernels_cu/README.md."""
    lines = [line for line in TABLE.splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in lines[0].strip("|").split("|")]
    row = next(line for line in lines if f"`{PATHS[version].name}`" in line)
    return dict(zip(names, [cell.strip() for cell in row.strip("|").split("|")], strict=True))


def shared_bytes(version, tile):
    """What NVRTC reserves, from the sizes of the .shared arrays in its PTX."""
    code = nvrtc.ptx(kernels.source(PATHS[version].name), PATHS[version].name, [f"-DTILE={tile}"])
    return sum(int(n) for n in re.findall(r"\.shared \.align \d+ \.b8 \w+\[(\d+)\]", code))


@each_version
def test_the_shared_bytes_are_those_of_header_and_table(version):
    assert shared_bytes(version, 256) == header(version, "Shared") == int(table_row(version)["shared bytes"])


@each_version
def test_the_barriers_are_those_of_header_and_table(version):
    report, _ = run(version, *problem(2, 256))
    assert report.barriers == header(version, "Barriers") == int(table_row(version)["barriers"])


@pytest.mark.parametrize("tile", [32, 1024])
def test_barriers_follow_the_formula_of_each_header(tile):
    rounds = int(np.log2(tile))
    expected = {"block_scan_v1": 2 * rounds, "block_scan_v2": rounds, "block_scan_v3": 1,
                "block_scan_v4": 2 * rounds + 1, "block_scan_v5": 2 * rounds + 1}
    assert {v: run(v, *problem(1, tile), tile)[0].barriers for v in VERSIONS} == expected


@each_version
def test_the_combines_are_those_of_header_and_table(version, monkeypatch):
    """Counted by a printf in `then`; blocks are small because every line is kept."""
    text = (kernels.FOLDER / "affine.cuh").read_text(encoding="utf-8")
    counting = text.replace("second) {\n", 'second) {\n    printf("*");\n')
    assert counting != text
    source = PATHS[version].read_text(encoding="utf-8").replace('#include "affine.cuh"', counting)
    a, b = problem(1, 256)
    arguments = [a, b, np.zeros_like(a), np.int32(256)]
    threads = files.ladder(PATHS[version], 256, 1, 256).block
    report = ssmlab.check(ssmlab.RawKernel(source, version, options=("-DTILE=256",)), (1,), threads, arguments)
    assert report.printf.count("*") == header(version, "Work") == int(table_row(version)["combines"])


@each_version
def test_each_byte_of_global_memory_moves_once(version):
    rows, length = 3, 256
    report, _ = run(version, *problem(rows, length))
    reads = [line for line in report.lines if line.space == "global" and line.access == "read"]
    writes = [line for line in report.lines if line.space == "global" and line.access == "write"]
    assert sum(line.sectors for line in reads) * 32 == 8 * rows * length
    assert sum(line.sectors for line in writes) * 32 == 4 * rows * length


def shared_totals(version, tile):
    report, _ = run(version, *problem(1, tile), tile)
    shared = [line for line in report.lines if line.space == "shared"]
    return sum(line.wavefronts for line in shared), sum(line.bank_conflicts for line in shared)


@each_version
def test_wavefronts_and_bank_conflicts_are_those_of_the_table(version):
    wavefronts, conflicts = shared_totals(version, 256)
    row = table_row(version)
    assert (wavefronts, conflicts) == (int(row["shared wavefronts"]), int(row["bank conflicts"]))


def tree_conflicts(tile, slot):
    """Conflicts of the tree's 4-byte accesses, worked out from the indices alone: an oracle without an emulator."""
    def request(nodes):
        words = np.unique(slot(np.asarray(nodes)))
        return np.bincount(words % 32).max() - 1 if len(words) else 0

    total = 0
    for reach in 2 ** np.arange(int(np.log2(tile))):
        for warp in range(0, tile // 2, 32):
            right = 2 * reach * (np.arange(warp, min(warp + 32, tile // 2)) + 1) - 1
            right = right[right < tile]
            # up: read left, read right, write right; down: read right, read left, write left, write right; two arrays
            total += 2 * (3 * request(right - reach) + 4 * request(right))
    return total


@pytest.mark.parametrize("tile", [64, 256, 1024])
def test_padding_takes_away_every_bank_conflict_of_the_tree(tile):
    assert shared_totals("block_scan_v4", tile)[1] == tree_conflicts(tile, lambda node: node) > 0
    assert shared_totals("block_scan_v5", tile)[1] == tree_conflicts(tile, lambda node: node + node // 32) == 0


@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_every_version_is_cuda(architecture):
    for path in files.LADDER:
        nvrtc.ptx(kernels.source(path.name), path.name, ["-DTILE=256"], architecture)


@each_version
def test_a_tile_that_does_not_fit_is_a_compile_error_with_the_rule(version):
    with pytest.raises(RuntimeError, match=r"TILE: a power of two in \[32, 1024\]"):
        run(version, *problem(1, 48), tile=48)


@each_version
def test_the_header_says_who_it_is_and_what_is_new(version):
    lines = PATHS[version].read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(f"// {version} -- ") and len(max(lines, key=len)) <= 120
    number = int(version[-1])
    assert re.match(r"// New " if number == 1 else rf"// Since v{number - 1} ", lines[3])
    barriers = re.findall(r"__syncthreads\(\); +// (B\d): .{20,}", "\n".join(lines))
    assert barriers == [f"B{n}" for n in range(len(barriers))] and barriers
    assert "\n".join(lines).count("__syncthreads()") == len(barriers)
