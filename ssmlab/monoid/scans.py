"""Four ways to scan: they differ in who combines with whom, never in the values (up to rounding).

Each takes (monoid, items, *, exclusive=False, reverse=False, record=False):

    items       array, list, or tuple of arrays, time on axis 0, any length from 0; they are copied, never changed
    exclusive   step t gets what comes before it; the first gets the identity
    reverse     from the end: equal to flip, scan, flip. So `first` is the later step: h[t] = a[t] * h[t+1] + b[t]
    record      keep who combined with whom, for `replay` and for pictures

and returns a `ScanResult`. ValueError where an identity is needed and the monoid has none.
"""
import numpy as np

from .record import Cells


def serial(monoid, items, *, exclusive=False, reverse=False, record=False):
    """The loop: each step takes what the step before it has. length - 1 combines in length - 1 rounds."""
    cells = _cells("serial", monoid, items, exclusive, reverse, record)
    for t in range(1, cells.length):
        here, before = slice(t, t + 1), slice(t - 1, t)
        cells.round(combine=(here, before, here))
    return _finish("serial", cells)


def hillis_steele(monoid, items, *, exclusive=False, reverse=False, record=False):
    """Every step looks left, twice as far each round. The fewest rounds: ceil(log2 length).

    Work    sum of length - reach over reach = 1, 2, 4, … < length; for a power of two n log2 n - (n - 1) combines
    Needs   no padding and, if inclusive, no identity
    Source  Hillis & Steele 1986, "Data parallel algorithms"
    """
    cells = _cells("hillis_steele", monoid, items, exclusive, reverse, record)
    n, reach = cells.length, 1
    while reach < n:
        here = slice(reach, n)
        cells.round(combine=(here, slice(0, n - reach), here))
        reach *= 2
    return _finish("hillis_steele", cells)


def blelloch(monoid, items, *, exclusive=False, reverse=False, record=False):
    """Up a tree with sums, down the tree with prefixes. About twice the work of the loop in 2 log2 rounds.

    Work    2 (size - 1) combines, size = the power of two that is at least length; the rest is padded with the identity
    Needs   an identity, always: the root of the way down starts with it
    Source  Blelloch 1990, "Prefix sums and their applications", section 1.2

    The way down yields the exclusive scan; the inclusive one is that moved left by one cell, the total at its end.
    """
    _require_identity(monoid, "blelloch starts its way down with the identity (and pads with it)")
    cells = Cells(monoid, items, exclusive=exclusive, reverse=reverse, record=record)
    size = 1 << max(cells.length - 1, 0).bit_length()
    cells.pad(size - cells.length + 1)                      # one cell more, to keep the total
    reach = 1
    while reach < size:
        left, right = _children(reach, size)
        cells.round(combine=(right, left, right))
        reach *= 2
    root, keep = slice(size - 1, size), slice(size, size + 1)
    total = cells.element(size - 1)
    cells.round(copy=(keep, root), identity=root)
    while reach > 1:
        reach //= 2
        left, right = _children(reach, size)
        cells.round(combine=(right, right, left), copy=(left, right))      # first all before the node, then its left
    if not exclusive:
        cells.round(copy=(slice(0, size), slice(1, size + 1)))
    return cells.result("blelloch", total)


def chunked(monoid, items, *, chunk, exclusive=False, reverse=False, record=False):
    """Cut into chunks, loop inside all of them at once, pass one carry from chunk to chunk, add it everywhere.

    chunk   [steps] >= 1; need not divide the length

    Work    2 length - chunk - chunks combines, chunks = ceil(length / chunk)
    Rounds  chunk - 1 inside, chunks - 1 for the carries, 1 to add them
    Needs   no padding and, if inclusive, no identity
    """
    if not chunk >= 1:
        raise ValueError(f"chunk is {chunk}: it must be at least 1 step")
    cells = _cells("chunked", monoid, items, exclusive, reverse, record)
    n = cells.length
    for t in range(1, min(chunk, n)):
        here = slice(t, n, chunk)                           # step t of every chunk that is long enough
        before = slice(t - 1, n - 1, chunk)
        cells.round(combine=(here, before, here))
    ends = [*range(chunk - 1, n - 1, chunk), n - 1]         # the last step of each chunk
    for before, end in zip(ends, ends[1:], strict=False):
        here = slice(end, end + 1)
        cells.round(combine=(here, slice(before, before + 1), here))
    here = np.arange(chunk, n)
    here = here[(here % chunk != chunk - 1) & (here != n - 1)]      # all but the ends, which have it already
    if len(here):
        cells.round(combine=(here, here - here % chunk - 1, here))
    return _finish("chunked", cells)


def _cells(algorithm, monoid, items, exclusive, reverse, record):
    if exclusive:
        _require_identity(monoid, f"the exclusive form of {algorithm} gives the identity to the first step")
    return Cells(monoid, items, exclusive=exclusive, reverse=reverse, record=record)


def _finish(algorithm, cells):
    """From the inclusive scan that the cells hold to what was asked for."""
    n = cells.length
    total = cells.element(n - 1)
    if cells.exclusive and n > 0:
        cells.round(copy=(slice(1, n), slice(0, n - 1)), identity=slice(0, 1))
    return cells.result(algorithm, total)


def _require_identity(monoid, why):
    if monoid.identity is None:
        raise ValueError(f"{monoid.name!r} has no identity, and {why}: "
                         "give it one, or use serial, hillis_steele or chunked with exclusive=False")


def _children(reach, size):
    """Cells of the left and right children of all nodes that span 2 * reach steps; a node lives at its last step."""
    return slice(reach - 1, size, 2 * reach), slice(2 * reach - 1, size, 2 * reach)
