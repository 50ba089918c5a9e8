"""A scan drawn from its record: a column for each cell, a row for each round, two lines into each combine that ran."""

from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from matplotlib.patheffects import withStroke

from ssmlab.lab.figures import COLORS
from ssmlab.monoid import Combine, Copy

ROW = 0.56  # [inches] from one round to the next
PADDING = "#eef1f4"  # behind the cells that are no steps


def network(result, ax=None, *, snapshots=None, follow=None, legend=True):
    """Draw who combined with whom, from `result.trace` (scan with record=True). Rounds run down the page.

    ax          where to draw; None makes a figure of the right height
    snapshots   what `ssmlab.monoid.replay` returns for this result: each box then shows what its cell holds
    follow      a step: only what its value was made of keeps its colour
    legend      explain the lines above the picture

    A framed box was computed, a dot or bare number only waits, a dashed line moves a number. Columns right of the
    length are padding; the last one of a Blelloch scan keeps the total.
    Returns the axes. Raises ValueError if the scan was not recorded, or `follow` is no step of it.
    """
    if result.trace is None:
        raise ValueError("result.trace is None: scan with record=True first")
    if follow is not None and not 0 <= follow < result.length:
        raise ValueError(f"follow is {follow}: it must be a step, 0 to {result.length - 1}")
    rows = len(result.trace) + 1
    columns = _columns(result)
    if ax is None:
        _, ax = plt.subplots(figsize=(7.6, ROW * (rows + 1) + 0.25))
    needed = _needed(result, follow)
    _dress(ax, result, columns, rows, legend)
    for row, events in enumerate(result.trace, start=1):
        _draw_round(ax, row, events, [cell for cell in columns if not _empty(result, row - 1, cell)], needed)
    for row in range(rows):
        written = {event.target: event for event in result.trace[row - 1]} if row else {}
        for cell in columns:
            if not _empty(result, row, cell):
                text = None if snapshots is None else _text(snapshots[row][cell])
                _draw_cell(ax, result, cell, row, written.get(cell), text, (row, cell) in needed)
    return ax


def _columns(result):
    """Steps and padding, and the scratch cells that something was written to."""
    written = {event.target for events in result.trace for event in events}
    padded = 1 << max(result.length - 1, 0).bit_length() if result.cells > result.length else result.length
    return [cell for cell in range(result.cells) if cell < padded or cell in written]


def _empty(result, row, cell):
    """The cell that keeps a total holds nothing worth drawing before it is written."""
    if cell != result.cells - 1 or result.cells == result.length:
        return False
    return not any(event.target == cell for events in result.trace[:row] for event in events)


def _needed(result, follow):
    """All (row, cell) whose content reaches the value of the followed step; without one, all."""
    rows = len(result.trace) + 1
    if follow is None:
        return {(row, cell) for row in range(rows) for cell in range(result.cells)}
    wanted = {result.length - 1 - follow if result.reverse else follow}
    needed = {(rows - 1, cell) for cell in wanted}
    for row in range(rows - 1, 0, -1):
        sources = {event.target: event[1:] for event in result.trace[row - 1]}
        wanted = {source for cell in wanted for source in sources.get(cell, (cell,))}
        needed |= {(row - 1, cell) for cell in wanted}
    return needed


def _dress(ax, result, columns, rows, legend):
    """Axes without a frame: step numbers above, rounds on the left, combines on the right."""
    ax.set_xlim(-0.6, columns[-1] + 0.6 if columns else 0.6)
    ax.set_ylim(rows - 0.55, -0.55)
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("step t [index]", labelpad=7)
    ax.set_xticks(columns, [_column_name(result, cell) for cell in columns])
    counts = [sum(isinstance(event, Combine) for event in events) for events in result.trace]
    numbers = iter(range(1, rows))
    names = ["start", *(f"round {next(numbers)}" if count else "move" for count in counts)]
    ax.set_yticks(range(rows), names)
    ax.tick_params(length=0)
    for row, count in enumerate(counts, start=1):
        if count:
            words = f"{count} combine{'s' * (count != 1)}"
            ax.annotate(words, (1, row), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points",
                        va="center", annotation_clip=False)
    for cell in columns:
        if result.length <= cell:
            ax.axvspan(cell - 0.5, cell + 0.5, color=PADDING, linewidth=0, zorder=0)
    if legend:
        moves = any(isinstance(event, Copy) for events in result.trace for event in events)
        ax.legend(handles=_legend(moves), loc="lower center", bbox_to_anchor=(0.5, -0.02 - 0.45 / rows), ncols=3,
                  handlelength=1.8)


def _column_name(result, cell):
    if cell < result.length:
        return str(result.length - 1 - cell if result.reverse else cell)
    return "total" if cell == result.cells - 1 else "pad"


def _legend(moves):
    handles = [Line2D([], [], color=COLORS["left"], label="done first"),
               Line2D([], [], color=COLORS["right"], label="done second")]
    if moves:
        handles.append(Line2D([], [], color=COLORS["soft"], linestyle=(0, (3, 2)), label="moved, not combined"))
    return handles


def _draw_round(ax, row, events, columns, needed):
    """The lines between row - 1 and row: a wire where nothing happens, two coloured lines into a combine."""
    written = {event.target for event in events}
    for cell in columns:
        if cell not in written:
            _line(ax, cell, cell, row, COLORS["faint"], (row, cell) in needed, width=1.2)
    for event in events:
        lit = (row, event.target) in needed
        if isinstance(event, Combine):
            _line(ax, event.right, event.target, row, COLORS["right"], lit)
            _line(ax, event.left, event.target, row, COLORS["left"], lit)
        elif isinstance(event, Copy):
            _line(ax, event.source, event.target, row, COLORS["soft"], lit, width=1.2, style=(0, (3, 2)))


def _line(ax, source, target, row, color, lit, width=1.7, style="-"):
    ax.plot([source, target], [row - 1, row], color=color, linewidth=width, linestyle=style, alpha=1 if lit else 0.13,
            zorder=2 if lit else 1, solid_capstyle="round")


def _draw_cell(ax, result, cell, row, event, text, lit):
    """A framed box for what was computed, bare text for what waits; without text, dots."""
    alpha, first = 1 if lit else 0.22, row == 0
    computed = isinstance(event, Combine)
    if text is None:
        face = COLORS["ink"] if computed else "white"
        size = 6.5 if computed else 5 if first or event else 2
        ax.plot(cell, row, "o", color=COLORS["ink"] if lit else COLORS["faint"], markersize=size, zorder=4,
                markerfacecolor=face if lit else "white")
        return
    if not (first or event):
        halo = [withStroke(linewidth=5, foreground=_ground(result, cell))]
        ax.text(cell, row, text, ha="center", va="center", zorder=5, alpha=alpha, fontsize=_fitting(text),
                color=COLORS["loop"], path_effects=halo)
        return
    edge = COLORS["ink"] if computed else COLORS["soft"]
    half = 0.33 if len(text) <= 5 else 0.46
    box = FancyBboxPatch((cell - half, row - 0.19), 2 * half, 0.38, boxstyle="round,pad=0,rounding_size=0.1",
                         facecolor="white", edgecolor=edge, linewidth=1.1 if computed else 0.8, zorder=3,
                         linestyle="-" if computed or first else (0, (3, 2)))
    box.set_edgecolor(edge if lit else COLORS["faint"])
    ax.add_patch(box)
    ax.text(cell, row, text, ha="center", va="center", zorder=5, alpha=alpha, fontsize=_fitting(text),
            color=COLORS["ink"])


def _ground(result, cell):
    """The colour behind a column."""
    return "white" if cell < result.length else PADDING


def _fitting(text):
    """[points] so that up to nine letters stay inside a box."""
    return 9.5 if len(text) <= 5 else 8.5 if len(text) <= 7 else 7.5


def _text(value):
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, (float, np.floating)):
        return f"{value:g}"
    if isinstance(value, Fraction) or not isinstance(value, str):
        return str(value)
    return value or "“”"
