"""Every scan of every monoid against functools.reduce, the record against the values, and counts against formulas."""
import ast
import doctest
import functools
from fractions import Fraction
from math import ceil, log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ssmlab.monoid
from ssmlab import reference
from ssmlab.monoid import (
    AFFINE,
    CONCAT,
    MATRIX_2X2,
    MAX_PLUS,
    SUM,
    Combine,
    Copy,
    Monoid,
    SetIdentity,
    algebra,
    blelloch,
    chunked,
    companion,
    hillis_steele,
    matrix_affine,
    record,
    replay,
    scans,
    segmented,
    serial,
    supplied,
)
from ssmlab.monoid.sequences import arrays, each, layout

LENGTHS = [*range(34), 63, 64, 65, 127, 128, 129, 1023, 1024, 1025]     # around powers of two, and all short ones
SCANS = {
    "serial": serial,
    "hillis_steele": hillis_steele,
    "blelloch": blelloch,
    "chunked by 1": functools.partial(chunked, chunk=1),
    "chunked by 7": functools.partial(chunked, chunk=7),
    "chunked by 64": functools.partial(chunked, chunk=64),
}


def letters(length):
    return [chr(ord("a") + t % 26) for t in range(length)]


def starts(length, rng):
    return rng.random(length) < 0.2


def small(rng, shape):
    return rng.integers(-3, 4, shape)


# name -> (monoid, items(length, rng)). Small whole numbers: any bracketing gives the same bits.
PROBLEMS = {
    "sum": (SUM, lambda n, rng: small(rng, n)),
    "affine": (AFFINE, lambda n, rng: (rng.integers(-1, 2, n), small(rng, n))),
    "affine, float32": (AFFINE, lambda n, rng: (rng.integers(-1, 2, n).astype("f4"), small(rng, n).astype("f4"))),
    "affine, vectors": (AFFINE, lambda n, rng: (rng.integers(-1, 2, (n, 3)), small(rng, (n, 3)))),
    "affine, one decay for all": (AFFINE, lambda n, rng: (rng.integers(-1, 2, (n, 1)), small(rng, (n, 3)))),
    "affine, fractions": (AFFINE, lambda n, rng: (np.array([Fraction(1, 2 + t % 2) for t in range(n)], object),
                                                  np.array([Fraction(t % 5) for t in range(n)], object))),
    "companion": (matrix_affine(2), lambda n, rng: companion([0, -1], small(rng, n))),
    "max-plus": (MAX_PLUS, lambda n, rng: (small(rng, n) * 1.0, small(rng, n) * 1.0)),
    "matrices": (MATRIX_2X2, lambda n, rng: np.array([[[0, 1], [1, 0]], [[1, 1], [-1, 0]]])[rng.integers(0, 2, n)]),
    "strings": (CONCAT, lambda n, rng: letters(n)),
    "segmented sum": (segmented(SUM), lambda n, rng: (starts(n, rng), small(rng, n))),
    "segmented affine": (segmented(AFFINE),
                         lambda n, rng: (starts(n, rng), (rng.integers(-1, 2, n), small(rng, n)))),
    "segmented companion": (segmented(matrix_affine(2)),
                            lambda n, rng: (starts(n, rng), companion([0, -1], small(rng, n)))),
    "segmented strings": (segmented(CONCAT), lambda n, rng: (starts(n, rng), letters(n))),
}


def make(name, length):
    monoid, items = PROBLEMS[name]
    return monoid, items(length, np.random.default_rng(length))


def elements(monoid, sequence):
    """The single elements of a sequence, by plain indexing."""
    if monoid.objects:
        return list(sequence)
    sequence = each(np.asarray, sequence) if isinstance(sequence, tuple) else np.asarray(sequence)
    return [each(lambda array, t=t: array[t], sequence) for t in range(len(arrays(sequence)[0]))]


def prefixes(monoid, parts):
    """What a scan must give, one functools.reduce for each step."""
    return [functools.reduce(monoid.combine, parts[:t + 1]) for t in range(len(parts))]


def assert_same(got, want):
    assert len(got) == len(want)
    for left, right in zip(got, want, strict=True):
        assert plain(left) == plain(right)


def plain(element):
    if isinstance(element, tuple):
        return tuple(plain(part) for part in element)
    return element.tolist() if isinstance(element, (np.ndarray, np.generic)) else element


@functools.cache
def expected(name, length):
    """Prefixes of a problem; long ones by one left fold, which equals the reduce loop step by step."""
    monoid, items = make(name, length)
    parts = elements(monoid, items)
    if length <= 33:
        return prefixes(monoid, parts)
    so_far, every = parts[0], [parts[0]]
    for part in parts[1:]:
        so_far = monoid.combine(so_far, part)
        every.append(so_far)
    return every


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_length_equals_the_reduce_loop(name, scan):
    for length in LENGTHS:
        monoid, items = make(name, length)
        result = SCANS[scan](monoid, items)
        want = expected(name, length)
        assert_same(elements(monoid, result.values), want)
        if length:
            assert plain(result.total) == plain(want[-1])


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_exclusive_is_inclusive_moved_by_one_step(name, scan):
    for length in [0, 1, 2, 3, 8, 13, 64, 65]:
        monoid, items = make(name, length)
        inclusive = elements(monoid, SCANS[scan](monoid, items).values)
        result = SCANS[scan](monoid, items, exclusive=True)
        exclusive = elements(monoid, result.values)
        assert_same(exclusive[1:], inclusive[:-1])
        if length:
            assert plain(result.total) == plain(inclusive[-1])
            assert_same([monoid.combine(exclusive[0], inclusive[0])], inclusive[:1])       # it is the identity
        joined = [monoid.combine(*both) for both in zip(exclusive, elements(monoid, items), strict=True)]
        assert_same(joined, inclusive)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_reverse_equals_flip_scan_flip(name, scan):
    for length in [0, 1, 2, 3, 9, 16, 33, 65]:
        for exclusive in (False, True):
            monoid, items = make(name, length)
            flipped = items[::-1] if monoid.objects else each(lambda array: np.asarray(array)[::-1], items)
            want = elements(monoid, SCANS[scan](monoid, flipped, exclusive=exclusive).values)[::-1]
            got = SCANS[scan](monoid, items, exclusive=exclusive, reverse=True)
            assert_same(elements(monoid, got.values), want)


def test_reverse_takes_the_later_step_first():
    for scan in SCANS.values():
        assert scan(CONCAT, "abc", reverse=True).values.tolist() == ["cba", "cb", "c"]


@pytest.mark.parametrize("scan", SCANS)
class TestPublicCases:
    def test_s_o1_products_and_states_forward_and_reverse(self, scan):
        items = [1, 1.5, 0.8, 2], [1, -1, 0.5, 2]
        products, h = SCANS[scan](AFFINE, items).values
        np.testing.assert_allclose(products, [1, 1.5, 1.2, 2.4], rtol=1e-15)
        np.testing.assert_allclose(h, [1, 0.5, 0.9, 3.8], rtol=1e-15)
        products, h = SCANS[scan](AFFINE, items, reverse=True).values
        np.testing.assert_allclose(products, [2.4, 2.4, 1.6, 2], rtol=1e-15)
        np.testing.assert_allclose(h, [3.15, 2.15, 2.1, 2], rtol=1e-15)

    def test_s_o2_reverse_sums_of_an_odd_length(self, scan):
        rows = np.arange(18.0).reshape(2, 9)
        _, h = SCANS[scan](AFFINE, (np.ones((9, 2)), rows.T), reverse=True).values
        assert h.T.tolist() == [[36, 36, 35, 33, 30, 26, 21, 15, 8], [117, 108, 98, 87, 75, 62, 48, 33, 17]]

    def test_s_o3_nothing_divides_by_the_running_product(self, scan):
        t = np.arange(200)
        a, b = np.full(200, np.exp(-1), np.float32), np.ones(200, np.float32)
        products, h = SCANS[scan](AFFINE, (a, b)).values
        assert h.dtype == np.float32 and products[-1] == 0                  # e^-200 is below float32, and does no harm
        np.testing.assert_allclose(h, (1 - np.exp(-(t + 1.0))) / (1 - np.exp(-1)), rtol=1e-6)
        assert abs(h[-1] - 1.5819767) <= 1e-6

    def test_s_o4_no_step_and_one_step(self, scan):
        result = SCANS[scan](AFFINE, (np.empty(0), np.empty(0)))
        a, b = result.total
        assert result.values[1].shape == (0,) and a * 7 + b == 7 and a == 1         # a is d(final)/dh0
        assert (result.combines, result.rounds) == (0, 0)
        a, b = SCANS[scan](AFFINE, ([0.5], [2.0])).values
        assert (a * 7 + b).tolist() == [5.5]

    def test_e_o4_inclusive_and_exclusive_sums(self, scan):
        ones = [3, 1, 7, 0, 4, 1, 6, 3]
        assert SCANS[scan](SUM, ones).values.tolist() == [3, 4, 11, 11, 15, 16, 22, 25]
        assert SCANS[scan](SUM, ones, exclusive=True).values.tolist() == [0, 3, 4, 11, 11, 15, 16, 22]
        _, h = SCANS[scan](AFFINE, ([0.5] * 8, ones)).values
        assert h.tolist() == [3, 2.5, 8.25, 4.125, 6.0625, 4.03125, 8.015625, 7.0078125]


class TestCounts:
    def test_hillis_steele_combines_and_rounds(self):
        for n in LENGTHS:
            result = hillis_steele(SUM, np.ones(n))
            rounds = ceil(log2(n)) if n > 1 else 0
            assert result.rounds == rounds
            assert result.combines == (n * rounds - (2**rounds - 1) if n else 0)
        assert hillis_steele(SUM, np.ones(512)).combines == 512 * 9 - 511 == 4097

    def test_blelloch_combines_and_rounds(self):
        for n in LENGTHS:
            size = 1 << max(n - 1, 0).bit_length()
            result = blelloch(SUM, np.ones(n))
            assert result.combines == 2 * (size - 1)
            assert result.rounds == 2 * round(log2(size))
        assert blelloch(SUM, np.ones(512)).combines == 1022

    def test_loop_combines_and_rounds(self):
        for n in LENGTHS:
            result = serial(SUM, np.ones(n))
            assert result.combines == result.rounds == max(n - 1, 0)

    @pytest.mark.parametrize("chunk", [1, 2, 5, 8, 32, 2000])
    def test_chunked_combines_and_rounds(self, chunk):
        for n in LENGTHS[1:]:
            result = chunked(SUM, np.ones(n), chunk=chunk)
            chunks, width = ceil(n / chunk), min(chunk, n)
            assert result.combines == 2 * n - width - chunks
            fix_up = chunks > 1 and n - width > chunks - 1
            assert result.rounds == (width - 1) + (chunks - 1) + fix_up

    @pytest.mark.parametrize("scan", SCANS)
    def test_counts_are_the_calls_of_a_plain_combine(self, scan):
        calls = []
        counting = Monoid.elementwise("counting", lambda first, second: calls.append(1) or first + second, identity=0)
        for n in (0, 1, 2, 7, 8, 33):
            calls.clear()
            result = SCANS[scan](counting, range(n))
            assert len(calls) == result.combines

    @pytest.mark.parametrize("scan", SCANS)
    def test_one_round_is_one_call_for_all_its_positions(self, scan):
        calls = []
        counting = Monoid("counting", lambda first, second: calls.append(len(first)) or first + second, identity=0)
        result = SCANS[scan](counting, np.arange(33))
        assert len([length for length in calls if length]) == result.rounds and sum(calls) == result.combines


class TestRecord:
    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("exclusive", [False, True])
    @pytest.mark.parametrize("scan", SCANS)
    @pytest.mark.parametrize("name", PROBLEMS)
    def test_replaying_the_trace_gives_the_values(self, name, scan, exclusive, reverse):
        for length in (0, 1, 2, 5, 8, 17):
            monoid, items = make(name, length)
            result = SCANS[scan](monoid, items, exclusive=exclusive, reverse=reverse, record=True)
            last = replay(monoid, items, result)[-1][:length]
            assert_same(last[::-1] if reverse else last, elements(monoid, result.values))

    @pytest.mark.parametrize("scan", SCANS)
    def test_the_trace_holds_what_was_counted(self, scan):
        for length in (0, 1, 2, 5, 8, 17):
            result = SCANS[scan](SUM, np.ones(length), record=True)
            combines = [[event for event in events if isinstance(event, Combine)] for events in result.trace]
            assert sum(map(len, combines)) == result.combines
            assert sum(map(bool, combines)) == result.rounds

    @pytest.mark.parametrize("scan", SCANS)
    def test_within_a_round_no_cell_is_written_twice(self, scan):
        for exclusive in (False, True):
            for events in SCANS[scan](SUM, np.ones(17), exclusive=exclusive, record=True).trace:
                targets = [event.target for event in events]
                assert len(set(targets)) == len(targets)

    def test_hillis_steele_on_four_by_hand(self):
        assert hillis_steele(SUM, [1, 1, 1, 1], record=True).trace == [
            [(1, 0, 1), (2, 1, 2), (3, 2, 3)], [(2, 0, 2), (3, 1, 3)]]

    def test_blelloch_on_four_by_hand(self):
        up = [[Combine(1, 0, 1), Combine(3, 2, 3)], [Combine(3, 1, 3)]]
        top = [[Copy(4, 3), SetIdentity(3)]]
        down = [[Combine(3, 3, 1), Copy(1, 3)], [Combine(1, 1, 0), Combine(3, 3, 2), Copy(0, 1), Copy(2, 3)]]
        assert blelloch(SUM, [1, 1, 1, 1], exclusive=True, record=True).trace == up + top + down

    def test_nothing_is_recorded_unless_asked(self):
        result = hillis_steele(SUM, [1, 2, 3])
        assert result.trace is None
        with pytest.raises(ValueError, match="scan with record=True first"):
            replay(SUM, [1, 2, 3], result)

    def test_replay_refuses_another_length(self):
        with pytest.raises(ValueError, match="items have length 2, the recorded scan had 3"):
            replay(SUM, [1, 2], hillis_steele(SUM, [1, 2, 3], record=True))


class TestTypes:
    @pytest.mark.parametrize("scan", SCANS)
    @pytest.mark.parametrize("dtype", ["int8", "int64", "float16", "float32", "float64", "complex64"])
    def test_the_dtype_is_kept(self, scan, dtype):
        for length in (0, 1, 9):
            assert SCANS[scan](SUM, np.ones(length, dtype)).values.dtype == dtype
            result = SCANS[scan](AFFINE, (np.ones(length, dtype), np.ones(length, dtype)), exclusive=True)
            assert [array.dtype for array in result.values] == [dtype, dtype]

    @pytest.mark.parametrize("scan", SCANS)
    def test_whole_numbers_next_to_floats_are_not_cut_off(self, scan):
        a, h = SCANS[scan](AFFINE, (np.array([0.5, 0.5]), np.array([1, 1]))).values
        assert h.tolist() == [1, 1.5] and h.dtype == np.float64

    @pytest.mark.parametrize("scan", SCANS)
    def test_fractions_are_exact(self, scan):
        third = np.array([Fraction(1, 3)] * 9, object)
        a, h = SCANS[scan](AFFINE, (third, third)).values
        assert h[8] == sum(Fraction(1, 3) ** k for k in range(1, 10)) and a[8] == Fraction(1, 3) ** 9

    @pytest.mark.parametrize("scan", SCANS)
    def test_symbols_can_be_scanned(self, scan):
        sympy = pytest.importorskip("sympy")
        a, b = (np.array(sympy.symbols(f"{name}0:3"), object) for name in "ab")
        h = SCANS[scan](AFFINE, (a, b)).values[1]
        assert sympy.expand(h[2] - (a[2] * a[1] * b[0] + a[2] * b[1] + b[2])) == 0

    @pytest.mark.parametrize("scan", SCANS)
    def test_texts_of_fixed_width_are_not_cut_off(self, scan):
        for items in ("abcde", list("abcde"), np.array(list("abcde")), np.array(list("abcde"), object)):
            assert SCANS[scan](CONCAT, items).values[-1] == "abcde"
        joined = Monoid("joined", lambda first, second: first + second, identity="")
        assert SCANS[scan](joined, np.array(list("abcde"))).values[-1] == "abcde"

    @pytest.mark.parametrize("scan", SCANS)
    def test_elements_may_be_tuples_or_sets(self, scan):
        pairs = Monoid.elementwise("pairs", lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), identity=(1, 0))
        assert SCANS[scan](pairs, [(2, 1)] * 3).values.tolist() == [(2, 1), (4, 3), (8, 7)]
        union = Monoid.elementwise("union", lambda first, second: first | second, identity=frozenset())
        assert SCANS[scan](union, [{1}, {2}, {1}], exclusive=True).values.tolist() == [set(), {1}, {1, 2}]


class TestMemory:
    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("scan", SCANS)
    def test_inputs_are_neither_changed_nor_returned(self, scan, reverse):
        a, b = np.full(9, 2.0), np.arange(9.0)
        kept = a.copy(), b.copy()
        for exclusive in (False, True):
            result = SCANS[scan](AFFINE, (a, b), exclusive=exclusive, reverse=reverse)
            for array in result.values:
                assert not np.shares_memory(array, a) and not np.shares_memory(array, b)
                assert array.flags.c_contiguous and array.base is None      # no padding is kept alive behind it
                array[...] = -1                                             # and it can be written to
        np.testing.assert_array_equal((a, b), kept)

    @pytest.mark.parametrize("scan", SCANS)
    def test_read_only_and_strided_inputs_work(self, scan):
        items = np.arange(20)[::-2]
        items.flags.writeable = False
        assert SCANS[scan](SUM, items).values.tolist() == np.cumsum(items).tolist()

    @pytest.mark.parametrize("scan", SCANS)
    def test_a_combine_may_hand_back_its_arguments(self, scan):
        swap = Monoid("first of a, first of b, crossed", lambda p, q: (p[0], q[1]))
        keep_last = Monoid("the last", lambda first, second: second)
        if scan == "blelloch":
            return                                                          # semigroups: refused, see below
        assert SCANS[scan](keep_last, [4, 5, 6]).values.tolist() == [4, 5, 6]
        first, last = SCANS[scan](swap, (np.arange(9), np.arange(9))).values
        assert first.tolist() == [0] * 9 and last.tolist() == list(range(9))
        crossed = Monoid("crossed", lambda p, q: (q[1], q[0]))
        assert plain(SCANS[scan](crossed, ([1, 2], [3, 4])).values) == ([1, 4], [3, 2])

    @pytest.mark.parametrize("scan", SCANS)
    def test_a_combine_that_writes_to_its_arguments_is_stopped(self, scan):
        def in_place(first, second):
            first += second
            return first
        with pytest.raises(ValueError, match="read-only"):
            SCANS[scan](Monoid("in place", in_place, 0), np.ones(9))


class TestSegments:
    @pytest.mark.parametrize("scan", SCANS)
    def test_each_segment_equals_its_scan_alone(self, scan):
        rng = np.random.default_rng(3)
        lengths = [5, 1, 17, 3, 8]
        a, b = rng.integers(-1, 2, sum(lengths)), small(rng, sum(lengths))
        flags = np.zeros(sum(lengths), bool)
        flags[np.cumsum([0, *lengths[:-1]])] = True
        _, (_, h) = SCANS[scan](segmented(AFFINE), (flags, (a, b))).values
        pieces = zip(np.split(a, np.cumsum(lengths)[:-1]), np.split(b, np.cumsum(lengths)[:-1]), strict=True)
        assert h.tolist() == [x for piece in pieces for x in serial(AFFINE, piece).values[1].tolist()]

    @pytest.mark.parametrize("scan", SCANS)
    def test_nothing_leaks_over_a_border_not_even_nan(self, scan):
        _, (_, h) = SCANS[scan](segmented(AFFINE), ([True, False, True, False], (np.ones(4), [1, np.nan, 2, 3]))).values
        assert h[0] == 1 and np.isnan(h[1]) and h[2:].tolist() == [2, 5]

    def test_a_lift_of_a_lift_and_of_a_semigroup(self):
        flags = [True, False, False, True]
        _, (_, sums) = hillis_steele(segmented(segmented(SUM)), (flags, (flags, [1, 1, 1, 1]))).values
        assert sums.tolist() == [1, 2, 3, 1]
        smallest = segmented(Monoid("smallest", np.minimum))
        assert smallest.identity is None
        assert hillis_steele(smallest, (flags, [3, 1, 2, 5])).values[1].tolist() == [3, 1, 1, 5]


class TestSupplied:
    def test_a_recurrence_of_order_three_scans_as_a_companion(self):
        c = np.array([[1, 0, -1], [0, 1, 1], [1, -1, 0], [-1, 0, 1], [1, 1, 0], [0, 0, 1], [1, 0, 1]])
        u = np.array([1, 2, -1, 3, 0, 1, 2])
        h = []
        for t in range(7):
            before = [h[t - 1 - j] if t - 1 - j >= 0 else 0 for j in range(3)]
            h.append(int(c[t] @ before + u[t]))
        for scan in SCANS.values():
            assert scan(matrix_affine(3), companion(c, u)).values[1][:, 0].tolist() == h

    def test_max_plus_is_the_best_path_loop(self):
        rng = np.random.default_rng(5)
        a, b = small(rng, 40) * 1.0, small(rng, 40) * 1.0
        best, want = -np.inf, []
        for step, start in zip(a, b, strict=True):
            best = max(step + best, start)
            want.append(best)
        assert blelloch(MAX_PLUS, (a, b)).values[1].tolist() == want

    def test_matrices_multiply_from_the_left(self):
        first, second = np.array([[1, 1], [0, 1]]), np.array([[2, 0], [0, 1]])
        total = hillis_steele(MATRIX_2X2, np.stack([first, second])).total
        state = np.array([3, 5])
        assert (total @ state).tolist() == (second @ (first @ state)).tolist() != (first @ (second @ state)).tolist()

    def test_wrong_coefficients_are_refused(self):
        with pytest.raises(ValueError, match=r"coefficients have shape \(3, 2\): it must be \(k,\) or \(length, k\)"):
            companion(np.ones((3, 2)), np.ones(4))


class TestRefusals:
    smallest = Monoid("smallest", np.minimum)

    @pytest.mark.parametrize("scan", [serial, hillis_steele, functools.partial(chunked, chunk=2)])
    def test_a_semigroup_scans_where_no_identity_is_needed(self, scan):
        assert scan(self.smallest, [3, 1, 4, 1, 5]).values.tolist() == [3, 1, 1, 1, 1]
        assert scan(self.smallest, np.empty(0)).total is None

    @pytest.mark.parametrize("scan", SCANS)
    def test_a_semigroup_is_refused_where_an_identity_is_needed(self, scan):
        with pytest.raises(ValueError, match="'smallest' has no identity, and"):
            SCANS[scan](self.smallest, [3, 1, 4], exclusive=True)
        if scan == "blelloch":
            with pytest.raises(ValueError, match="starts its way down with the identity"):
                blelloch(self.smallest, [3, 1, 4])

    def test_an_identity_that_the_items_cannot_hold(self):
        with pytest.raises(ValueError, match="identity of 'max-plus' is -inf: items of dtype int64 cannot hold it"):
            blelloch(MAX_PLUS, ([1, 2], [3, 4]))
        with pytest.raises(ValueError, match=r"identity of '2x2 matrices' has shape \(2, 2\)"):
            blelloch(MATRIX_2X2, np.ones((4, 3, 3)))
        with pytest.raises(ValueError, match="identity of 'pairs' has 0 where the items have a tuple of 2"):
            blelloch(Monoid("pairs", AFFINE.combine, identity=0), ([1.0], [2.0]))

    @pytest.mark.parametrize("items", [(1, 2), 5, ([1, 2], [1, 2, 3]), ()])
    def test_items_without_one_time_axis(self, items):
        with pytest.raises(ValueError, match="items have shapes"):
            hillis_steele(SUM, items)

    @pytest.mark.parametrize("combine", [
        lambda first, second: (first, second), lambda first, second: 3, lambda first, second: first[..., None],
    ])
    def test_a_combine_that_returns_something_else(self, combine):
        with pytest.raises(ValueError, match="it must return what it takes"):
            hillis_steele(Monoid("odd", combine), np.ones(4))

    def test_a_combine_that_loses_steps(self):
        with pytest.raises(ValueError, match=r"took float64\[3\] and returned float64\[2\]"):
            hillis_steele(Monoid("short", lambda first, second: first[1:]), np.ones(4))

    @pytest.mark.parametrize("chunk", [0, -1, float("nan")])
    def test_a_chunk_below_one_step(self, chunk):
        with pytest.raises(ValueError, match="chunk is .*: it must be at least 1 step"):
            chunked(SUM, np.ones(3), chunk=chunk)


ITEMS = st.lists(st.tuples(st.fractions(-2, 2, max_denominator=3), st.integers(-3, 3)), max_size=20)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(ITEMS, st.integers(1, 21), st.booleans(), st.booleans())
def test_all_scans_agree_exactly_on_fractions(pairs, chunk, exclusive, reverse):
    items = tuple(np.array([pair[part] for pair in pairs], object) for part in (0, 1))
    options = dict(exclusive=exclusive, reverse=reverse)
    want = serial(AFFINE, items, **options)
    for result in (hillis_steele(AFFINE, items, **options), blelloch(AFFINE, items, **options),
                   chunked(AFFINE, items, chunk=chunk, **options)):
        assert plain(result.values) == plain(want.values) and plain(result.total) == plain(want.total)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.text("ab", max_size=12), st.text("ab", max_size=12), st.integers(1, 5))
def test_a_cut_anywhere_goes_on_from_the_total(left, right, chunk):
    for scan in (hillis_steele, blelloch, functools.partial(chunked, chunk=chunk)):
        carry = scan(CONCAT, left).total
        joined = scan(CONCAT, left).values.tolist() + [carry + text for text in scan(CONCAT, right).values]
        assert joined == scan(CONCAT, left + right).values.tolist()


def test_a_million_steps_are_practical():
    rng = np.random.default_rng(0)
    items = rng.integers(0, 2, 10**6), rng.integers(-3, 4, 10**6)
    want = hillis_steele(AFFINE, items)
    assert want.rounds == 20 and want.combines == 20 * 10**6 - (2**20 - 1)
    for result in (blelloch(AFFINE, items), chunked(AFFINE, items, chunk=1000)):
        np.testing.assert_array_equal(result.values[1], want.values[1])


@pytest.mark.parametrize("module", [ssmlab.monoid, algebra, record, scans, supplied, reference])
def test_the_examples_in_docstrings_are_true(module):
    assert doctest.testmod(module).failed == 0


def test_monoids_with_array_identities_can_be_compared_and_put_in_a_dict():
    assert MATRIX_2X2 == MATRIX_2X2 != SUM and {MATRIX_2X2: 1}[MATRIX_2X2] == 1


def test_layouts_are_told_in_words():
    assert layout((np.ones(3), np.ones((3, 2, 2), "f4"))) == "(float64, float32[2, 2])"


def test_the_package_imports_nothing_but_numpy_and_itself():
    for path in Path(ssmlab.monoid.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= {"numpy", "operator"}, path
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert node.module in {"collections.abc", "dataclasses", "typing"}, path
