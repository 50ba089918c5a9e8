"""What a monoid is: an operation, and the element that changes nothing."""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Monoid:
    """An associative operation with an identity; without one (identity None) it is only a semigroup.

    name       the words that error messages and figures use
    combine    combine(first, second): do `first`, then `second`. It must be associative (`lab.laws.check_laws` looks
               for a counterexample), need not commute, and must not modify its arguments. It is called with single
               elements, or with slices of sequences: arrays, or tuples of arrays, time on axis 0, equal lengths
    identity   one element e with combine(e, x) = x = combine(x, e), for example 0, (1, 0) or np.eye(2, dtype=int);
               it is broadcast to the shape of one time step and cast to the dtype of the sequence
    objects    True: combine takes single Python objects only, and a sequence is one object array (see `elementwise`)

    >>> AFFINE = Monoid("affine", lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), identity=(1, 0))
    >>> AFFINE.combine((2, 1), (3, 0))              # h -> 2 h + 1, then h -> 3 h
    (6, 3)
    """

    name: str
    combine: Callable[[Any, Any], Any]
    identity: Any = None
    objects: bool = False

    @classmethod
    def elementwise(cls, name, function, identity=None):
        """Lift `function` of two plain Python objects (strings, sets, polynomials, …) to sequences of them.

        Any list of objects, or a string of characters, is then a sequence.

        >>> union = Monoid.elementwise("union", lambda first, second: first | second, identity=frozenset())
        >>> union.combine({1}, {2})
        {1, 2}
        """
        return cls(name, function, identity, objects=True)

    def combine_slices(self, first, second):
        """Combine two slices of sequences position by position: one call for a whole round of a scan."""
        if self.objects:
            return np.frompyfunc(self.combine, 2, 1)(first, second)
        return self.combine(first, second)
