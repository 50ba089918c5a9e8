"""The picture at the top of the README, drawn from two scans that ran: python -m ssmlab.lab.hero."""

import matplotlib

from ssmlab.lab import notebooks
from ssmlab.lab.figures import figure, setup
from ssmlab.lab.network import network
from ssmlab.monoid import CONCAT, blelloch, hillis_steele, replay


def draw():
    """Eight letters joined by both algorithms: every box shows what its cell holds after the round."""
    fig, axes = figure(columns=2, width=15, height=4.6)
    for ax, scan, words in zip(axes, (hillis_steele, blelloch), ("few rounds", "little work"), strict=True):
        result = scan(CONCAT, "abcdefgh", record=True)
        snapshots = replay(CONCAT, "abcdefgh", result)
        network(result, ax, snapshots=[[_short(text) for text in cells] for cells in snapshots], legend=False)
        title = {"hillis_steele": "Hillis-Steele", "blelloch": "Blelloch"}[result.algorithm]
        ax.set_title(f"{title}: {words}. {result.combines} combines in {result.rounds} rounds", fontsize=13, pad=12)
        ax.set_xlabel("")
    return fig


def _short(text):
    return text if len(text) <= 3 else f"{text[0]}…{text[-1]}"


if __name__ == "__main__":
    matplotlib.use("agg")
    setup()
    path = notebooks.NOTEBOOKS / "hero.png"
    draw().savefig(path, dpi=100)
    print(path)
