"""Exercises of notebook 03: a copy made coalesced, a transpose without bank conflicts, the largest chunk that fits."""

from math import gcd

import numpy as np

from ssmlab.devices import DEVICES, KB, Generation, occupancy
from ssmlab.lab.exercises import WrongAnswer, exercise

SECTOR_FLOATS = 8


def _launch(text, name, options, grid, block, arrays, scalars, story):
    """The checked run of an attempt; a finding or a number that nobody wrote ends it with an explanation."""
    from ssmlab import RawKernel, check

    report = check(RawKernel(text, name, options), grid, block, (*arrays, *scalars))
    if any(finding.kind == "global-race" for finding in report.findings):
        missing = np.flatnonzero(np.isnan(report.arrays[1]))
        left = f" and {len(missing)} numbers are left out, the first at {missing[0]}" if len(missing) else ""
        raise WrongAnswer(f"{story}several threads write the same place{left}.\n{report.findings[0]}")
    if report.findings:
        raise WrongAnswer(f"{story}the checked run has something to say.\n{report.findings[0]}")
    return report


def _compare(got, want, story, name):
    """The first number that is missing or wrong; `got` was full of NaN before the launch."""
    wrong = np.argwhere(~(got == want))
    if len(wrong) == 0:
        return
    at = tuple(int(i) for i in wrong[0])
    place = f"{name}[{', '.join(map(str, at))}]"
    if np.isnan(got[at]):
        others = f", nor {len(wrong) - 1} others" if len(wrong) > 1 else ""
        raise WrongAnswer(f"{story}nobody wrote {place}{others}. Which thread should have?")
    raise WrongAnswer(f"{story}{place} must be {want[at]:g}, yours holds {got[at]:g}.")


def _row(report, space, access):
    """The only row of this kind, or the one with the most requests."""
    rows = [row for row in report.lines if row.space == space and row.access == access]
    return max(rows, key=lambda row: row.requests, default=None)


def _total(report, space, access, what):
    return sum(getattr(row, what) for row in report.lines if row.space == space and row.access == access)


# 3.A: a copy made coalesced ---------------------------------------------------------------------------------------


@exercise("3.A", starts_from="access_runs.cu")
def _coalesced(my_copy):
    """Values first, then each number once, then the sectors of reads and of writes."""
    run, threads = 4, 128
    for n in (4096, 1000, 5):
        blocks = -(-n // (run * threads))
        x, y = np.arange(1, n + 1, dtype=np.float32), np.full(n, np.nan, np.float32)
        story = f"n = {n}, {blocks} block{'s' * (blocks > 1)} of {threads} threads, RUN = {run}: "
        report = _launch(my_copy, "doubled", (f"-DRUN={run}",), blocks, threads, (x, y), (n,), story)
        _compare(report.arrays[1], 2 * x, story, "y")
        if n % (run * threads):
            continue  # the last threads may do their numbers one by one
        for access, done, array in (("read", "read", "x"), ("write", "written", "y")):
            asked = report.bytes[f"global {done}"]
            if asked != 4 * n:
                raise WrongAnswer(f"{story}right values, but {asked // 4} numbers of {array} were {done}, and there "
                                  f"are only {n}. Each should be {done} once.")
            sectors, fewest = _total(report, "global", access, "sectors"), -(-n // SECTOR_FLOATS)
            if sectors != fewest:
                raise WrongAnswer(f"{story}right values, but the {access}s of {array} move {sectors} sectors, and "
                                  f"{fewest} hold all of it. {_neighbours(_row(report, 'global', access))}")


def _neighbours(row):
    """What lanes 0 and 1 of the first request touched."""
    if len(row.lanes) < 2:
        return "Most requests have a single lane."
    (_, first), (_, second) = row.lanes[:2]
    number = row.size // 4
    return (f"In the first request of line {row.line} lane 0 takes {row.name}[{first // 4}] and lane 1 "
            f"{row.name}[{second // 4}]; neighbours in the warp should be neighbours in memory"
            + (f", {number} numbers apart." if number > 1 else "."))


# 3.B: a transpose without bank conflicts --------------------------------------------------------------------------


@exercise("3.B", starts_from="access_transpose.cu")
def _transpose(my_transpose):
    """Values, global sectors as good as they were, no conflict in the banks, and no more shared memory than needed."""
    for rows, columns in ((64, 96), (70, 100), (1, 33)):
        x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
        y = np.full((columns, rows), np.nan, np.float32)
        story = f"x of {rows} x {columns}: "
        grid = (-(-columns // 32), -(-rows // 32))
        report = _launch(my_transpose, "transpose", (), grid, (32, 8), (x, y), (rows, columns), story)
        _compare(report.arrays[1], x.T, story, "y")
        if (rows, columns) != (64, 96):
            continue
        for access, array in (("read", "x"), ("write", "y")):
            sectors, ideal = (_total(report, "global", access, what) for what in ("sectors", "ideal_sectors"))
            if sectors > ideal:
                raise WrongAnswer(f"{story}right values, but now the {access}s of {array} move {sectors} sectors where "
                                  f"{ideal} would do. The way through the tile is there to keep both sides coalesced.")
        for access in ("write", "read"):
            if _total(report, "shared", access, "bank_conflicts"):
                raise WrongAnswer(f"{story}right values, but {_conflict(_row(report, 'shared', access), access)}")
        if report.shared_bytes > 4 * 32 * 33:
            raise WrongAnswer(f"{story}right values and no conflicts, with {report.shared_bytes} B of shared memory. "
                              f"The budget is {4 * 32 * 33} B: one word more a row is enough.")


def _conflict(row, access):
    (_, first), (_, second) = row.lanes[:2]
    apart = abs(second - first) // 4
    many = row.wavefronts // row.requests
    told = (f"a {access} of the tile takes {many} wavefronts where {row.ideal_wavefronts // row.requests} would do. "
            f"Lanes 0 and 1 are {apart} words apart")
    shared = gcd(apart, 32)
    if shared == 32:
        return told + ", a multiple of 32: all lanes meet in one bank. Which of the two sizes of the tile decides that?"
    return told + f"; {apart} and 32 have the common factor {shared}, so {shared} lanes meet in each bank they use."


# 3.C: the largest chunk that keeps several blocks resident --------------------------------------------------------

BYTES_A_STEP = 16
REGISTERS = 24


def _fits(device, chunk, blocks, threads):
    return chunk == 0 or occupancy(device, threads, BYTES_A_STEP * chunk, REGISTERS).blocks >= blocks


def _largest(device, blocks, threads):
    return max((2**k for k in range(15) if _fits(device, 2**k, blocks, threads)), default=0)


@exercise("3.C")
def _chunk(my_chunk):
    """Every device of the table; the cases are chosen so that each forgotten rule breaks one."""
    for blocks, threads in ((2, 256), (6, 256), (7, 128), (2, 1024), (1, 32)):
        for name, device in DEVICES.items():
            got, want = my_chunk(device, blocks, threads), _largest(device, blocks, threads)
            if got is None:
                raise WrongAnswer("my_chunk gave back None: is a `return` missing?")
            if got != want:
                case = f"{name}, {blocks} block{'s' * (blocks > 1)} of {threads} threads"
                raise WrongAnswer(f"{case}: the chunk is {want}, yours is {got}. "
                                  + _slip_in_chunk(got, want, device.generation, blocks, threads))


def _slip_in_chunk(got, want, generation: Generation, blocks, threads):
    if got == BYTES_A_STEP * want:
        return "That is the chunk in bytes; steps were asked for."
    if not isinstance(got, int) or got < 0 or got & (got - 1):
        return "A chunk is a power of two (or 0, if none fits)."
    if want == 0:
        most = generation.threads_per_sm // threads
        return (f"An SM holds {generation.threads_per_sm} threads, so at most {most} such "
                f"block{'s' * (most != 1)}: no chunk helps, and the answer is 0.")
    if got > want:
        taken = BYTES_A_STEP * got * blocks
        if taken <= generation.shared_per_sm:
            return (f"{blocks} times {BYTES_A_STEP * got // KB} KB does fit into {generation.shared_per_sm // KB} KB, "
                    "but the driver adds 1 KB to each block, and then it does not.")
        return f"{blocks} blocks would need {taken // KB} KB; an SM has {generation.shared_per_sm // KB} KB."
    return f"{2 * got} still leaves room for {blocks} of them."
