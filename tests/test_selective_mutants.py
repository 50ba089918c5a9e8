"""Selective kernels and wrappers that are wrong by one edit: each is caught, and by the check that is named for it.

A mutant's `wrong` are the results that must come out wrong against the loop in float64; all others must stay right. Its
`finding` is the kind of error that the checked mode must report. Without an edit nothing is wrong and nothing is found.
"""

import re
from dataclasses import dataclass

import pytest
import torch
from selective_problem import NAMES, error, gradients, in_float64, loop, problem

from ssmlab import kernels, replay, selective, selective_kernels, selective_plans
from ssmlab.rawkernel import RawKernel, check
from ssmlab.selective_kernels import Inputs
from ssmlab.selective_plans import Cut, Variant

FORWARD = Variant(lanes=4, own=2, threads=64, tile=8, resident=1, many=2)
BACKWARD = Variant(lanes=4, own=2, threads=64, tile=4, resident=1, many=2, hand=2)
STEPS = {"plain": 40, "many rows": 40, "padded": 40, "infinite": 70, "joined": 70, "uneven": 70}  # in segments of 32
BEGIN = 40
MOVING = ("u", "delta", "B", "C", "z")
TRIED = {}


@dataclass(frozen=True)
class Mutant:
    """In `file` the one place that `old` (a regular expression) finds becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    wrong: frozenset = frozenset()
    finding: str = ""
    world: str = "plain"

    def text(self, file):
        source = kernels.source(file)
        if file != self.file:
            return source
        changed, count = re.subn(self.old, self.new, source)
        assert count == 1, f"{self.name}: {count} places in {file} match {self.old!r}"
        return changed


def mutant(name, file, old, new, *, wrong="", finding="", world="plain"):
    return Mutant(name, f"selective_{file}.cu", old, new, frozenset(wrong.split()), finding, world)


def barrier(name, file, label):
    old = rf"__syncthreads\(\);( *// {label}\b)"
    return mutant(name, file, old, r";\1", finding="race")


def warp_barrier(name, words):
    return mutant(name, "backward", rf"__syncwarp\(\);( *// {words})", r";\1", finding="race")


MUTANTS = [
    # ---- the forward
    barrier("the tile is read before it is staged", "forward", "B0"),
    barrier("the next tile is staged while this one is still read", "forward", "B1"),
    mutant("every group takes the first group's B", "forward",
           r"(B \+ place\.batch \* B_batch) \+ place\.group \* B_group", r"\1", wrong="y final"),
    mutant("states are saved one tile late", "forward", r"if \(to_border == 0\) \{", "if (to_border == TILE) {",
           wrong="A C delta delta_bias z"),
    mutant("padding decays the state", "forward", r"pairs\.at\[v\]\.x = counts\[v\] \? step : real\(0\);",
           "pairs.at[v].x = step;", wrong="y", world="padded"),
    mutant("a new sequence multiplies the old state by 0", "forward",
           r"h\[j\]\[s\] = given \? (initial\[.*\]) : real\(0\);", r"h[j][s] = given ? \1 : h[j][s] * real(0);",
           wrong="y", world="infinite"),
    mutant("softplus is left out", "forward", r"softplus_on \? softplus\(raw\) : raw", "raw", wrong="y final"),
    # ---- between the segments
    mutant("each segment begins with its own total", "link",
           r"total\[at \+ segment \* row\] = carried;\s*(carried = .*;)", r"\1 total[at + segment * row] = carried;",
           wrong="y final A C delta delta_bias z"),
    mutant("a product of 0 does not stop an infinite state", "link", r"p\[i\] == real\(0\) \|\| ", "",
           wrong="y final", world="infinite"),
    mutant("a block links one segment too few", "forward", r"product && k < place\.segment;",
           "product && k < place.segment - 1;", wrong="y final A C delta delta_bias z"),
    mutant("a product of 0 does not stop an infinite state, linked by the forward", "forward",
           r"pass == real\(0\) \|\| ", "", wrong="y final", world="infinite"),
    mutant("the walk ends before the factors are 0", "totals", r": -150;", ": -1;",
           wrong="y final A C delta delta_bias z"),
    mutant("a step is multiplied by its own decay", "totals", r"elapsed\[j\] \+= ADJOINT \? real\(0\) : (pair.*);",
           r"elapsed[j] += ADJOINT ? real(0) : real(2) * \1;", wrong="y final A C delta delta_bias z"),
    barrier("the tile of a walk is read before it is staged", "totals", "B0"),
    mutant("a sequence that starts inside a segment lets the old one through", "totals", r"cut \? real\(0\) : ", "",
           wrong="y final", world="joined"),
    # ---- the backward
    mutant("the slope of softplus is forgotten", "backward", r"(\* LN2\)) \* step\.y", r"\1", wrong="delta delta_bias"),
    mutant("the gate's slope lacks its second term", "backward",
           r"\* s \* \(real\(1\) \+ w \* \(real\(1\) - s\)\)", "* s", wrong="z"),
    mutant("dC is taken from the state before the step", "backward", r"dy\.at\[j\] \* now\[k\]\[j\]\[s\]",
           "dy.at[j] * left", wrong="C"),
    mutant("the skip's gradient is forgotten in du", "backward",
           r"\+ weight\.of\(v\) \* dy\[v\];", ";", wrong="u"),
    barrier("dB and dC are summed before all warps have written theirs", "backward", "B2"),
    warp_barrier("a warp's dB and dC are summed before all its threads have written theirs", "all threads of the warp"),
    warp_barrier("the next tile's dB and dC take the place of unread ones", "the parts are read"),
    barrier("the chunk is read before it is staged", "backward", "B1"),
    barrier("D and delta_bias are summed before all threads have given theirs", "backward", "B3"),
    mutant("what comes from behind a piece does not pass it", "link_pieces", r"p\[i\] \* carried \+ b\[i\]", "b[i]",
           wrong="u delta A B delta_bias initial_state"),
    mutant("what passes a piece decays twice", "link_pieces", r"p\[i\] \* carried", "p[i] * p[i] * carried",
           wrong="u delta A B delta_bias", world="uneven"),
    mutant("a piece that is not there has a part in dA", "backward", r"dA_part\[at\] = 0;", "dA_part[at] = 1;",
           wrong="A", world="uneven"),
    mutant("the first piece of a share is forgotten", "totals",
           r"(long long unit = ADJOINT \? pieces\.begin_of\(share\))", r"\1 + 1",
           wrong="u delta A B delta_bias initial_state", world="uneven"),
    mutant("what enters a piece is taken from the piece before it", "backward",
           r"(ending \|\| slots == 1 \? b : slot_row)", r"\1 - (slots > 1)",
           wrong="u delta A B delta_bias initial_state", world="uneven"),
    mutant("the last of the rows is not added", "sum", r"r < ROWS && row == 0; \+\+r",
           "r < ROWS - 1 && row == 0; ++r",
           wrong="A D delta_bias", world="many rows"),
]  # fmt: skip


def launcher_for(edit, checked):
    def launcher(file, name, constants):
        text = kernels.source(file) if edit is None else edit.text(file)
        key = text, name, constants
        if key not in TRIED:
            options = tuple(f"-D{item}" if value is None else f"-D{item}={value}" for item, value in constants)
            TRIED[key] = RawKernel(text, name, options, filename=file, strided=True, mode="native")
        kernel = TRIED[key]

        def launch(grid, block, args, device, shared_mem=0):
            if checked is not None:
                checked.extend(finding for finding in check(kernel, grid, block, args, shared_mem).findings)
            kernel(grid, block, args, shared_mem=shared_mem)

        return launch

    return launcher


def world_of(name):
    """(values, marks of selective.cuh or None, weights of the outputs in the loss, what is wanted by name)."""
    batch, steps = 5 if name == "many rows" else 2, STEPS[name]     # selective_sum has 4 rows of threads: 10 parts
    values = problem(batch=batch, length=steps, channels=8, states=6, groups=2, dtype=torch.float32)
    weights = torch.randn(batch, steps, 8), torch.randn(batch, 8, 6)
    marks = None
    if name == "joined":                                    # decays that still let something through after 32 steps
        values["A"] *= 0.01
    if name in ("padded", "infinite", "joined"):
        marks = torch.full((2, 2, steps), -2, dtype=torch.int32)
        marks[1] = -1                                       # start, finish
        marks[0, :, 0] = marks[1, :, -1] = torch.arange(2, dtype=torch.int32)
    exact = in_float64(values)
    if name == "padded":                                    # three steps that do not count
        marks[0, :, 10:13] = -3
        keep = [t for t in range(steps) if not 10 <= t < 13]
        short = exact | {moving: exact[moving][:, keep] for moving in MOVING}
        y, final = loop(short)
        wanted = torch.zeros(2, steps, 8, dtype=torch.float64)
        wanted[:, keep] = y
        return values, marks, weights, {"y": wanted, "final": final}
    if name in ("infinite", "joined"):                      # a second sequence begins inside the second segment
        marks[0, :, BEGIN] = -1
        if name == "infinite":
            values["u"][:, 3] = float("inf")
            exact = in_float64(values)
        behind = exact | {moving: exact[moving][:, BEGIN:] for moving in MOVING} | {"initial_state": None}
        y, final = loop(behind)
        return values, marks, weights, {"y": y, "final": final}
    y, final = loop(exact)
    return values, marks, weights, {"y": y, "final": final} | gradients(loop, exact, weights)


def results(world, monkeypatch, edit=None, checked=None, backward=True):
    """What comes out, by name, and what is wanted."""
    monkeypatch.setattr(selective_kernels, "launcher", launcher_for(edit, checked))
    if edit is not None and edit.file == "selective_link.cu":       # else the forward links so few segments itself
        monkeypatch.setattr(selective_kernels, "FEW_SEGMENTS", 1)
    torch.manual_seed(0)
    values, marks, weights, wanted = world_of(world)
    start, finish = (None, None) if marks is None else marks
    x = Inputs(*(values[name] for name in NAMES[:8]), True, start, finish)
    initial = values["initial_state"]
    batch, segment = initial.shape[0], (32, -(-STEPS[world] // 32))
    final, borders = torch.full_like(initial, float("nan")), torch.full((batch, segment[1], 8, 6), float("nan"))
    y = selective_kernels.forward(x, initial, final, segment=segment, borders=borders, variant=FORWARD)
    got = {"y": y, "final": final}
    if world in ("infinite", "joined"):
        got["y"] = y[:, BEGIN:]
    if world in ("plain", "many rows", "uneven") and backward:
        cut = selective_plans.cut_in_pieces(0, STEPS[world], 2 * batch, 32)
        if world == "uneven":                               # 3 shares for the tails of 4 pairs: some have one piece
            cut = Cut(0, STEPS[world], head=32, others=3, slots=3, finer=2, finer_slots=3)
        found = selective_kernels.backward(
            x, *weights, borders, initial, slots=batch, variant=BACKWARD, cuts=(cut,)
        )
        named = (
            found.du, found.ddelta, found.dA, found.dB, found.dC, found.dD, found.dz, found.d_bias, found.d_initial
        )  # fmt: skip
        got |= dict(zip(NAMES, named, strict=True))
    return got, {name: wanted[name] for name in got}


def wrong_of(got, wanted):
    """Names of what is not within 1e-4; NaN is not."""
    return {name for name in wanted if not error(got[name], wanted[name]) <= 1e-4}


@pytest.mark.parametrize("world", list(STEPS))
def test_nothing_is_wrong_without_an_edit(world, monkeypatch):
    assert wrong_of(*results(world, monkeypatch)) == set()


def test_nothing_is_found_without_an_edit(monkeypatch):
    findings = []
    results("plain", monkeypatch, checked=findings)
    assert findings == []


@pytest.mark.parametrize("edit", [edit for edit in MUTANTS if edit.wrong], ids=lambda edit: edit.name)
def test_a_wrong_number_is_caught_by_the_loop(edit, monkeypatch):
    got, wanted = results(edit.world, monkeypatch, edit)
    assert wrong_of(got, wanted) == edit.wrong & set(wanted)


@pytest.mark.parametrize("edit", [edit for edit in MUTANTS if edit.finding], ids=lambda edit: edit.name)
def test_a_missing_barrier_is_caught_by_the_checked_mode(edit, monkeypatch):
    findings = []
    results(edit.world, monkeypatch, edit, findings, backward=edit.file == "selective_backward.cu")
    assert {finding.kind for finding in findings} == {edit.finding}


# ---- one token


def token(monkeypatch, edit=None):
    """What is wrong of y and the slots after one token, where rows 1 and 2 are padding and row 3 begins anew."""
    monkeypatch.setattr(selective_kernels, "launcher", launcher_for(edit, None))
    values = problem(batch=4, length=1, channels=8, states=6, groups=2, dtype=torch.float32)
    pool = torch.full((4, 8, 6), float("nan"))
    pool[0], pool[2] = 7.0, values["initial_state"][0]
    indices, known = torch.tensor([2, -1, -2, 1]), torch.tensor([True, True, True, False])
    values["initial_state"][3] = 0
    want_y, want = (t.float() for t in loop(in_float64(values)))
    at = {name: values[name][:, 0] for name in ("u", "delta", "z")}
    y = torch.full((4, 8), float("nan"))
    selective_kernels.update(
        pool, at["u"], at["delta"], values["A"], values["B"], values["C"], values["D"], at["z"], values["delta_bias"],
        True, indices, y, known,
    )  # fmt: skip
    want_y[1:3] = 0
    wanted = {"y": want_y[:, 0], "slots": torch.stack([torch.full((8, 6), 7.0), want[3], want[0]])}
    return wrong_of({"y": y, "slots": pool[:3]}, wanted) | (set() if pool[3].isnan().all() else {"the unused slot"})


TOKENS = [
    mutant("only -1 is padding", "update", r"real_row = slot >= 0 ", "real_row = slot != -1 ", wrong="y slots"),
    mutant("what lies in a slot that begins anew is read", "update", r"= KNOWN && !known\[row\];", "= false;",
           wrong="y slots"),
    mutant("every group takes the first group's C", "update", r"= C \+ row \* C_row \+ group \* C_group",
           "= C + row * C_row", wrong="y"),
    mutant("the state is written before it has decayed", "update",
           r"h\[m\]\[p\]\.at\[i\] = to_state\(next\);", "", wrong="slots"),
]  # fmt: skip


def test_a_token_is_right_without_an_edit(monkeypatch):
    assert token(monkeypatch) == set()


@pytest.mark.parametrize("edit", TOKENS, ids=lambda edit: edit.name)
def test_a_wrong_token_is_caught_by_the_loop(edit, monkeypatch):
    assert token(monkeypatch, edit) == edit.wrong


# ---- wrappers


@pytest.fixture
def unplanned(monkeypatch):
    """No call is repeated from what other tests have shown."""
    monkeypatch.setattr(replay, "_plans", {})
    monkeypatch.setattr(selective, "_known", {})
    return monkeypatch


def wrong_gradients():
    values = problem(batch=2, length=9, channels=4, states=3, groups=2, dtype=torch.float32)
    generator = torch.Generator().manual_seed(4)
    weights = [torch.randn(size, generator=generator, dtype=torch.float64) for size in ((2, 9, 4), (2, 4, 3))]

    def scan(given):
        return selective.selective_scan(**given, delta_softplus=True, return_final_state=True)

    return wrong_of(gradients(scan, values, weights), gradients(loop, in_float64(values), weights))


def test_a_dropped_gradient_of_the_final_state_is_caught(unplanned):
    real = selective_kernels.backward
    assert wrong_gradients() == set()
    unplanned.setattr(replay, "_plans", {})
    unplanned.setattr(
        selective_kernels, "backward", lambda x, dy, d_final, *rest, **more: real(x, dy, None, *rest, **more)
    )
    assert wrong_gradients() == {"u", "delta", "A", "B", "delta_bias", "initial_state"}


def test_a_backward_that_begins_from_zeros_is_caught(unplanned):
    real = selective_kernels.backward

    def forgetful(x, dy, d_final, borders, initial, **more):
        return real(x, dy, d_final, torch.zeros_like(borders), torch.zeros_like(initial), **more)

    unplanned.setattr(selective_kernels, "backward", forgetful)
    assert wrong_gradients() == {"delta", "A", "C", "z", "delta_bias"}


def wrong_layouts():
    """Which of two layouts gives a wrong y, after both have been run often enough to be repeated."""
    values = problem(batch=2, length=9, channels=4, states=3, dtype=torch.float32)
    turned = values | {"u": values["u"].transpose(1, 2).contiguous().transpose(1, 2)}
    want = loop(in_float64(values))[0]
    ys = [selective.selective_scan(**given, delta_softplus=True) for _ in range(3) for given in (values, turned)]
    return {i % 2 for i, y in enumerate(ys) if not error(y, want) <= 1e-5}


def test_a_plan_that_forgets_about_strides_is_caught(unplanned):
    assert wrong_layouts() == set()
    unplanned.setattr(replay, "_plans", {})
    unplanned.setattr(replay, "kind_of", lambda tensors: tuple(t if t is None else (t.shape, t.dtype) for t in tensors))
    assert wrong_layouts() == {0}                           # the second call was watched, and it is of the other layout


def packed_against_alone():
    """Is each of two packed sequences, with padding between them, what it is alone?"""
    values = problem(batch=1, length=12, channels=4, states=3, dtype=torch.float32, without=("initial_state",))
    labels = torch.tensor([[0] * 5 + [-1] * 2 + [1] * 5])
    y, final = selective.selective_scan(**values, delta_softplus=True, return_final_state=True, seq_idx=labels)
    for begin, end in ((0, 5), (7, 12)):
        piece = values | {name: values[name][:, begin:end] for name in MOVING}
        alone, last = loop(in_float64(piece))
        if not error(y[:, begin:end], alone) <= 1e-5:
            return False
    return error(final, last) <= 1e-5 and not y[:, 5:7].any()


def test_marks_that_are_wrong_are_caught(unplanned):
    marks = selective._marks
    assert packed_against_alone()
    for name, edit in {
        "a sequence ends one step early": lambda start, finish, slots: (start, finish.roll(-1, 1), slots),
        "the second sequence goes on with the first": lambda start, finish, slots: (start.clamp(-3, -2), finish, slots),
        "padding counts": lambda start, finish, slots: (torch.where(start == -3, -2, start), finish, slots),
    }.items():
        unplanned.setattr(selective, "_marks", lambda *given, edit=edit: edit(*marks(*given)))
        assert not packed_against_alone(), name
