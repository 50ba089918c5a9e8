"""One request of a warp, drawn from a report: which lane touched which 32-byte sector, or which shared-memory bank."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

from ssmlab.lab.figures import COLORS

WORD, SECTOR, ROW = 4, 32, 128  # [B] a cell of the picture, what global memory moves, a row of the picture
WORDS = ROW // WORD  # columns: also the number of banks
TOGETHER = {8: 16, 16: 8}  # lanes served at once when each takes 8 or 16 bytes; all 32 below that
CELL = 0.215  # [inches]


def access_figure(report, line, *, access=None, name=None, ax=None, rows=17, title=""):
    """Draw the first request that a line of a kernel made, cell by cell.

    report   what ssmlab.check gives back
    line     number of the source line; `access` ("read", "write", "atomic") and `name` (of the array) choose, where
             several accesses stand on it
    ax       where to draw; None makes a figure of the right height
    rows     how many rows of 128 bytes are drawn at most
    title    what the picture is of; the counts stand behind it

    A cell is a word of 4 bytes; its number is the lane that asked for it ("0-31": many lanes, one word).
      global   a tinted sector was moved; its cells without a number moved for nothing
      shared   a column is a bank; red words had to wait for another word of their bank
    Returns the axes. Raises ValueError if the line has no such access, or more than one.
    """
    row = _only(report, line, access, name)
    touched = _touched(row)
    lines = sorted({word // WORDS for word in touched})
    shown = lines if len(lines) <= rows else lines[: rows - 1]
    if ax is None:
        _, ax = plt.subplots(figsize=(7.6, CELL * (len(shown) + (len(lines) > len(shown))) + 0.75))
    _dress(ax, row, shown, len(lines))
    ax.set_title(f"{title}{': ' if title else ''}{_counts(row)}", fontsize=9.5, pad=5, loc="left")
    draw = _draw_sectors if row.space == "global" else _draw_banks
    draw(ax, row, touched, {line: index for index, line in enumerate(shown)})
    return ax


def sectors(lanes, size):
    """How many 32-byte sectors hold the bytes that these lanes ask for; lanes: ((lane, byte offset), …)."""
    return len({byte // SECTOR for _, offset in lanes for byte in range(offset, offset + size, WORD)})


def wavefronts(lanes, size, access="read"):
    """How many turns the 32 banks need for these lanes: the most different words in one bank, added over the phases."""
    return sum(max(map(len, _banks(part, size).values())) for part in _phases(lanes, size, access))


def _only(report, line, access, name):
    found = [row for row in report.line(line)
             if access in (None, row.access) and (name is None or name in row.name.split(", "))]
    if len(found) != 1:
        there = ", ".join(f"{row.access} of {row.name}" for row in report.line(line)) or "no access to memory"
        raise ValueError(f"line {line} has {there}: choose one of them with line, access and name")
    return found[0]


def _touched(row):
    """{word: lanes that asked for a byte of it}"""
    touched = {}
    for lane, offset in row.lanes:
        for word in range(offset // WORD, (offset + row.size - 1) // WORD + 1):
            touched.setdefault(word, []).append(lane)
    return touched


def _pairs_agree(lanes, distance):
    """Do lanes i and i ^ distance ask for the same address, wherever both are active?"""
    at = dict(lanes)
    return all(at.get(lane ^ distance, offset) == offset for lane, offset in lanes)


def _phases(lanes, size, access):
    """The lanes that are served together: all, halves of the warp for 8 bytes each, quarters for 16.

    Reads in which neighbours share their addresses are served twice as many at a time (simt/runtime/requests.h).
    """
    together = TOGETHER.get(size, 32)
    if together < 32 and access == "read" and (_pairs_agree(lanes, 1) or _pairs_agree(lanes, 2)):
        together *= 2
    parts = [[(lane, offset) for lane, offset in lanes if lane // together == part] for part in range(32 // together)]
    return [part for part in parts if part]


def _banks(lanes, size):
    """{bank: its words in the order of the lanes}"""
    banks = {}
    for _, offset in lanes:
        for word in range(offset // WORD, (offset + size - 1) // WORD + 1):
            words = banks.setdefault(word % WORDS, [])
            if word not in words:
                words.append(word)
    return banks


def _dress(ax, row, shown, all_lines):
    """Axes without a frame: byte offsets on the left, what a column means on top."""
    more = all_lines - len(shown)
    ax.set_xlim(-0.2, WORDS + 0.2)
    ax.set_ylim(len(shown) + (0.9 if more else 0.1), -0.1)
    ax.set_aspect("equal", anchor="W")
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0, labelsize=7.5, colors=COLORS["loop"], pad=1)
    ax.xaxis.tick_top()
    if row.space == "global":
        ax.set_xticks([4, 12, 20, 28], [f"bytes {first} to {first + SECTOR - 1}" for first in range(0, ROW, SECTOR)])
    else:
        ax.set_xticks([bank + 0.5 for bank in range(WORDS)], range(WORDS))
        ax.annotate("bank", (0, 1), (-3, 2.5), xycoords="axes fraction", textcoords="offset points", ha="right",
                    fontsize=7.5, color=COLORS["loop"])
    ax.set_yticks([index + 0.5 for index in range(len(shown))], [f"{ROW * line} +" for line in shown])
    if more:
        ax.text(0, len(shown) + 0.75, f"… and {more} more rows like these", fontsize=8.5, color=COLORS["loop"])


def _counts(row):
    what = f"{row.access} of {row.name}, {len(row.lanes)} lanes, {row.size} B each: "
    if row.space == "global":
        count, ideal, unit = sectors(row.lanes, row.size), -(-len(row.lanes) * row.size // SECTOR), "sector"
    else:
        parts = _phases(row.lanes, row.size, row.access)
        count, ideal, unit = wavefronts(row.lanes, row.size, row.access), len(parts), "wavefront"
    return f"{what}{count} {unit}{'s' * (count != 1)}, {'the fewest' if count <= ideal else f'{ideal} would do'}"


def _draw_sectors(ax, row, touched, place):
    moved = {word // (SECTOR // WORD) for word in touched}
    for line, index in place.items():
        for part in range(ROW // SECTOR):
            if (line * ROW // SECTOR + part) in moved:
                ax.add_patch(Rectangle((part * 8, index), 8, 1, facecolor=COLORS["global"], alpha=0.28, linewidth=0))
        for column in range(WORDS):
            word = line * WORDS + column
            _cell(ax, column, index, touched.get(word), COLORS["global"] if word in touched else None, COLORS["ink"])
        for part in range(ROW // SECTOR + 1):
            ax.plot([part * 8] * 2, [index, index + 1], color=COLORS["loop"], linewidth=1.3, solid_capstyle="butt")


def _draw_banks(ax, row, touched, place):
    waits = set()
    for part in _phases(row.lanes, row.size, row.access):
        waits.update(word for words in _banks(part, row.size).values() for word in words[1:])
    for line, index in place.items():
        for column in range(WORDS):
            word = line * WORDS + column
            color = None if word not in touched else COLORS["bad"] if word in waits else COLORS["shared"]
            _cell(ax, column, index, touched.get(word), color, "white" if word in waits else COLORS["ink"])


def _cell(ax, column, index, lanes, face, ink):
    ax.add_patch(Rectangle((column, index), 1, 1, facecolor=face or "none", edgecolor=COLORS["faint"], linewidth=0.6))
    if lanes:
        text = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}-{lanes[-1]}"
        ax.text(column + 0.5, index + 0.53, text, ha="center", va="center", color=ink,
                fontsize=7 if len(text) <= 2 else 5.2)
