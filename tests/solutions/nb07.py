"""Answers to the exercises of notebook 07, and wrong ones whose explanation must contain the words beside them."""

import torch

from ssmlab import ledger


def gradients(a, b, slope, initial, d_final, *, behind=False, own=False, shifted=False, dropped=False, turned=True):
    """7.A; each keyword makes one of the slips."""
    before = []
    h = initial
    for decay, more in zip(a, b, strict=True):
        before.append(h)
        h = decay * h + more
        if behind:
            before[-1] = h
    g, da, db = 0 if dropped else d_final, [], []
    for t in reversed(range(len(a))):
        g = slope[t] + g
        da.append(g * before[t])
        db.append(g)
        g = g if own and t == 0 else a[max(t - 1, 0) if shifted else t] * g
    return (da[::-1], db[::-1], g) if turned else (da, db, g)


def slips(**which):
    return lambda *problem: gradients(*problem, **which)


def from_zero(a, b, slope, initial, d_final):
    da, db, d_initial = gradients(a, b, slope, 0, d_final)
    return da, db, d_initial


def switch(shape, layers, room, ways, near, *, per_layer=False, again=True, all_layers=False, strict=False, last=False):
    """7.B; each keyword makes one of the slips."""
    fitting = []
    for save, chunk in ways:
        size = (1 if per_layer else layers) * ledger.saved_states(*shape, save=save, chunk=chunk)
        if again and save != "all" and chunk > near:
            size += (layers if all_layers else 1) * ledger.saved_states(*shape, chunk=near)
        if size < room or (size == room and not strict):
            fitting.append((save, chunk))
    return None if not fitting else fitting[-1 if last else 0]


def switches(**which):
    return lambda *problem: switch(*problem, **which)


def discretisation(delta, A, Bu, da, db):
    a = torch.exp(delta * A)
    return da * a * A + db * a * Bu, da * a * delta + db * Bu * (delta * a * A - (a - 1)) / A**2


def only_b_on_both(delta, A, Bu, da, db):
    both = discretisation(delta, A, Bu, da, db)
    alone = discretisation(delta, A, Bu, torch.zeros_like(da), db)
    return (alone if da.abs().sum() > 0 and db.abs().sum() > 0 else both)


WAYS_OF_THE_CHECK = [("all", 32), *((save, chunk) for chunk in (32, 256) for save in ("boundaries", "boundaries-bf16"))]

SOLUTIONS = {"7.A": gradients, "7.B": switch, "7.C": discretisation}
WRONG = {
    "7.A": [
        (slips(behind=True), "the state *behind* the step"),
        (slips(shifted=True), "the decay that step t + 1 had"),
        (slips(dropped=True), "has not arrived"),
        (slips(own=True), "a[0] times g[0]"),
        (slips(turned=False), "in the order in which they were found"),
        (from_zero, "in front of step 0 that is `initial`"),
        (lambda *problem: gradients(*problem)[:2], "two lists and a number"),
        (lambda a, b, slope, initial, d_final: ([], [], 0), "both lists have 3 entries"),
        (lambda *problem: gradients(*problem) if problem[0] else ([], [], 0), "goes straight through"),
        (lambda a, b, slope, *rest: (gradients(a, b, slope, *rest)[0], list(slope), 0), "first wrong entry of db"),
    ],
    "7.B": [
        (switches(per_layer=True), "all of them keep their states"),
        (switches(again=False), "lie beside it"),
        (switches(all_layers=True), "count them once"),
        (switches(strict=True), "still fits"),
        (switches(last=True), "stands before it"),
        (lambda *problem: "all", "Return one of `ways`"),
        (lambda *problem: switch(*problem[:3], [*WAYS_OF_THE_CHECK], problem[4]), "the first of the list"),
    ],
    "7.C": [
        (lambda delta, A, Bu, da, db: (da + db, da), "Only a was asked for"),
        (lambda delta, A, Bu, da, db: (discretisation(delta, A, Bu, da, 0 * db)[0] + db * Bu,
                                       discretisation(delta, A, Bu, da, db)[1]), "stands in the exponent"),
        (lambda delta, A, Bu, da, db: (discretisation(delta, A, Bu, da, 0 * db)[0],
                                       discretisation(delta, A, Bu, da, db)[1]), "the A cancels"),
        (lambda delta, A, Bu, da, db: (discretisation(delta, A, Bu, da, db)[0],
                                       torch.exp(delta * A) * delta * (da + db * Bu / A)), "below the line"),
        (lambda delta, A, Bu, da, db: (discretisation(delta, A, Bu, da, db)[0],
                                       discretisation(delta, A, Bu, da, 0 * db)[1]), "The quotient rule"),
        (only_b_on_both, "must be added"),
        (lambda delta, A, Bu, da, db: discretisation(delta, A, Bu, da, db)[0], "must return (ddelta, dA)"),
        (lambda delta, A, Bu, da, db: (0.0, 0.0), "the shape of delta"),
    ],
}
