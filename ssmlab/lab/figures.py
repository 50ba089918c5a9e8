"""One style for every figure of the workbook."""

import warnings

import matplotlib.pyplot as plt

# Colours that stay apart for colour-blind readers (Okabe and Ito's set) and keep one meaning in all notebooks.
COLORS = {
    "ink": "#22272e",
    "soft": "#8b949e",
    "faint": "#d8dee4",
    "loop": "#56606b",
    "hillis": "#0072b2",
    "blelloch": "#d55e00",
    "chunk": "#009e73",
    "left": "#0072b2",
    "right": "#d55e00",
    "good": "#009e73",
    "bad": "#cc3311",
    "shared": "#e69f00",
    "global": "#56b4e9",
    "accent": "#cc79a7",
}
STYLE = {
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",  # shipped with matplotlib, so every machine draws the same picture
    "font.size": 10,
    "text.color": COLORS["ink"],
    "axes.labelcolor": COLORS["ink"],
    "axes.edgecolor": COLORS["soft"],
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": plt.cycler(color=[COLORS[name] for name in ("hillis", "blelloch", "chunk", "accent", "shared")]),
    "grid.color": COLORS["faint"],
    "grid.linewidth": 0.7,
    "xtick.color": COLORS["ink"],
    "ytick.color": COLORS["ink"],
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
}


def setup():
    """Apply the figure style and keep library deprecation notices out of a reader's notebook."""
    plt.rcParams.update(plt.rcParamsDefault)
    plt.rcParams.update(STYLE)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=PendingDeprecationWarning)


def figure(xlabel="", ylabel="", *, columns=1, rows=1, width=7.6, height=3.4, **subplot_options):
    """Make a figure in the workbook's style; returns (figure, axes).

    xlabel, ylabel   axis labels with units in brackets, "length [steps]"; put on the outer axes of a grid
    columns, rows    the grid of axes; one axes object comes back alone, more as matplotlib's array
    width, height    [inches] of the whole figure
    """
    fig, axes = plt.subplots(rows, columns, figsize=(width, height), **subplot_options)
    grid = fig.axes
    for index, ax in enumerate(grid):
        if index >= (rows - 1) * columns:
            ax.set_xlabel(xlabel)
        if index % columns == 0:
            ax.set_ylabel(ylabel)
    return fig, axes
