"""What checked mode finds, at which lines, in every schedule; and what it leaves alone."""

import threading

import numpy as np
import pytest
import torch
from simt_kernels import LINES, check, kernel, only, places, zeros

import ssmlab
from ssmlab.simt import KernelError

SCHEDULES = {
    "in order": {},
    "lanes reversed": dict(lane_order="reverse"),
    "blocks reversed": dict(block_order="reverse", resident=2),
    "random": dict(lane_order="random", block_order="random", resident=3, seed=7),
}
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


# ---- shared memory


@each_schedule
def test_a_missing_barrier_is_a_race_between_two_lines(schedule):
    report = check("shared_race", 1, 64, [zeros(64)], **schedule)
    finding = only(report)
    assert (finding.kind, finding.severity, finding.name) == ("race", "error", "cells")
    assert (finding.line, finding.access, finding.other_line, finding.other_access) == (
        LINES["race write"], "write", LINES["race read"], "read",
    )  # fmt: skip
    assert (finding.count, finding.bytes) == (64, 256)
    assert finding.threads[0] != finding.threads[1] and finding.blocks == ((0, 0, 0), None)


@each_schedule
def test_a_race_inside_a_warp_is_a_warning(schedule):
    finding = only(check("warp_race", 1, 32, [zeros(32)], **schedule))
    assert (finding.kind, finding.severity, finding.count) == ("race", "warning", 32)
    assert {finding.line, finding.other_line} == {LINES["warp write"], LINES["warp read"]}


@each_schedule
def test_shuffles_order_no_memory_and_syncwarp_does(schedule):
    assert only(check("shuffle_is_no_order", 1, 32, [zeros(32)], **schedule)).severity == "warning"
    report = check("syncwarp_orders", 1, 32, [zeros(32)], **schedule)
    assert report.ok and np.array_equal(report.arrays[0], np.arange(31, -1, -1))


@each_schedule
def test_a_partial_syncwarp_orders_the_lanes_of_its_mask_only(schedule):
    assert check("half_syncwarp", 1, 32, [zeros(32), np.int32(0)], **schedule).ok
    finding = only(check("half_syncwarp", 1, 32, [zeros(32), np.int32(16)], **schedule))
    assert (finding.kind, finding.severity, finding.count) == ("race", "warning", 32)


@each_schedule
def test_a_reader_that_was_not_the_last_one_is_not_forgotten(schedule):
    finding = only(check("third_reader", 1, 32, [zeros(32)], **schedule))
    assert {finding.line, finding.other_line} == {LINES["third read"], LINES["third write"]}
    assert (finding.severity, finding.count) == ("warning", 1)


@each_schedule
def test_bytes_of_one_word_are_told_apart(schedule):
    assert check("neighbour_bytes", 1, 64, [zeros(64, "uint8")], **schedule).ok
    finding = only(check("overlapping_bytes", 1, 64, [zeros(1, "int32")], **schedule))
    assert (finding.line, finding.other_line, finding.count, finding.bytes) == (LINES["bytes"], LINES["bytes"], 4, 8)


@each_schedule
def test_atomics_race_with_plain_accesses_and_not_with_each_other(schedule):
    report = check("atomic_sum", 3, 64, [zeros(3, "int32")], **schedule)
    assert report.ok and list(report.arrays[0]) == [64, 64, 64]
    finding = only(check("atomic_and_plain", 1, 64, [zeros(1, "int32")], **schedule))
    assert (finding.kind, finding.access, finding.other_access) == ("race", "write", "atomic")
    assert {finding.line, finding.other_line} == {LINES["plain"], LINES["atomic"]}


@each_schedule
def test_reading_what_nobody_wrote_is_found_and_gives_nan(schedule):
    report = check("never_written", 2, 64, [zeros(64)], **schedule)
    finding = next(finding for finding in report.findings if finding.kind == "uninitialised")
    assert (finding.line, finding.count, finding.severity) == (LINES["unwritten"], 2, "error")
    assert np.isnan(report.arrays[0][63]) and np.all(report.arrays[0][:63] == 1)


def test_the_dynamic_part_is_unwritten_in_each_block_anew():
    report = check("second_tile_unwritten", 1, 32, [zeros(32), np.int32(32)], shared=128)
    assert report.ok
    assert only(check("second_tile_unwritten", 1, 32, [zeros(32), np.int32(20)], shared=128)).count == 12


@each_schedule
def test_running_past_the_dynamic_part_is_out_of_bounds(schedule):
    report = check("dynamic_overrun", 1, 32, [zeros(32)], shared=120, **schedule)
    assert places(report, "out-of-bounds") == [{"dynamic"}]
    assert report.findings[0].name == "room" and report.findings[0].count == 2
    none = check("dynamic_overrun", 1, 32, [zeros(32)], **schedule)
    assert "shared_mem" in none.findings[0].hint and none.findings[0].count == 32


def test_more_shared_memory_than_a_block_has_is_refused_with_the_numbers():
    code = """extern "C" __global__ void large(float* out) {
        __shared__ float cells[SIZE];
        cells[threadIdx.x] = 1;
        out[threadIdx.x] = cells[threadIdx.x];
    }"""
    out = zeros(32)
    ssmlab.RawKernel(code, "large", options=("-DSIZE=12288",))((1,), (32,), (out,))
    assert np.all(out == 1)
    with pytest.raises(ValueError, match="49156 bytes: at most 49152"):
        ssmlab.RawKernel(code, "large", options=("-DSIZE=12289",))((1,), (32,), (out,))
    with pytest.raises(ValueError, match="200000 bytes beside 49152 static ones: a block has at most 232448"):
        ssmlab.RawKernel(code, "large", options=("-DSIZE=12288",))((1,), (32,), (out,), shared_mem=200_000)


@each_schedule
def test_the_gap_behind_an_array_is_out_of_bounds(schedule):
    report = check("gap_between_arrays", 1, 32, [zeros(32)], **schedule)
    finding = next(finding for finding in report.findings if finding.kind == "out-of-bounds")
    assert (finding.line, finding.name, finding.count) == (LINES["gap"], "first", 32)


@each_schedule
def test_an_index_past_an_inner_dimension_is_found_though_it_stays_inside_the_array(schedule):
    assert check("inner_dimension", 1, 32, [zeros(32), np.int32(0)], **schedule).ok
    report = check("inner_dimension", 1, 32, [zeros(32), np.int32(1)], **schedule)
    finding = only(report)
    assert (finding.kind, finding.line, finding.name) == ("out-of-bounds", LINES["inner"], "cells")
    assert "index 32" in finding.detail and "0 to 31" in finding.detail
    assert report.complete and report.arrays[0][31] == 2


@pytest.mark.parametrize("index", [4, 5, 6, 7, 8, 9, 12, 40, 1000, 100_000, -1, -3, -100_000])
def test_an_index_past_a_local_array_never_kills_the_process(index):
    report = check("local_overrun", 1, 32, [zeros(32), np.int32(index)])
    assert report.findings[0].kind == "out-of-bounds" and report.findings[0].line == LINES["local"]
    assert f"index {index} " in report.findings[0].detail
    assert check("local_overrun", 1, 32, [zeros(32), np.int32(1)]).findings[0].kind == "race"


def test_instances_of_a_template_have_arrays_of_their_own():
    report = check("two_instances", 1, 32, [zeros(32)])
    assert report.ok and np.all(report.arrays[0] == 4) and report.shared_bytes == 256


# ---- global memory


@each_schedule
def test_guard_zones_catch_accesses_on_both_sides(schedule):
    inside = check("past_the_end", 1, 32, [zeros(32), zeros(32), np.int32(0)], **schedule)
    assert inside.ok
    after = only(check("past_the_end", 1, 32, [zeros(32), zeros(32), np.int32(2)], **schedule))
    assert (after.kind, after.line, after.name, after.count) == ("out-of-bounds", LINES["past"], "out", 2)
    assert "past the end" in after.detail and "elements 0 to 31" in after.detail
    before = only(check("past_the_end", 1, 32, [zeros(32), zeros(32), np.int32(-3)], **schedule))
    assert before.count == 3 and "before the start" in before.detail


def test_a_far_access_ends_the_launch_and_not_the_process():
    for at in (1 << 40, -(1 << 40), 1 << 60, 1 << 20):
        report = check("far_away", 1, 1, [zeros(8), np.int64(at)])
        finding = only(report)
        assert (finding.kind, finding.line, finding.access) == ("wild-access", LINES["far"], "write")
        assert not report.complete and list(report.arrays[0][:2]) == [1, 0]
    assert check("atomic_sum", 1, 64, [zeros(1, "int32")]).ok


def test_a_null_pointer_is_named_as_such():
    finding = only(check("null_pointer", 1, 32, [None, zeros(32)]))
    assert (finding.kind, finding.line) == ("wild-access", LINES["null"]) and "null pointer" in finding.detail


def test_a_misaligned_vector_is_refused():
    finding = only(check("misaligned", 1, 4, [zeros(16), zeros(32)]))
    assert (finding.kind, finding.line, finding.name) == ("misaligned", LINES["misaligned"], "in")
    assert "4 past a multiple of 16" in finding.detail


VIEWED = """extern "C" __global__ void copy(const float* x, float* y) {
    const int t = threadIdx.x;
    y[t] = x[t];  // line 3
}
extern "C" __global__ void copy_four(const float* x, float4* y) {
    const int t = threadIdx.x;
    y[t] = ((const float4*)x)[t];  // line 7
}"""


@pytest.mark.parametrize("as_torch", [False, True], ids=["numpy", "torch"])
@pytest.mark.parametrize("start, sectors", [(0, 4), (1, 5), (4, 5), (8, 4), (63, 5), (64, 4)])
def test_a_view_begins_where_it_does_on_a_gpu(start, sectors, as_torch):
    """Memory is given out in pieces of 256 bytes there: what counts is where in its piece a view begins."""
    whole, y = np.arange(600, dtype=np.float32), np.zeros(256, np.float32)
    x = torch.from_numpy(whole)[start : start + 128] if as_torch else whole[start : start + 128]
    module = ssmlab.RawModule(code=VIEWED)
    report = ssmlab.check(module.get_function("copy"), 1, 32, (x, y))
    (read,) = [row for row in report.line(3) if row.access == "read"]
    assert read.sectors == sectors and np.array_equal(report.arrays[1][:32], np.arange(start, start + 32))
    report = ssmlab.check(module.get_function("copy_four"), 1, 32, (x, y))
    if start % 4:
        finding = only(report)
        assert (finding.kind, finding.line) == ("misaligned", 7) and f"{start % 4 * 4} past" in finding.detail
        with pytest.raises(KernelError, match="misaligned"):
            module.get_function("copy_four")(1, 32, (x, y))
    else:
        assert report.ok
        module.get_function("copy_four")(1, 32, (x, y))
        assert np.array_equal(y[:128], np.asarray(x))


@each_schedule
def test_two_blocks_that_write_one_word_race(schedule):
    finding = only(check("same_word_twice", 4, 1, [zeros(1, "int32")], **schedule))
    assert (finding.kind, finding.severity, finding.name) == ("global-race", "error", "out")
    assert finding.line == finding.other_line == LINES["same word"] and finding.blocks[1] is not None


@each_schedule
def test_reading_what_another_block_writes_is_a_race(schedule):
    report = check("block_reads_block", 4, 32, [np.ones(128, "float32"), zeros(128), zeros(128)], **schedule)
    finding = only(report)
    assert {finding.line, finding.other_line} == {LINES["middle write"], LINES["middle read"]}
    assert (finding.kind, finding.count, finding.name) == ("global-race", 128, "middle")


@each_schedule
def test_threads_of_one_block_race_in_global_memory_too(schedule):
    finding = only(check("within_a_block", 1, 64, [zeros(64), zeros(64)], **schedule))
    assert (finding.kind, finding.severity, finding.count) == ("global-race", "error", 64)
    assert finding.blocks[1] is None and "__syncthreads" in finding.hint
    assert check("within_a_block", 1, 64, [zeros(64), None], **schedule).ok


CHAIN_SCHEDULES = {
    "one at a time": {},
    "four alive": dict(resident=4),
    "all alive, random": dict(resident=16, block_order="random", lane_order="reverse", seed=3),
}


@pytest.mark.parametrize("schedule", CHAIN_SCHEDULES.values(), ids=CHAIN_SCHEDULES)
@pytest.mark.parametrize("without", [0, 1, 2, 3])
def test_value_fence_flag_orders_blocks_and_a_missing_fence_is_found(without, schedule):
    report = check("chain", 16, 32, [zeros(16), zeros(16, "int32"), np.int32(without)], **schedule)
    assert np.array_equal(report.arrays[0], np.arange(1, 17))
    if without == 0:
        assert report.ok
    else:
        assert places(report, "global-race") == [{"chain read", "chain write"}] and report.findings[0].count == 15
        assert ("put up without a fence" if without & 1 else "no fence follows") in report.findings[0].hint


@pytest.mark.parametrize("schedule", CHAIN_SCHEDULES.values(), ids=CHAIN_SCHEDULES)
def test_a_flag_may_not_overtake_a_volatile_value_either(schedule):
    args = [zeros(16), zeros(16, "int32")]
    assert check("volatile_chain", 16, 32, [*args, np.int32(0)], **schedule).ok
    wrong = check("volatile_chain", 16, 32, [*args, np.int32(1)], **schedule)
    assert places(wrong, "global-race") == [{"volatile read", "volatile write"}]
    assert "without a fence" in wrong.findings[0].hint


@pytest.mark.parametrize("schedule", CHAIN_SCHEDULES.values(), ids=CHAIN_SCHEDULES)
def test_one_thread_may_tell_for_all_after_a_barrier(schedule):
    args = [zeros(16 * 64), zeros(1, "int32"), zeros(64)]
    right = check("told_by_one", 16, 64, [*args, np.int32(1)], **schedule)
    assert right.ok and np.array_equal(right.arrays[2], 16 * (np.arange(64) ^ 32))
    wrong = check("told_by_one", 16, 64, [*args, np.int32(0)], **schedule)
    assert places(wrong, "global-race") == [{"told write", "told read"}]


def test_a_wait_for_a_later_block_is_a_deadlock_and_found_at_once():
    report = check("chain", 16, 32, [zeros(16), zeros(16, "int32"), np.int32(0)], block_order="reverse")
    finding = only(report)
    assert (finding.kind, finding.line) == ("deadlock", LINES["wait"])
    assert "atomic counter" in finding.hint and not report.complete
    assert check("chain", 16, 32, [zeros(16), zeros(16, "int32"), np.int32(0)], block_order="reverse", resident=16).ok


@each_schedule
def test_an_atomic_ticket_numbers_blocks_in_the_order_they_start(schedule):
    report = check("ticket", 8, 32, [zeros(1, "int32"), zeros(8, "int32")], **schedule)
    assert report.ok and sorted(report.arrays[1]) == list(range(8))


def test_device_variables_and_constants_are_memory_of_the_module():
    first = check("module_variables", 2, 4, [zeros(64)])
    assert first.ok and "served" in str(first) and "weights" in str(first)


def test_shared_memory_of_another_block_is_wild():
    finding = only(check("shared_pointer_of_another", 2, 1, [zeros(1, "uint64"), zeros(1)], cooperative=True))
    assert (finding.kind, finding.line) == ("wild-access", LINES["other block"]) and "another block" in finding.detail


@each_schedule
def test_a_local_variable_of_another_thread_is_out_of_reach(schedule):
    report = check("pointer_to_local", 1, 32, [zeros(1, "uint64"), zeros(1)], **schedule)
    finding = only(report)
    assert (finding.kind, finding.line) == ("local-escape", LINES["local escape"])
    assert finding.threads == ((1, 0, 0), (0, 0, 0))


# ---- barriers and waits


@each_schedule
def test_barriers_in_two_lines_do_not_match(schedule):
    report = check("two_barriers", 2, 64, [zeros(64, "int32")], **schedule)
    assert places(report, "divergent-barrier") == [{"first barrier", "second barrier"}]
    assert next(f for f in report.findings if f.kind == "divergent-barrier").count == 2


@each_schedule
def test_one_barrier_reached_by_two_calls_does_not_match_either(schedule):
    finding = only(check("same_barrier_two_calls", 1, 32, [zeros(32, "int32")], **schedule))
    assert finding.kind == "divergent-barrier" and finding.line == finding.other_line == LINES["in a function"]


@each_schedule
def test_a_return_before_a_barrier_is_found_once_with_the_number_of_threads(schedule):
    report = check("early_return", 1, 64, [zeros(64, "int32"), np.int32(50)], **schedule)
    finding = only(report)
    assert (finding.kind, finding.line) == ("divergent-barrier", LINES["after return"])
    assert "14 threads" in finding.detail and list(report.arrays[0][[0, 49, 50]]) == [2, 2, 0]


@each_schedule
def test_reducing_barriers_count_and_join(schedule):
    report = check("reducing_barriers", 1, 65, [zeros(65, "int32")], **schedule)
    assert report.ok and np.all(report.arrays[0] == 22 * 100 + 0 * 10 + 1) and report.barriers == 3


@each_schedule
def test_a_named_lane_that_waits_elsewhere_is_found_and_the_others_go_on(schedule):
    report = check("lane_waits_elsewhere", 1, 32, [zeros(32, "int32")], **schedule)
    finding = only(report)
    assert (finding.kind, finding.line) == ("invalid-mask", LINES["without lane 7"])
    assert finding.other_line == LINES["lane 7"]
    assert "lane 7" in finding.detail and report.complete


@each_schedule
def test_a_named_lane_that_has_returned_is_found(schedule):
    finding = only(check("lane_has_returned", 1, 32, [zeros(32, "int32")], **schedule))
    assert (finding.kind, finding.line) == ("invalid-mask", LINES["ballot"]) and "lane 7" in finding.detail


@each_schedule
@pytest.mark.parametrize(
    "name, marks, words",
    [
        ("not_in_its_mask", {"not in mask"}, "does not name it"),
        ("masks_differ", {"masks differ"}, "0xffffffff"),
        ("different_functions", {"any", "shuffle"}, "different warp-wide functions"),
        ("different_lines", {"line one", "line two"}, "two different lines"),
    ],
)
def test_masks_that_cannot_be_are_found(name, marks, words, schedule):
    report = check(name, 1, 32, [zeros(32, "int32")], **schedule)
    assert places(report, "invalid-mask") == [marks] and words in report.findings[0].detail
    assert report.findings[0].severity == ("warning" if name == "different_lines" else "error")


@each_schedule
def test_warp_wide_functions_give_what_cuda_gives(schedule):
    report = check("warp_functions", 1, 64, [zeros(12 * 64, "int32")], **schedule)
    assert report.ok, str(report)
    got = report.arrays[0].reshape(64, 12)
    t = np.arange(64)
    lane, warp = t % 32, t // 32 * 32
    signed = lambda mask: np.uint32(mask).astype(np.int32)  # noqa: E731
    assert np.array_equal(got[:, 0], warp + 3)
    assert np.array_equal(got[:, 1], np.where(lane >= 2, t - 2, t))
    assert np.array_equal(got[:, 2], np.where(lane + 30 < 32, t + 30, t))
    assert np.array_equal(got[:, 3], t ^ 5)
    assert np.array_equal(got[:, 4], t // 8 * 8 + 1)
    assert np.array_equal(got[:, 5], np.where(lane % 4 >= 3, t - 3, t))
    assert np.all(got[:, 6] == signed(sum(1 << i for i in range(0, 32, 3))))
    assert np.array_equal(got[:, 7], [signed(0x11111111 << int(i) % 4) for i in lane])
    assert np.all(got[:, 8] == 496) and np.all(got[:, 9] == 0)
    assert np.array_equal(got[:, 10], np.where(lane < 5, 31, signed(0xFFFFFFE0)))
    assert np.array_equal(got[:, 11], np.where(lane < 31, t + 1, t))


def test_partial_warps_may_name_lanes_that_do_not_exist():
    report = check("warp_functions", 1, 40, [zeros(12 * 64, "int32")])
    assert report.ok and report.arrays[0].reshape(64, 12)[39, 8] == 28


@each_schedule
def test_a_wait_for_nobody_is_a_deadlock(schedule):
    report = check("waits_for_nobody", 4, 64, [zeros(1, "int32"), zeros(64, "int32")], **schedule)
    assert places(report, "deadlock") == [{"poll"}]
    assert places(check("lock_twice", 1, 1, [zeros(1, "int32")], **schedule), "deadlock") == [{"locked"}]


@each_schedule
def test_a_wait_for_a_thread_of_the_same_block_ends(schedule):
    report = check("waits_in_a_block", 1, 64, [zeros(1, "int32"), zeros(1, "int32")], **schedule)
    assert report.ok and report.arrays[1][0] == 1


@each_schedule
def test_a_grid_barrier_orders_all_blocks_of_a_cooperative_launch(schedule):
    report = check("whole_grid", 8, 32, [zeros(256, "int32"), zeros(256, "int32")], cooperative=True, **schedule)
    assert report.ok and np.array_equal(report.arrays[1], np.arange(255, -1, -1))


def test_a_grid_barrier_without_a_cooperative_launch_is_a_deadlock():
    report = check("whole_grid", 8, 32, [zeros(256, "int32"), zeros(256, "int32")])
    finding = only(report)
    assert (finding.kind, finding.line) == ("deadlock", LINES["grid sync"]) and "cooperative" in finding.hint
    with pytest.raises(ValueError, match="65536"):
        check("whole_grid", 65, 1024, [zeros(66560, "int32"), zeros(66560, "int32")], cooperative=True)


# ---- ends of a launch


@each_schedule
@pytest.mark.parametrize("name, mark", [("endless_quiet", "quiet loop"), ("endless_busy", "busy loop")])
def test_an_endless_loop_is_ended_by_the_watchdog(name, mark, schedule):
    report = check(name, 1, 2, [zeros(4, "int32"), np.int32(10)], watchdog=200_000, **schedule)
    found = [finding for finding in report.findings if finding.kind == "endless-loop"]
    assert [finding.line for finding in found] == [LINES[mark]] and not report.complete


def test_a_recursion_has_96_kib_of_stack():
    assert check("recursion", 1, 33, [zeros(33, "int32"), np.int32(100)]).ok
    finding = only(check("recursion", 1, 33, [zeros(33, "int32"), np.int32(1_000_000)]))
    assert (finding.kind, finding.line) == ("stack-overflow", LINES["deeper"])


def test_a_failed_assert_names_condition_thread_and_line():
    report = check("asserted", 2, 32, [np.where(np.arange(32) == 5, -1, 1).astype("int32"), zeros(32, "int32")])
    finding = only(report)
    assert (finding.kind, finding.line, finding.threads[0]) == ("assert", LINES["assert"], (5, 0, 0))
    assert "in[threadIdx.x] >= 0" in finding.detail or ">= 0" in finding.detail


@each_schedule
def test_what_is_printed_comes_in_the_order_of_blocks_rounds_and_threads(schedule):
    report = check("prints", 2, 3, [np.int32(2)], **schedule)
    assert report.printf == "".join(
        f"round {r} block {b} thread {t} {r + 0.5:.2f}\n" for b in range(2) for r in range(2) for t in range(3)
    )


def test_a_launch_may_print_one_mebibyte_and_says_what_is_lost():
    report = check("prints_much", 4, 32, [])
    assert 900_000 < len(report.printf) <= 1 << 20 and "printf are missing" in str(report)


def test_a_kernel_that_errs_raises_and_leaves_what_it_computed():
    out = zeros(64, "int32")
    with pytest.raises(KernelError, match="divergent-barrier") as caught:
        kernel("early_return")((1,), (64,), (out, np.int32(50)))
    assert out[0] == 2 and caught.value.finding.line == LINES["after return"]
    kernel("warp_race")((1,), (32,), (zeros(32),))  # a warning alone does not raise


# ---- arguments and launches


def test_arrays_that_overlap_are_one_buffer():
    room = zeros(96)
    report = check("past_the_end", 1, 32, [room[32:64], room[:32], np.int32(0)])
    assert report.ok
    finding = only(check("past_the_end", 1, 32, [room, room[16:48], np.int32(0)]))
    assert finding.kind == "global-race" and finding.name == "out, in"


def test_a_read_only_array_is_read_and_not_written_back():
    source = np.arange(32, dtype=np.float32)
    source.flags.writeable = False
    out = zeros(32)
    kernel("past_the_end")((1,), (32,), (out, source, np.int32(0)))
    assert np.array_equal(out, source)


@pytest.mark.parametrize(
    "schedule, error, words",
    [
        (dict(lane_order="up"), ValueError, "lane_order is 'up'"),
        (dict(block_order=1), ValueError, "block_order is 1"),
        (dict(resident=0), ValueError, "resident is 0"),
        (dict(seed=-1), ValueError, "seed is -1"),
        (dict(watchdog=1.5), TypeError, "watchdog is 1.5"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(schedule, error, words):
    with pytest.raises(error, match=words):
        check("atomic_sum", 1, 32, [zeros(1, "int32")], **schedule)


def test_two_python_threads_may_check_at_once():
    failures = []

    def work():
        for _ in range(5):
            report = check("atomic_sum", 4, 64, [zeros(4, "int32")])
            if not report.ok or list(report.arrays[0]) != [64] * 4:
                failures.append(str(report))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_numbers_that_mark_records_may_start_again(monkeypatch):
    from ssmlab.simt import launch

    for start in (1, (1 << 31) + 5, 1):
        monkeypatch.setitem(launch._numbers, "interval", start)
        assert check("shared_race", 1, 64, [zeros(64)]).findings[0].count == 64
        assert check("syncwarp_orders", 1, 32, [zeros(32)]).ok
        launch._forget_numbers()


def test_a_block_in_three_dimensions_and_many_blocks():
    code = (
        'extern "C" __global__ void where(int* out) {'
        " const int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;"
        " const int b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;"
        " out[b * blockDim.x * blockDim.y * blockDim.z + t] += b * 1000 + t; }"
    )
    report = ssmlab.check(ssmlab.RawKernel(code, "where"), (2, 3, 4), (5, 4, 3), [zeros(24 * 60, "int32")])
    expected = np.arange(24)[:, None] * 1000 + np.arange(60)
    assert report.ok and np.array_equal(report.arrays[0].reshape(24, 60), expected)
