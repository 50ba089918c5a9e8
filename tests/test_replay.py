"""replay: a watched call is repeated with other tensors, and what cannot be repeated is not."""

import ctypes
import gc
import weakref

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ssmlab import replay


class Kernel:
    """Stands for a Launcher. Adds `number` to x, through a scratch array, and adds 1 to `zeros`."""

    def __init__(self):
        self.launches = []

    def __call__(self, grid, block, args, device, shared_mem=0):
        replay.launched(self, grid, block, args, shared_mem)
        self.launches.append(args)
        with _disable_current_modes():
            x, scratch, zeros, y, _, number = args
            scratch.copy_(x + number)
            zeros.add_(1)
            y.copy_(scratch)

    def ready(self, index):
        return self.drive, 7

    def drive(self, handle, *rest):
        """What the driver would be asked: the grid and block, and 8-byte values behind the addresses."""
        grid, block, (shared_mem, stream, start, _) = rest[:3], rest[3:6], rest[6:]
        places = (ctypes.c_void_p * 6).from_address(start)
        values = [ctypes.c_int64.from_address(place).value for place in places]
        self.driven = handle, grid, block, shared_mem, stream, values


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(replay, "_plans", {})
    return Kernel()


def plus(kernel):
    """An op: y = x + number, and what `zeros` counted."""

    def function(x, other, number):
        y, scratch = torch.empty_like(x), torch.empty(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape)
        zeros, counts = torch.zeros(2), torch.zeros(4, 2)
        kernel((1, 2), (3,), (x, scratch, counts[1], y, other, number), x.device, 16)
        return y, None, counts.t()[:, 1], zeros

    return function


def plan_of(function):
    return next(plan for (name, *_), plan in replay._plans.items() if name is function)


def test_the_third_call_repeats_and_gives_what_the_first_gave(kernel):
    function = plus(kernel)
    seen = []
    for value in (1.0, 2.0, 3.0, 4.0):
        x = torch.full((2, 3), value)
        y, nothing, counts, zeros = replay.run(function, (x, None), (10,))
        assert torch.equal(y, x + 10) and nothing is None
        assert torch.equal(counts, torch.ones(2)) and counts.stride() == (1,) and not zeros.any()
        assert all(y.data_ptr() != other.data_ptr() for other in seen)
        seen.append(y)
    assert isinstance(plan_of(function), replay.Plan) and len(kernel.launches) == 4


def test_strides_types_and_options_are_kinds_of_their_own(kernel):
    function = plus(kernel)
    for _ in range(3):
        for x in (torch.zeros(2, 3), torch.zeros(3, 2).t(), torch.zeros(2, 3, dtype=torch.float64), torch.zeros(7)[1:]):
            for number in (1, 2):
                y = replay.run(function, (x, None), (number,))[0]
                assert y.stride() == torch.empty_like(x).stride() and y.dtype == x.dtype
                assert torch.equal(y, x + number)
    assert len(replay._plans) == 8


def test_one_tensor_given_twice_is_not_taken_for_two(kernel):
    function = plus(kernel)
    one, two = torch.ones(2, 3), torch.full((2, 3), 2.0)
    for _ in range(3):
        replay.run(function, (one, one), (1,))
    replay.run(function, (two, one), (1,))
    assert kernel.launches[-1][0] is two and kernel.launches[-1][4] is one
    assert plan_of(function) is False


def test_views_of_one_memory_stay_apart(kernel):
    function = plus(kernel)
    for value in range(4):
        both = torch.arange(8.0) + value
        y = replay.run(function, (both[:4], both[4:]), (1,))[0]
        assert torch.equal(y, both[:4] + 1)
        assert kernel.launches[-1][4].data_ptr() == both[4:].data_ptr()
    assert isinstance(plan_of(function), replay.Plan)


def test_copies_are_repeated(kernel):
    def function(x, number):
        dense = torch.empty(3, 2).copy_(x)
        other = dense.clone()
        kernel((1,), (1,), (dense, torch.empty(3, 2), torch.zeros(3, 2), other, None, number), x.device)
        return (other,)

    for value in (1.0, 2.0, 3.0, 4.0):
        x = torch.full((2, 3), value).t()
        assert torch.equal(replay.run(function, (x,), (5,))[0], x + 5)
    assert isinstance(plan_of(function), replay.Plan)


@pytest.mark.parametrize("work", [lambda x: x + 1, lambda x: torch.cat([x, x]), lambda x: torch.ones(3), torch.sort])
def test_arithmetic_of_torch_is_not_repeated(kernel, work):
    def function(x):
        return tuple(work(x)) if work is torch.sort else (work(x),)

    for value in range(4):
        x = torch.tensor([3.0, 1.0, 2.0]) * value
        want = function(x)
        assert all(torch.equal(a, b) for a, b in zip(replay.run(function, (x,), ()), want, strict=True))
    assert plan_of(function) is False


def test_memory_that_becomes_zeros_after_it_was_used_is_not_repeated(kernel):
    def function(x, number):
        scratch, y = torch.empty_like(x), torch.empty_like(x)
        kernel((1,), (1,), (x, scratch, torch.zeros(2, 3), y, None, number), x.device)
        y.zero_()
        return (y,)

    for _ in range(4):
        assert not replay.run(function, (torch.ones(2, 3),), (1,))[0].any()
    assert plan_of(function) is False


def test_the_driver_is_shown_addresses_and_numbers(kernel, monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 99, raising=False)
    function = plus(kernel)
    first, other = torch.zeros(2, 3), torch.zeros(5)
    results, plan = replay.watch(function, (first, other), (2**40,))
    x, other = torch.ones(2, 3), torch.ones(5)
    y, zeros, counts = (torch.empty(size) for size in ((2, 3), (2,), (4, 2)))
    scratch = torch.empty(plan.bytes, dtype=torch.uint8)
    for _ in range(2):                                      # the second time in the same frame
        plan._launch_on_gpu([x, other, y, zeros, counts, scratch], 0)
        handle, grid, block, shared_mem, stream, values = kernel.driven
        assert (handle, grid, block, shared_mem, stream) == (7, (1, 2, 1), (3, 1, 1), 16, 99)
        assert values == [
            x.data_ptr(), scratch.data_ptr() + 12, counts.data_ptr() + 8, y.data_ptr(), other.data_ptr(), 2**40
        ]  # fmt: skip
    assert len(plan.frames) == 1


def test_no_tensor_is_kept_alive(kernel):
    function = plus(kernel)
    gc.disable()                                            # so that nothing but the last reference frees memory
    try:
        for _ in range(4):
            x = torch.zeros(2, 3)
            kept = [weakref.ref(t) for t in (x, *(t for t in replay.run(function, (x, None), (1,)) if t is not None))]
            kept += [weakref.ref(t) for t in kernel.launches.pop() if isinstance(t, torch.Tensor)]
            del x
            assert all(tensor() is None for tensor in kept)
    finally:
        gc.enable()


def test_what_is_remembered_is_bounded(kernel, monkeypatch):
    monkeypatch.setattr(replay, "MOST_KINDS", 5)
    function = plus(kernel)
    for size in range(20):
        for _ in range(3):
            replay.run(function, (torch.zeros(size, 2), None), (1,))
        assert len(replay._plans) <= 5


def test_an_error_in_a_watched_call_leaves_nothing_behind(kernel):
    def function(x):
        raise ValueError("no")

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            replay.run(function, (torch.zeros(2),), ())
    assert getattr(replay._watching, "by", None) is None
