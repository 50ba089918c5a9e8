"""Answers to the exercises of notebook 02, and wrong ones whose explanation must contain the words beside them."""


def carries(totals, then, nothing):
    before = [nothing]
    for total in totals:
        before.append(then(before[-1], total))
    return before[:len(totals)]


def suffixes(items, scan, then):
    return scan(items[::-1], lambda later, earlier: then(earlier, later))[::-1]


def tree(items, then):
    if len(items) == 1:
        return items
    ends = tree([then(items[t], items[t + 1]) for t in range(0, len(items), 2)], then)
    return items[:1] + [ends[t // 2] if t % 2 else then(ends[t // 2 - 1], items[t]) for t in range(1, len(items))]


def inclusive(totals, then, nothing):
    return carries([*totals, nothing], then, nothing)[1:]


def loop(items, then):
    so_far = items[:1]
    for item in items[1:]:
        so_far.append(then(so_far[-1], item))
    return so_far


def doubling(items, then):
    reach = 1
    while reach < len(items):
        items = items[:reach] + [then(*both) for both in zip(items, items[reach:], strict=False)]
        reach *= 2
    return items


def tree_with_nothing(items, then):
    return [then("", item) for item in items]


SOLUTIONS = {"2.A": carries, "2.B": suffixes, "2.C": tree}
WRONG = {
    "2.A": [
        (inclusive, "own total too"),
        (lambda totals, then, nothing: ["", *totals[:-1]] if totals else [], "only the chunk next to it"),
        (lambda totals, then, nothing: carries(totals, lambda p, q: then(q, p), nothing), "wrong order"),
        (lambda totals, then, nothing: carries(totals, then, nothing)[1:], "so 4 carries"),
        (lambda totals, then, nothing: carries(totals, then, "?"), "Nothing comes before the first chunk"),
        (lambda totals, then, nothing: [nothing] * len(totals), "belongs to chunk 1"),
        (lambda totals, then, nothing: [nothing, *carries(totals, then, nothing)[1:]], "No chunks need no carries"),
        (lambda totals, then, nothing: "".join(totals), "must give back a list"),
    ],
    "2.B": [
        (lambda items, scan, then: scan(items, then), "These are the prefixes"),
        (lambda items, scan, then: scan(items[::-1], then)[::-1], "the wrong way round"),
        (lambda items, scan, then: scan(items[::-1], then), "did not flip the result back"),
        (lambda items, scan, then: suffixes(items, scan, then)[::-1], "Only the last flip is missing"),
        (lambda items, scan, then: [scan(items[t:], then)[-1] for t in range(len(items))], "called 4 times"),
        (lambda items, scan, then: items, "on paper"),
        (lambda items, scan, then: None, "must give back a list"),
    ],
    "2.C": [
        (loop, "That is the loop"),
        (doubling, "That is Hillis-Steele"),
        (lambda items, then: tree(items, lambda p, q: then(q, p)), "wrong order"),
        (lambda items, then: items[:1] + tree(items, then)[:-1], "the exclusive scan"),
        (lambda items, then: tree(items, then)[:-1], "one result for each"),
        (tree_with_nothing, "none is needed"),
        (lambda items, then: items, "look at how this one gets its left part"),
        (lambda items, then: "".join(item.text for item in items), "must give back a list"),
    ],
}
