"""Exercises of notebook 07: a backward by hand, what fits into a memory, and another discretisation's gradients."""

from fractions import Fraction

from ssmlab import ledger
from ssmlab.lab.exercises import WrongAnswer, exercise

# 7.A: there and back --------------------------------------------------------------------------------------------


@exercise("7.A")
def _gradients(my_gradients):
    """Small integers first, which a reader can follow; then fractions, one step, and none."""
    halves = [Fraction(1, 2)] * 3
    for problem in (
        (halves, [4, 2, 8], [1, 1, 1], 0, 0),
        ([Fraction(1, 2), 3, 2], [1, 1, 1], [0, 0, 0], 6, 1),
        ([2, Fraction(-1, 3), Fraction(1, 5), 0, 2], [1, -2, 3, 5, 7], [2, 0, -1, 4, 3], Fraction(2, 3), 5),
        ([3], [1], [2], 5, 7),
        ([], [], [], 4, 9),
    ):
        _compare_gradients(my_gradients(*(list(part) if isinstance(part, list) else part for part in problem)), problem)


def _compare_gradients(got, problem):
    if not isinstance(got, tuple | list) or len(got) != 3 or not all(isinstance(part, list) for part in got[:2]):
        raise WrongAnswer("my_gradients must return two lists and a number (da, db, d_initial); yours gave "
                          f"{got!r:.80}.")
    want = _right_gradients(*problem)
    if list(got) == list(want):
        return
    a, b, slope, initial, d_final = problem
    told = "\n".join([
        f"a {_told(a)}, b {_told(b)}, slope {_told(slope)}, initial {initial}, d_final {d_final}:",
        f"  right: da {_told(want[0])}, db {_told(want[1])}, d_initial {want[2]}",
        f"  yours: da {_told(got[0])}, db {_told(got[1])}, d_initial {got[2]}",
    ])  # fmt: skip
    raise WrongAnswer(f"{told}\n{_slip_in_gradients(got, want, problem)}")


def _told(values):
    return "[" + ", ".join(map(str, values)) + "]"


def _right_gradients(a, b, slope, initial, d_final, *, state=-1, decay=0, dropped=False):
    """da, db, d_initial; or those of a known slip: da with h[t + 1 + state], g through a[t - decay], no d_final."""
    h = [initial]
    for more, by in zip(b, a, strict=True):
        h.append(by * h[-1] + more)
    arriving, da, db = 0 if dropped else d_final, [], []
    for t in reversed(range(len(a))):
        g = slope[t] + arriving
        da.append(g * h[t + 1 + state])
        db.append(g)
        arriving = a[max(t - decay, 0)] * g
    return da[::-1], db[::-1], arriving


def _slip_in_gradients(got, want, problem):
    a = problem[0]
    if not a:
        return "Without a step the final state is the initial one, and its gradient goes straight through."
    if [len(part) for part in got[:2]] != [len(a)] * 2:
        return f"There are {len(a)} steps, so both lists have {len(a)} entries."
    if list(got) == list(_right_gradients(*problem, dropped=True)):
        return "The gradient of the final state has not arrived: it enters behind the last step."
    if got[0] == _right_gradients(*problem, state=0)[0] and got[1] == want[1]:
        return "db is right; da took the state *behind* the step. A step multiplies a by the state in front of it."
    if got[1] != want[1] and got[1] == _right_gradients(*problem, decay=1)[1]:
        return "What comes back from step t + 1 comes back through a[t + 1], the decay that step t + 1 had."
    if got[1] == want[1][::-1] and len(a) > 1:
        return "The right numbers in the order in which they were found: the lists start with step 0."
    if got[1] == want[1] and got[0] == want[0]:
        return "Both lists are right. In front of the first step arrives a[0] times g[0]."
    if got[1] == want[1]:
        return "db is right, and da is db times the state in front of the step; in front of step 0 that is `initial`."
    last = max((t for t in range(len(a)) if got[1][t] != want[1][t]), default=len(a) - 1)
    return f"From the end, the first wrong entry of db is that of step {last}."


# 7.B: the switch ------------------------------------------------------------------------------------------------

_SHAPE = (2, 1000, 64, 16)
_WAYS = [("all", 32), ("boundaries", 32), ("boundaries-bf16", 32), ("boundaries", 256), ("boundaries-bf16", 256)]
_NEAR = 32


def _needs(layers, save, chunk, *, again=True, near=_NEAR):
    """[B] at the highest point."""
    size = layers * ledger.saved_states(*_SHAPE, save=save, chunk=chunk)
    if again and save != "all" and chunk > near:
        size += ledger.saved_states(*_SHAPE, chunk=near)
    return size


def _first_that_fits(layers, room, needs=_needs, fits=lambda size, room: size <= room):
    return next((way for way in _WAYS if fits(needs(layers, *way), room)), None)


@exercise("7.B")
def _switch(my_switch):
    """For each way just enough room, and a byte less."""
    for layers in (1, 24):
        for way in _WAYS:
            for less in (0, 1):
                room = _needs(layers, *way) - less
                got = my_switch(_SHAPE, layers, room, list(_WAYS), _NEAR)
                want = _first_that_fits(layers, room)
                if got != want:
                    raise WrongAnswer(f"{layers} layer{'s' * (layers > 1)} of shape {_SHAPE}, {room:,} bytes, borders "
                                      f"wanted every {_NEAR} steps: {want} is right, yours is {got}. "
                                      + _slip_in_switch(got, want, layers, room))
    got = my_switch(_SHAPE, 1, 10**12, _WAYS[:1:-1], _NEAR)
    if got != _WAYS[-1]:
        raise WrongAnswer(f"With room for everything the best liked way is the first of the list, here {_WAYS[-1]}; "
                          f"yours is {got}.")


def _slip_in_switch(got, want, layers, room):
    if got is not None and got not in _WAYS:
        return "Return one of `ways` as it is, a pair (save, chunk), or None."
    if got == _first_that_fits(1, room) and layers > 1:
        return "That fits for one layer; all of them keep their states at the same time."
    if got == _first_that_fits(layers, room, lambda layers, *way: _needs(layers, *way, again=False)):
        return ("What is kept would fit, but in the backward of a layer float32 states every "
                f"{_NEAR} steps are made from it, and lie beside it.")
    if got == _first_that_fits(layers, room, fits=lambda size, room: size < room):
        return "What needs exactly `room` bytes still fits."
    every_layer = _first_that_fits(layers, room, lambda layers, *way: layers * _needs(1, *way))
    if got == every_layer:
        return "The states that are made again live in one layer at a time: count them once."
    if got is None:
        return f"{want} needs {_needs(layers, *want):,} bytes."
    if _needs(layers, *got) <= room:
        return f"Yours fits as well, but {want} stands before it in the list."
    return f"Yours needs {_needs(layers, *got):,} bytes."


# 7.C: another discretisation ------------------------------------------------------------------------------------


@exercise("7.C")
def _discretisation(my_discretisation):
    """Against autograd, each path alone first."""
    import torch

    generator = torch.Generator().manual_seed(7)
    delta = torch.rand(6, generator=generator, dtype=torch.float64) + 0.1
    A = -torch.rand(6, generator=generator, dtype=torch.float64) - 0.2
    Bu, da, db = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    nothing = torch.zeros_like(da)
    for through_a, through_b, path in ((da, nothing, "a"), (nothing, db, "b"), (da, db, "a and b together")):
        leaves = [delta.clone().requires_grad_(), A.clone().requires_grad_()]
        a = torch.exp(leaves[0] * leaves[1])
        want = torch.autograd.grad((a * through_a + (a - 1) / leaves[1] * Bu * through_b).sum(), leaves)
        got = my_discretisation(delta.clone(), A.clone(), Bu.clone(), through_a.clone(), through_b.clone())
        if not isinstance(got, tuple | list) or len(got) != 2:
            raise WrongAnswer(f"my_discretisation must return (ddelta, dA); yours gave {got!r:.80}.")
        for name, mine, right in zip(("ddelta", "dA"), got, want, strict=True):
            if tuple(getattr(mine, "shape", ())) != (6,):
                raise WrongAnswer(f"{name} must have the shape of delta, (6,); yours is {mine!r:.80}.")
            off = (mine - right).abs()
            if not bool((off <= 1e-12).all()):
                where = int(off.argmax())
                told = f"delta = {delta[where]:.4f}, A = {A[where]:.4f}, Bu = {Bu[where]:.4f}, "
                told += f"da = {through_a[where]:.4f}, db = {through_b[where]:.4f}"
                raise WrongAnswer(
                    f"{told}: {name} is {right[where]:.6f}, yours is {mine[where]:.6f}. "
                    + _slip_in_discretisation(name, path, mine, (delta, A, Bu, through_a, through_b))
                )


def _slip_in_discretisation(name, path, mine, given):
    import torch

    delta, A, Bu, da, db = given
    a = torch.exp(delta * A)

    def is_that(other):
        return bool((mine - other).abs().max() <= 1e-12)

    if path == "a":
        return f"Only a was asked for, db is 0: the derivative of a = exp(delta A) by {name[1:]} is a times the other."
    if path == "b" and name == "ddelta":
        if is_that(db * Bu):
            return "That is the derivative of delta B u. Here delta stands in the exponent."
        return "Only b was asked for, da is 0. The derivative of (exp(delta A) - 1) / A by delta: the A cancels."
    if path == "b" and is_that(db * Bu * delta * a / A):
        return "That takes the A in the exponent. There is one below the line as well."
    if path == "b":
        return "Only b was asked for, da is 0. The quotient rule: (delta a A - (a - 1)) / A^2, times B u."
    return "Each path alone is right; what comes on both must be added."
