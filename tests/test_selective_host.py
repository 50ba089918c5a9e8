"""What the host does for a GPU, without one: on tensors that have shapes and no memory, with launches only noted."""

import pytest
import torch

from ssmlab import selective_kernels, selective_plans
from ssmlab.selective_kernels import Inputs

ONE = ["selective_backward", "selective_sum"]
CUT = ["selective_totals", "selective_link_pieces", *ONE]


@pytest.fixture
def launched(monkeypatch):
    """[(name, constants, grid, arguments)] of all launches, as on a GPU with 132 multiprocessors."""
    found = []

    def launcher(file, name, constants):
        return lambda grid, block, args, device, shared=0: found.append((name, dict(constants), grid, args))

    monkeypatch.setattr(selective_kernels, "launcher", launcher)
    monkeypatch.setattr(selective_plans, "_processors", lambda device: 132)
    for plan in (selective_plans._forward_plan, selective_plans._backward_plan):
        plan.cache_clear()
    yield found
    for plan in (selective_plans._forward_plan, selective_plans._backward_plan):
        plan.cache_clear()


def inputs(batch, length, channels, states, dtype, layout="channels"):
    def empty(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device="meta")

    u, delta, z = (empty(batch, length, channels, dtype=dtype) for _ in range(3))
    if layout == "time":
        u, delta, z = (t.view(batch, channels, length).transpose(1, 2) for t in (u, delta, z))
    B, C = (empty(batch, length, 1, states, dtype=dtype) for _ in range(2))
    return Inputs(u, delta, empty(channels, states), B, C, empty(channels), z, empty(channels), True, None, None)


def run(x):
    batch, length, channels = x.u.shape
    variant, segment = selective_plans.forward_plan(x.u, 1, x.states)
    borders = torch.empty(batch, -(-length // 32), channels, x.states, device="meta")
    final = torch.empty(batch, channels, x.states, device="meta")
    y = selective_kernels.forward(x, None, final, segment=segment, borders=borders, variant=variant)
    return selective_kernels.backward(x, torch.empty_like(y), None, borders, None, spacing=32)


@pytest.mark.parametrize("shape, dtype, forward, backward", [
    ((16, 2048, 1536, 16), torch.bfloat16, ["selective_forward"], 4 * ONE),
    ((16, 2048, 1536, 16), torch.float32, ["selective_forward"], ONE),
    ((2, 4096, 5120, 16), torch.bfloat16, ["selective_forward"], CUT),
    ((2, 4096, 5120, 16), torch.float32, ["selective_forward"], 2 * CUT),
    ((1, 2048, 1536, 16), torch.float16, ["selective_totals", "selective_forward"], CUT),
    ((1, 65536, 1536, 16), torch.bfloat16, ["selective_totals", "selective_forward"], 3 * CUT),
    ((1, 2**20, 64, 16), torch.float32, ["selective_totals", "selective_link", "selective_forward"], CUT),
    ((16, 2048, 1536, 64), torch.bfloat16, ["selective_forward"], 2 * ONE),
])  # fmt: skip
def test_what_is_launched(launched, shape, dtype, forward, backward):
    x = inputs(*shape, dtype)
    grads = run(x)
    assert [name for name, *_ in launched] == forward + backward
    assert grads.du.shape == x.u.shape and grads.dB.shape == x.B.shape and grads.dA.shape == x.A.shape
    for _, constants, grid, args in launched:
        assert all(0 < size < 2**31 for size in grid)
        assert all(arg is None or isinstance(arg, (int, torch.Tensor)) for arg in args)
        assert constants.get("VECTOR", 4) == 4 and constants.get("TIME_INNER", 0) == 0


@pytest.mark.parametrize("layout, channels, length, found", [
    ("channels", 64, 96, (4, 0)), ("time", 64, 96, (4, 1)), ("channels", 62, 96, (1, 0)), ("time", 64, 97, (1, 1)),
])  # fmt: skip
def test_four_neighbours_are_one_access_where_the_layout_has_them(launched, layout, channels, length, found):
    run(inputs(2, length, channels, 16, torch.bfloat16, layout))
    for name, constants, *_ in launched:
        if name in ("selective_forward", "selective_backward"):
            assert (constants["VECTOR"], constants["TIME_INNER"]) == found


def test_launches_of_a_backward_share_one_piece_of_scratch_memory(launched):
    """Each launch's arrays lie one behind the other in it, and begin where an access of 16 bytes may."""
    run(inputs(1, 65536, 1536, 16, torch.bfloat16))
    du, dA_part, sums_part = 14, 21, 26  # places among the arguments of selective_backward
    found = [args for name, _, _, args in launched if name == "selective_backward"]
    assert len(found) == 3
    storages = {args[place].untyped_storage()._cdata for args in found for place in (dA_part, sums_part)}
    assert len(storages) == 1 and found[0][du].untyped_storage()._cdata not in storages
    for args in found:
        assert args[sums_part].storage_offset() == args[dA_part].storage_offset() + args[dA_part].numel()
        assert args[sums_part].storage_offset() % 64 == 0
