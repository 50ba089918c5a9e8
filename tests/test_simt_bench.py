"""The benchmark of the CPU side: what it runs is right, and its table cannot hide a missed bar. No time is tested."""
import math

from ssmlab.simt import bench


def numbers(value):
    return dict.fromkeys(bench.BARS, value)


def test_the_measured_scan_is_checked_and_right():
    report = bench.checked_scan(bench.kernels.source(bench.KERNEL), 256)
    assert report.ok and report.accesses > 10 * bench.ELEMENTS


def test_the_kernel_is_about_as_long_as_the_bar_says():
    assert 45 <= len(bench.kernels.source(bench.KERNEL).splitlines()) <= 75


def test_a_number_over_its_bar_is_marked_and_so_is_one_that_is_none():
    assert "!" not in bench.table({"zig": numbers(0.5)})
    assert bench.table({"zig": numbers(1000.0)}).count("!") == len(bench.BARS)
    assert bench.table({"g++": numbers(math.nan)}).count("!") == len(bench.BARS)


def test_a_bar_may_differ_between_compilers():
    assert (bench.bar("first kernel", "g++"), bench.bar("first kernel", "zig")) == (5.0, 2.0)
    assert bench.bar("first kernel", "clang++") is None


def test_compilers_that_are_missing_are_left_out():
    assert bench.compilers(["no-such-compiler"]) == {}
