"""Turns what the runtime left in memory (structures.py) into a Report."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import structures
from .lines import LineTable
from .loops import loop_line
from .report import SECTOR, Finding, LineStats, Report
from .tokens import Text
from .wording import OUT_OF_ROOM, WORDING, Facts

BY_INDEX = 2  # the variant of "out-of-bounds" that comes from -fsanitize=bounds
_MOST_NAMES = 63  # objects of a line beyond these share the last bit


@dataclass(frozen=True)
class Names:
    """What things are called. shared: by number of the declaration, -1 the dynamic part; buffers: by number."""

    shared: dict[int, str]
    buffers: Sequence[str]
    declared: dict[int, tuple[str, int]]  # file and line of each shared declaration

    def of(self, space: str, number: int) -> str:
        if space == "shared":
            return self.shared.get(number, "")
        return self.buffers[number] if space == "global" and 0 <= number < len(self.buffers) else ""

    def of_mask(self, space: str, objects: int) -> str:
        numbers = [bit for bit in range(_MOST_NAMES + 1) if objects >> bit & 1]
        names = [self.of(space, bit - 1 if space == "shared" else bit) for bit in numbers]
        return ", ".join(dict.fromkeys(name for name in names if name))


def read_report(results: structures.Results, report: Report, table: LineTable, names: Names, source: Text) -> Report:
    """Fill in `report`, which knows the launch. source: the learner's text."""
    findings = list((structures.Finding * results.findings).from_address(results.finding))
    stats = (structures.Stats * results.stats).from_address(results.stat)
    # An index outside a declared dimension says more than the same access found outside the array's bytes.
    outside = [raw for raw in findings if structures.KINDS[raw.kind] == "out-of-bounds"]
    indexed = {raw.line for raw in outside if raw.variant == BY_INDEX}
    covered = [id(raw) for raw in outside if raw.line in indexed and raw.variant != BY_INDEX]
    told = [_finding(raw, report, table, names, source) for raw in findings if id(raw) not in covered]
    report.findings = tuple(sorted(told, key=_finding_order(report)))
    endless = any(finding.kind == "endless-loop" for finding in told)  # its counts are the watchdog's, not the kernel's
    counted = () if endless else stats
    report.lines = _lines(counted, report, table, names)
    report.barriers = results.barriers
    report.barrier_lines = _barrier_lines(counted, report, table)
    report.bytes = _bytes(report.lines)
    report.shared_bytes += results.shared_bytes
    report.printf = printed(results)
    report.accesses = 0 if endless else results.accesses
    report.notes = tuple(_notes(results))
    return report


def index_of(linear: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])


def printed(results: structures.Results) -> str:
    """The pieces in the order of blocks, intervals between barriers and threads; each thread's in its own order."""
    pieces = []
    at, end = results.print, (results.print or 0) + results.print_bytes
    size = ctypes.sizeof(structures.Print)
    while at and at < end:
        head = structures.Print.from_address(at)
        text = ctypes.string_at(at + size, head.bytes).decode(errors="replace")
        pieces.append(((head.block, head.interval, head.thread), text))
        at += size + (head.bytes + 7) // 8 * 8
    return "".join(text for _, text in sorted(pieces, key=lambda piece: piece[0]))


def _notes(results: structures.Results):
    if results.findings_lost:
        yield f"(there were more kinds of findings than can be listed: {results.findings_lost} events are not shown)"
    if results.sites_lost:
        yield f"({results.sites_lost} accesses are missing from the table: too many places touch memory)"
    if results.order_limit:
        yield "(the launch is too large to check the order of all accesses: some races may not be shown)"
    if results.print_lost:
        yield f"({results.print_lost} calls of printf are missing: a launch may print 1 MiB)"


def _place(number: int, table: LineTable) -> tuple[str, int | None]:
    file, line = table.place(number)
    return file, line or None


def _call(file: str, line: int | None, report: Report) -> str:
    if line is None:
        return ""
    return f"line {line}" if file == report.filename else f"{file}:{line}"


def _code(source: Text, file: str, line: int | None) -> str:
    """A line of the learner's text without its comment."""
    start = None if line is None else source.find_line(file, line)
    return "" if start is None else source.line_text(start).split("//")[0].strip()


def _finding(raw: structures.Finding, report: Report, table: LineTable, names: Names, source: Text) -> Finding:
    kind, severity = structures.KINDS[raw.kind], ("warning", "error")[raw.severity]
    file, line = _place(raw.line, table)
    if kind == "out-of-bounds" and raw.variant == OUT_OF_ROOM:
        file, line = names.declared[raw.object]
    other_file, other_line = _place(raw.other_line, table)
    if kind == "endless-loop" and line is not None:
        line = loop_line(source, file, line, table.place(raw.extra[1])[1])
    space = structures.SPACES[raw.space]
    name = names.of(space, raw.object)
    thread = index_of(raw.thread, report.block)
    other = None if raw.other_thread == structures.NO_THREAD else index_of(raw.other_thread, report.block)
    block, other_block = index_of(raw.block, report.grid), index_of(raw.other_block, report.grid)
    dynamic = "dynamic" if space == "shared" and raw.object == -1 else ""
    text = raw.text.decode(errors="replace") if raw.text else dynamic
    access, other_access = structures.ACCESSES[raw.access], structures.ACCESSES[raw.other_access]
    facts = Facts(
        raw.variant, severity, _call(file, line, report), _call(other_file, other_line, report), access, other_access,
        str(thread), "" if other is None else str(other), str(block), str(other_block), space, name,
        raw.offset, raw.size, tuple(raw.extra), text,
    )  # fmt: skip
    detail, hint = WORDING[kind](facts)
    return Finding(
        kind, severity, line, other_line, access, other_access, (thread, other),
        (block, other_block if other is not None and other_block != block else None),
        name, raw.count, raw.bytes, detail, hint, file, other_file,
        _code(source, file, line), _code(source, other_file, other_line),
    )  # fmt: skip


def _finding_order(report: Report) -> Callable[[Finding], tuple]:
    def order(finding: Finding) -> tuple:
        return (
            finding.severity != "error", finding.file != report.filename, finding.file, finding.line or 0,
            finding.other_file, finding.other_line or 0, finding.kind, finding.access, finding.other_access,
            finding.name, finding.detail,
        )  # fmt: skip

    return order


_ACCESS_ORDER = {"read": 0, "write": 1, "atomic": 2}


def _lines(stats: Sequence[structures.Stats], report: Report, table: LineTable, names: Names) -> tuple[LineStats, ...]:
    groups: dict[tuple, list[structures.Stats]] = {}
    for raw in stats:
        if raw.requests and structures.ACCESSES[raw.access] and raw.line:
            file, line = table.place(raw.line)
            space = structures.SPACES[raw.space]
            name = names.of_mask(space, raw.objects)
            groups.setdefault((file, line, space, structures.ACCESSES[raw.access], raw.size, name), []).append(raw)
    rows = []
    for (file, line, space, access, size, name), parts in groups.items():
        lanes = min((raw.sample_key, _sample(raw)) for raw in parts)[1]
        wavefronts, ideal = sum(raw.wavefronts for raw in parts), sum(raw.ideal_wavefronts for raw in parts)
        rows.append(LineStats(
            line, space, access, size, sum(raw.requests for raw in parts), sum(raw.sectors for raw in parts),
            sum(raw.ideal_sectors for raw in parts), wavefronts, ideal, wavefronts - ideal,
            sum(raw.lanes for raw in parts), name, lanes, file,
        ))  # fmt: skip
    rows.sort(key=lambda row: (
        row.file != report.filename, row.file, row.line, _ACCESS_ORDER[row.access], row.space, row.name, row.size
    ))  # fmt: skip
    return tuple(rows)


def _sample(raw: structures.Stats) -> tuple[tuple[int, int], ...]:
    return tuple((lane, raw.sample_offset[lane]) for lane in range(32) if raw.sample_mask >> lane & 1)


def _barrier_lines(stats: Sequence[structures.Stats], report: Report, table: LineTable) -> dict[tuple[str, int], int]:
    counts: dict[tuple[str, int], int] = {}
    for raw in stats:
        if raw.requests and not structures.ACCESSES[raw.access]:
            place = table.place(raw.line)
            counts[place] = counts.get(place, 0) + raw.requests
    return dict(sorted(counts.items(), key=lambda item: (item[0][0] != report.filename, item[0])))


_BYTES = {"read": "global read", "write": "global written", "atomic": "global atomic"}


def _bytes(lines: Sequence[LineStats]) -> dict[str, int]:
    result = {key + more: 0 for key in _BYTES.values() for more in ("", " moved")}
    for row in lines:
        if row.space == "global":
            result[_BYTES[row.access]] += row.threads * row.size
            result[_BYTES[row.access] + " moved"] += row.sectors * SECTOR
    return result
