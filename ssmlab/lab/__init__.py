"""What the notebooks share: one figure style, the environment line, kernel cells and exercises.

Nothing in the package imports this folder; it is the only place where matplotlib is used.
"""

from ssmlab.lab import exercises
from ssmlab.lab.access import access_figure
from ssmlab.lab.environment import device, here
from ssmlab.lab.figures import COLORS, figure, setup
from ssmlab.lab.kernel_cell import kernel_cell
from ssmlab.lab.network import network

__all__ = ["COLORS", "access_figure", "device", "exercises", "figure", "here", "kernel_cell", "network", "setup"]
