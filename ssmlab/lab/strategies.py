"""Which strategy wins where: a map over rows and lengths, drawn from what ssmlab.bench_strategies measured."""

from matplotlib.patches import Patch, Rectangle

from ssmlab.lab.figures import COLORS

STRATEGIES = {  # strategy: its colour, and its name in a legend
    "thread": (COLORS["loop"], "a thread a row"),
    "block": (COLORS["hillis"], "a block a row"),
    "chain": (COLORS["blelloch"], "two passes, chain"),
    "totals": (COLORS["accent"], "two passes, totals scanned"),
    "lookback": (COLORS["chunk"], "one pass, look-back"),
}
CLEAR = 1.05  # the second best needs at least this many times as long; closer than that is no victory


def winners(point):
    """([strategies within 5 % of the fastest, fastest first], how many times as long the first of the others needs)."""
    timed = sorted((ms, name) for name, ms in point["ms"].items() if ms is not None)
    near = [name for ms, name in timed if ms < CLEAR * timed[0][0]]
    rest = [ms for ms, name in timed if name not in near]
    return near, rest[0] / timed[0][0] if rest else float("inf")


def strategy_map(points, layout, ax):
    """Draw the points of one layout: a box for each (length, rows) in the colours of its winners.

    points   "shapes" of ssmlab.bench_strategies.measure
    layout   "rows" | "columns"; a single row, which lies the same way in both, is drawn with "rows" only
    """
    here = [point for point in points if point["layout"] == layout]
    lengths = sorted({point["shape"][1] for point in points})
    rows = sorted({point["shape"][2] for point in points})
    for point in here:
        _, length, count = point["shape"]
        _box(ax, lengths.index(length), rows.index(count), point)
    step = max(1, len(lengths) // 6)
    ax.set_xticks(range(0, len(lengths), step), [_power(length) for length in lengths[::step]])
    ax.set_yticks(range(len(rows)), [f"{count:,}" for count in rows])
    ax.set(xlim=(-0.5, len(lengths) - 0.5), ylim=(-0.5, len(rows) - 0.5), xlabel="length [steps]")
    ax.grid(False)


def _box(ax, x, y, point):
    near, margin = winners(point)
    for index, name in enumerate(near):                                 # stripes, one a winner
        ax.add_patch(Rectangle((x - 0.48 + 0.96 * index / len(near), y - 0.46), 0.96 / len(near), 0.92,
                               facecolor=STRATEGIES[name][0], edgecolor="none"))
    if margin < float("inf"):
        words = f"{margin:.1f}" if margin < 9.95 else f"{margin:.0f}"
        ax.text(x, y, words, ha="center", va="center", fontsize=7, color="white")


def _power(length):
    return f"2$^{{{length.bit_length() - 1}}}$"


def strategy_legend(fig, points):
    """A legend below the figure for the strategies that win somewhere."""
    seen = {name for point in points for name in winners(point)[0]}
    shown = [Patch(color=color, label=label) for name, (color, label) in STRATEGIES.items() if name in seen]
    fig.legend(handles=shown, loc="outside lower center", ncols=len(shown), fontsize=9)


def at(points, length, channels, layout="columns", batch=1):
    """The one point of this shape and layout."""
    wanted = [batch, length, channels]
    (found,) = [point for point in points if point["shape"] == wanted and point["layout"] == layout]
    return found
