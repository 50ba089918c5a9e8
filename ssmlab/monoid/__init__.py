"""Things that can be combined, and four ways to scan a sequence of them. NumPy only.

A *scan* turns x0, x1, x2, … into x0, x0·x1, x0·x1·x2, …, where "·" is any associative operation: no more is needed to
move the brackets.

    Monoid(name, combine, identity)   combine(first, second) does `first`, then `second`; identity None: a semigroup
    SUM, AFFINE, MAX_PLUS, MATRIX_2X2, CONCAT, matrix(k), matrix_affine(k), segmented(monoid)      monoids
    LOG_AFFINE, SCALED_AFFINE         AFFINE with decays as logarithms, or with numbers that never vanish: `scaled`
    companion(coefficients, inputs)   a recurrence of order k as items of matrix_affine(k)
    serial, hillis_steele, blelloch   (monoid, items, *, exclusive=False, reverse=False, record=False) -> ScanResult
    chunked                           the same, and chunk=steps
    replay(monoid, items, result)     the recorded combines, performed again one by one

Sequences are arrays, or tuples of arrays, with TIME ON AXIS 0: `AFFINE` scans the tuple (a, b), both (length, ...).
One combine call works on all positions of a round at once, so a million steps are practical, and the same operation
serves floats, Fractions and SymPy symbols (object arrays) and, through `Monoid.elementwise`, any Python objects.

>>> result = hillis_steele(AFFINE, ([1, 1.5, 0.8, 2], [1, -1, 0.5, 2]))
>>> products, h = result.values
>>> h
array([1. , 0.5, 0.9, 3.8])
>>> result.combines, result.rounds
(5, 2)
>>> blelloch(CONCAT, "abcd", exclusive=True).values.tolist()
['', 'a', 'ab', 'abc']
"""
from .algebra import Monoid
from .ranges import LOG_AFFINE, SCALED_AFFINE, log2_of, scaled, unscaled
from .record import Combine, Copy, ScanResult, SetIdentity, replay
from .scans import blelloch, chunked, hillis_steele, serial
from .supplied import AFFINE, CONCAT, MATRIX_2X2, MAX_PLUS, SUM, companion, matrix, matrix_affine, segmented

__all__ = [
    "AFFINE", "CONCAT", "LOG_AFFINE", "MATRIX_2X2", "MAX_PLUS", "SCALED_AFFINE", "SUM", "Combine", "Copy", "Monoid",
    "ScanResult", "SetIdentity", "blelloch", "chunked", "companion", "hillis_steele", "log2_of", "matrix",
    "matrix_affine", "replay", "scaled", "segmented", "serial", "unscaled",
]
