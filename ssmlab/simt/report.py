"""What a checked launch found and counted, in a learner's words. The same text on every machine, from every compiler.

Words mean what NVIDIA's tools mean by them: a request is one instruction of one warp, a sector 32 bytes of global
memory, a wavefront one turn of the 32 banks of shared memory; a race between warps is an error, one inside a warp a
warning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SECTOR = 32  # [B]


@dataclass(frozen=True)
class Finding:
    """One kind of fault at one line, or one pair of lines.

    kind           "race" (shared memory) | "global-race" | "out-of-bounds" | "misaligned" | "uninitialised" |
                   "divergent-barrier" | "deadlock" | "invalid-mask" | "wild-access" | "endless-loop" |
                   "stack-overflow" | "assert" | "local-escape" | "division-by-zero"
    severity       "error" | "warning"
    line           the learner's line, in `file`; None if it is not known. other_line, other_file: the second place
    access         "read" | "write" | "atomic" | ""; other_access: of the second place
    threads        (threadIdx, the other's threadIdx or None) of one example
    blocks         (blockIdx, the other's blockIdx or None); the second only if it is another block
    name           of the array, if one is concerned
    count          how often; races and uninitialised reads count once for each word and interval between barriers
    bytes          how many bytes were concerned
    detail, hint   what happened, and what to do about it
    text, other_text   the code of the two lines, without comments
    """

    kind: str
    severity: str
    line: int | None
    other_line: int | None
    access: str
    other_access: str
    threads: tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]
    blocks: tuple[tuple[int, int, int], tuple[int, int, int] | None]
    name: str
    count: int
    bytes: int
    detail: str
    hint: str
    file: str = ""
    other_file: str = ""
    text: str = ""
    other_text: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.kind} at {_places(self)}\n{_body(self)}"


@dataclass(frozen=True)
class LineStats:
    """What one line asked of one kind of memory, summed over all warps and blocks.

    size              [B] of each thread's access
    requests          instructions of warps that did it
    sectors, ideal_sectors         global memory: 32-byte pieces moved, and the fewest for the active threads' bytes
    wavefronts, ideal_wavefronts   shared memory: turns of the banks, and without conflicts
    bank_conflicts    wavefronts - ideal_wavefronts
    threads           active threads, summed over the requests
    name              of the array (several: joined by commas)
    lanes             the first request: ((lane, byte offset in the array), …)
    """

    line: int
    space: str
    access: str
    size: int
    requests: int
    sectors: int
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int
    bank_conflicts: int
    threads: int
    name: str
    lanes: tuple[tuple[int, int], ...]
    file: str = ""


@dataclass
class Report:
    """The outcome of one launch in checked mode.

    ok            no error and no warning
    findings      errors first, then by file and line
    lines         LineStats, by file, line, and order of access
    barriers      __syncthreads that each block passed (the most, where blocks differ)
    barrier_lines {(file, line): times that all blocks together passed a barrier there}
    bytes         {"global read": asked for, "global written", "global atomic", "global read moved": 32 x sectors, …}
    arrays        the arguments after the run (check), else None
    printf        what the kernel printed, by block, interval between barriers and thread
    accesses      reads, writes and atomics of single threads in shared and global memory
    complete      False if the launch was given up at a fault
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    filename: str = "kernel.cu"
    findings: tuple[Finding, ...] = ()
    lines: tuple[LineStats, ...] = ()
    barriers: int = 0
    barrier_lines: dict[tuple[str, int], int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    arrays: Any = None
    printf: str = ""
    accesses: int = 0
    complete: bool = True
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    def line(self, number: int, file: str | None = None) -> list[LineStats]:
        """The rows of one line (of the kernel's own file, or of `file`)."""
        return [row for row in self.lines if row.line == number and row.file == (file or self.filename)]

    def __str__(self) -> str:
        return "\n".join([_headline(self), *_table(self), *_totals(self), *_verdict(self)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


class KernelError(RuntimeError):
    """A kernel did something that it must not do. .report has everything; .finding is the first error."""

    def __init__(self, report: Report):
        self.report = report
        self.finding = next(finding for finding in report.findings if finding.severity == "error")
        super().__init__(_message(report, self.finding))


# ---- text


def _message(report: Report, finding: Finding) -> str:
    others = len(report.findings) - 1
    more = f"\n  ({others} more finding{'s' * (others > 1)}: print(error.report))" if others else ""
    return f"kernel {report.kernel}: {finding.kind} at {_places(finding)}\n{_body(finding)}{more}"


def _places(finding: Finding) -> str:
    if finding.line is None:
        return "an unknown line"
    place = f"{finding.file}:{finding.line}"
    if finding.other_line is None or (finding.other_line, finding.other_file) == (finding.line, finding.file):
        return place
    other = finding.other_line if finding.other_file == finding.file else f"{finding.other_file}:{finding.other_line}"
    return f"{place} and {'line ' * (finding.other_file == finding.file)}{other}"


def _times(finding: Finding) -> str:
    if finding.kind in ("race", "global-race", "uninitialised"):
        return f" [{finding.count} word{'s' * (finding.count != 1)}, {finding.bytes} bytes]"
    return f" [{finding.count} times]" if finding.count != 1 else ""


def _body(finding: Finding) -> str:
    code = [(finding.line, finding.text)]
    if (finding.other_file, finding.other_line) != (finding.file, finding.line):
        code.append((finding.other_line, finding.other_text))
    shown = [f"  {number:5} | {text}" for number, text in code if number is not None and text]
    return "\n".join([*shown, f"  {finding.detail}{_times(finding)}", f"  What to do: {finding.hint}"])


def _headline(report: Report) -> str:
    blocks = report.grid[0] * report.grid[1] * report.grid[2]
    threads = report.block[0] * report.block[1] * report.block[2]
    parts = [f"{blocks} block{'s' * (blocks != 1)} of {threads} thread{'s' * (threads != 1)}"]
    parts.append(f"{report.barriers} barrier{'s' * (report.barriers != 1)} a block")
    if report.shared_bytes:
        parts.append(f"{report.shared_bytes} B of shared memory a block")
    return f"{report.kernel}: " + ", ".join(parts)


def _table(report: Report) -> list[str]:
    header = ("line", "memory", "access", "bytes", "requests", "sectors", "ideal", "wavefronts", "ideal", "conflicts")
    rows: list[tuple[Any, ...]] = []
    for row in report.lines:
        global_part = (row.sectors, row.ideal_sectors, "", "", "")
        shared_part = ("", "", row.wavefronts, row.ideal_wavefronts, row.bank_conflicts)
        costs = global_part if row.space == "global" else shared_part
        memory = f"{row.space} {row.name}".rstrip()
        rows.append((row.file, row.line, memory, row.access, row.size, row.requests, *costs))
    for (file, line), count in report.barrier_lines.items():
        rows.append((file, line, "barrier", "", "", count, "", "", "", "", ""))
    if not rows:
        return []
    rows.sort(key=lambda row: (row[0] != report.filename, row[0], row[1]))
    cells = [header] + [(_place_in_table(report, row), *map(str, row[2:])) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return ["  ".join(_padded(row, widths)).rstrip() for row in cells]


def _padded(row: tuple[str, ...], widths: list[int]) -> list[str]:
    """Words to the left, numbers to the right."""
    return [
        cell.ljust(width) if column in (1, 2) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _place_in_table(report: Report, row: tuple[Any, ...]) -> str:
    return str(row[1]) if row[0] == report.filename else f"{row[0]}:{row[1]}"


def _totals(report: Report) -> list[str]:
    told = []
    for access in ("read", "written", "atomic"):
        asked, moved = report.bytes.get(f"global {access}", 0), report.bytes.get(f"global {access} moved", 0)
        if asked:
            told.append(f"{asked} B {access} ({moved} B moved)")
    return ["global memory: " + ", ".join(told)] if told else []


def _verdict(report: Report) -> list[str]:
    told = list(report.notes)
    if not report.findings:
        return [*told, "no findings"]
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    told.append(f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}")
    for finding in report.findings:
        told.append(str(finding))
    if not report.complete:
        told.append("The launch was given up there: later threads and lines were not looked at.")
    return told
