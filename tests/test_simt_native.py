"""Native mode: no checks, several OS threads, the same numbers whatever their count."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from simt_kernels import kernel, zeros

from ssmlab import RawKernel, arguments
from ssmlab.simt import KernelError, launch


def run(name, grid, block, args, workers=None, shared=0):
    """A native launch with a chosen number of OS threads."""
    raw = kernel(name, mode="native")
    library = raw._program.library("native")
    info = library.kernel(name)
    bound = arguments.bind(info, args)
    assert launch.run(library, info, (grid, 1, 1), (block, 1, 1), bound, shared, workers=workers) is None


def test_results_are_bitwise_the_same_for_any_number_of_threads():
    rows, length = 37, 1000
    source = np.random.default_rng(0).standard_normal((rows, length)).astype(np.float32)
    results = []
    for workers in (1, 2, 5, 64, None):
        out = zeros(rows)
        run("sums", rows, 256, [source, out, np.int32(length)], workers)
        results.append(out.tobytes())
    assert len(set(results)) == 1
    assert np.allclose(np.frombuffer(results[0], np.float32), source.sum(1), atol=1e-4)


@pytest.mark.parametrize("workers", [1, 4])
def test_atomics_are_atomic(workers):
    n = 64 * 32
    i = np.zeros(8, np.int32)
    i[4] = -1
    u, w, f, d = zeros(4, "uint32"), zeros(1, "uint64"), zeros(1), zeros(1, "float64")
    run("every_atomic", 64, 32, [i, u, w, f, d], workers)
    total = n * (n - 1) // 2
    assert list(i) == [total, -total, 1 - n, n - 1, -(2**31), 2**31 - 1, 0, n]
    assert (u[0], u[2], w[0], f[0], d[0]) == (n % 10, 0x80000000 + n - 1, n << 40, n, n / 2)


def test_checked_atomics_give_the_same_numbers():
    n = 64 * 32
    i = np.zeros(8, np.int32)
    i[4] = -1
    u, w, f, d = zeros(4, "uint32"), zeros(1, "uint64"), zeros(1), zeros(1, "float64")
    kernel("every_atomic")((64,), (32,), (i, u, w, f, d))
    assert (i[0], i[7], u[0], w[0], f[0], d[0]) == (n * (n - 1) // 2, n, n % 10, n << 40, n, n / 2)


def test_warps_exchange_and_count_as_in_checked_mode():
    native, checked = zeros(12 * 64, "int32"), zeros(12 * 64, "int32")
    run("warp_functions", 1, 64, [native])
    kernel("warp_functions")((1,), (64,), (checked,))
    native, checked = native.reshape(64, 12), checked.reshape(64, 12)
    native[:, 10] = checked[:, 10] = 0  # an optimiser may join the two calls of __activemask
    assert np.array_equal(native, checked)
    out = zeros(65, "int32")
    run("reducing_barriers", 1, 65, [out])
    assert np.all(out == 2201)


@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_may_wait_for_earlier_blocks_and_threads_for_their_neighbours(workers):
    value, flag = zeros(64), zeros(64, "int32")
    run("chain", 64, 32, [value, flag, np.int32(0)], workers)
    assert np.array_equal(value, np.arange(1, 65))
    flag, out = zeros(1, "int32"), zeros(1, "int32")
    run("waits_in_a_block", 1, 64, [flag, out], workers)
    assert out[0] == 1


def test_dynamic_shared_memory_is_there():
    out = zeros(32)
    run("second_tile_unwritten", 1, 32, [out, np.int32(32)], shared=128)
    assert np.array_equal(out, np.arange(32))


def test_what_is_printed_is_written_in_order(capsys):
    run("prints", 2, 3, [np.int32(1)], 1)
    places = [(block, thread) for block in range(2) for thread in range(3)]
    assert capsys.readouterr().out == "".join(f"round 0 block {b} thread {t} 0.50\n" for b, t in places)


def test_a_failed_assert_raises_and_the_next_launch_runs():
    with pytest.raises(KernelError, match="assert"):
        run("asserted", 2, 32, [np.full(32, -1, "int32"), zeros(32, "int32")], 2)
    out = zeros(32, "int32")
    run("asserted", 1, 32, [np.ones(32, "int32"), out])
    assert np.all(out == 1)


def test_a_call_in_native_mode_works_on_the_arrays_themselves():
    double = RawKernel('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }', "twice", mode="native")
    x = np.arange(8, dtype=np.float32)
    double((1,), (8,), (x,))
    assert np.array_equal(x, 2 * np.arange(8))


def whole_grid(blocks, threads):
    cells, out = zeros(blocks * threads, "int32"), zeros(blocks * threads, "int32")
    kernel("whole_grid", cooperative=True, mode="native")((blocks,), (threads,), (cells, out))
    return out


@pytest.mark.parametrize("blocks, threads", [(8, 32), (64, 1024), (2048, 32), (1, 7), (100, 33)])
def test_a_cooperative_launch_keeps_all_blocks_alive(blocks, threads):
    assert np.array_equal(whole_grid(blocks, threads), np.arange(blocks * threads)[::-1])


def test_cooperative_and_other_launches_may_run_beside_each_other():
    with ThreadPoolExecutor(4) as pool:
        cooperative = [pool.submit(whole_grid, 8, 32) for _ in range(10)]
        others = [pool.submit(run, "sums", 64, 256, [np.ones((64, 100), "float32"), zeros(64), np.int32(100)], 2)
                  for _ in range(10)]  # fmt: skip
        assert all(np.array_equal(one.result(), np.arange(256)[::-1]) for one in cooperative)
        assert [one.result() for one in others] == [None] * 10


def test_a_cooperative_launch_has_a_largest_size_and_a_grid_barrier_needs_a_cooperative_launch():
    with pytest.raises(ValueError, match="65536"):
        whole_grid(65, 1024)
    cells = zeros(256, "int32")
    with pytest.raises(RuntimeError, match="wait for each other for ever"):
        kernel("whole_grid", mode="native")((8,), (32,), (cells, cells.copy()))
