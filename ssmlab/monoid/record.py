"""What a scan did: its values, what it cost, and who combined with whom in which round."""
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .sequences import arrays, as_sequence, each, identity_step, settled


class Combine(NamedTuple):
    """cell[target] = combine(cell[left], cell[right]); left is done first."""
    target: int
    left: int
    right: int


class Copy(NamedTuple):
    """cell[target] = cell[source]: a number moves, nothing is computed."""
    target: int
    source: int


class SetIdentity(NamedTuple):
    """cell[target] = the identity."""
    target: int


@dataclass(frozen=True, eq=False)
class ScanResult:
    """Values and cost of one scan.

    values      like the items: prefix 0 to t at step t (inclusive), or prefix 0 to t-1, first the identity (exclusive)
    total       one element, all items combined: what the next piece of a longer sequence has to start from.
                Of no items it is the identity, or None where there is none.
    combines    [count] exactly those performed on cells, padding included
    rounds      [count] rounds that combine something: the depth, if all combines of one round happen at once
    trace       None, or with record=True a list of rounds; a round is a list of `Combine(target, left, right)`,
                `Copy(target, source)`, `SetIdentity(target)`. All reads of a round come before its writes. The numbers
                are cells: cell p starts with step p (step length-1-p of a reversed scan); cells from `length` on are
                padding and scratch
    algorithm, monoid, length, cells, exclusive, reverse   what was asked for; cells [count] is the room it took
    """

    values: Any
    total: Any
    combines: int
    rounds: int
    trace: list | None = field(repr=False)
    algorithm: str
    monoid: str
    length: int
    cells: int
    exclusive: bool
    reverse: bool


class Cells:
    """The memory a scan works on. `round` is all that ever happens to it, and what is counted and recorded."""

    def __init__(self, monoid, items, *, exclusive=False, reverse=False, record=False):
        sequence = settled(monoid, as_sequence(monoid, items))
        self.monoid = monoid
        self.exclusive, self.reverse = exclusive, reverse
        self.memory = each(lambda array: array[::-1].copy(), sequence) if reverse else sequence
        self.length = len(arrays(sequence)[0])
        self.combines = 0
        self.rounds = 0
        self.trace = [] if record else None

    def pad(self, count):
        """Append `count` cells that hold the identity."""
        one = identity_step(self.monoid, self.memory)
        self.memory = each(lambda array, e: np.concatenate([array, np.repeat(e, count, axis=0)]), self.memory, one)

    def round(self, *, combine=None, copy=None, identity=None):
        """One parallel round, all reads before all writes; slices or arrays of numbers say which cells.

        combine (target, left, right)   copy (target, source)   identity target
        """
        writes = []
        if combine is not None:
            writes.append((combine[0], self._combined(combine[1], combine[2])))
            self.combines += len(self._numbers(combine[0]))
            self.rounds += 1
        if copy is not None:
            writes.append((copy[0], each(np.copy, self._read(copy[1]))))
        if identity is not None:
            writes.append((identity, identity_step(self.monoid, self.memory)))
        for where, new in writes:
            for array, part in zip(arrays(self.memory), arrays(new), strict=True):
                array[where] = part
        if self.trace is not None:
            self.trace.append([
                *(Combine(*numbers) for numbers in self._together(combine)),
                *(Copy(*numbers) for numbers in self._together(copy)),
                *(SetIdentity(*numbers) for numbers in self._together((identity,) if identity else None)),
            ])

    def element(self, cell):
        """What one cell holds, as a copy; of no cells at all the identity, or None."""
        if self.length == 0:
            if self.monoid.identity is None:
                return None
            return each(lambda step: step[0], identity_step(self.monoid, self.memory))
        return each(lambda array: np.copy(array[cell]) if array.ndim > 1 else array[cell], self.memory)

    def result(self, algorithm, total):
        """Close the books: the values in the caller's order of time."""
        backwards = slice(None, None, -1 if self.reverse else 1)
        return ScanResult(
            values=each(lambda array: array[:self.length][backwards].copy(), self.memory),
            total=total, combines=self.combines, rounds=self.rounds, trace=self.trace, algorithm=algorithm,
            monoid=self.monoid.name, length=self.length, cells=len(arrays(self.memory)[0]),
            exclusive=self.exclusive, reverse=self.reverse,
        )

    def _read(self, where):
        """Read-only views, so that a combine that writes to its arguments is stopped."""
        part = each(lambda array: array[where], self.memory)
        for array in arrays(part):
            array.flags.writeable = False
        return part

    def _combined(self, left, right):
        first, second = self._read(left), self._read(right)
        combined = self.monoid.combine_slices(first, second)
        for part, old in zip(arrays(combined), arrays(first), strict=True):
            if (part.shape, part.dtype) != (old.shape, old.dtype):
                raise ValueError(f"combine of {self.monoid.name!r} took {old.dtype}{list(old.shape)} and returned "
                                 f"{part.dtype}{list(part.shape)}: it must return what it takes")
        # A combine may hand back an argument; writing one array must not change another that is still to be written.
        return each(self._own, combined)

    def _own(self, part):
        return part.copy() if any(np.may_share_memory(part, array) for array in arrays(self.memory)) else part

    def _numbers(self, where):
        if isinstance(where, slice):
            return range(*where.indices(len(arrays(self.memory)[0])))
        return where.tolist()

    def _together(self, slices):
        return zip(*(self._numbers(where) for where in slices), strict=True) if slices else ()


def replay(monoid, items, result):
    """Perform the recorded rounds of `result` again, one combine at a time.

    monoid, items   what was scanned, or others of the same length: names instead of numbers show who went where

    Returns a list of len(result.trace) + 1 lists: the content of every cell before the first and after each round.
            With the same items, the first `result.length` cells of the last one are result.values.
    Raises  ValueError if the result was not recorded, or the lengths differ.

    >>> from ssmlab.monoid import CONCAT, SUM, hillis_steele
    >>> replay(CONCAT, "abc", hillis_steele(SUM, [3, 1, 7], record=True))
    [['a', 'b', 'c'], ['a', 'ab', 'bc'], ['a', 'ab', 'abc']]
    """
    if result.trace is None:
        raise ValueError("result.trace is None: scan with record=True first")
    cells = Cells(monoid, items, reverse=result.reverse)
    if cells.length != result.length:
        raise ValueError(f"items have length {cells.length}, the recorded scan had {result.length}: they must be equal")
    if result.cells > result.length:
        cells.pad(result.cells - result.length)
    now = [each(lambda array, p=p: array[p], cells.memory) for p in range(result.cells)]
    snapshots = [now]
    for events in result.trace:
        after = list(now)
        for event in events:
            if isinstance(event, Combine):
                after[event.target] = monoid.combine(now[event.left], now[event.right])
            elif isinstance(event, Copy):
                after[event.target] = now[event.source]
            else:
                after[event.target] = each(lambda step: step[0], identity_step(monoid, cells.memory))
        now = after
        snapshots.append(now)
    return snapshots
