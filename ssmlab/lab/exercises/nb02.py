"""Exercises of notebook 02: carries between chunks, sums from the right, a tree without an identity."""

from dataclasses import dataclass
from math import log2

from ssmlab.lab.exercises import WrongAnswer, exercise


def _glue(first, second):
    return first + second


def _as_list(value, what):
    """`value` as a list, or an explanation of what came back instead."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise WrongAnswer(f"{what} must give back a list, one entry for each input; yours gave {value!r}.")
    return list(value)


# 2.A: what to put in front of each chunk ------------------------------------------------------------------------


@exercise("2.A")
def _carries(my_carries):
    """Totals are strings, so a carry that took too much, too little or in the wrong order can be read off."""
    for totals in (["ab", "cd", "ef", "gh"], ["abc"], []):
        got = _as_list(my_carries(list(totals), _glue, ""), "my_carries")
        want = ["".join(totals[:chunk]) for chunk in range(len(totals))]
        if got != want:
            raise WrongAnswer(f"Chunks with the totals {totals} need in front of them {want}, yours are {got}. "
                              + _slip_in_carries(got, want, totals))


def _slip_in_carries(got, want, totals):
    if not totals:
        return "No chunks need no carries: give back an empty list."
    if got == ["".join(totals[:chunk + 1]) for chunk in range(len(totals))]:
        return "That is the inclusive scan: each chunk got its own total too, and would count it twice."
    if got == ["", *totals[:-1]]:
        return "Each chunk got only the chunk next to it; all chunks before it must be in its carry."
    if got == ["".join(reversed(totals[:chunk])) for chunk in range(len(totals))]:
        return "The chunks are all there, in the wrong order: what came earlier goes first into `then`."
    if len(got) != len(want):
        return f"There are {len(totals)} chunks, so {len(totals)} carries; yours are {len(got)}."
    if got[0] != "":
        return "Nothing comes before the first chunk, and `nothing` is the element that says so."
    first_bad = next(chunk for chunk in range(len(want)) if got[chunk] != want[chunk])
    return f"The first one that is wrong belongs to chunk {first_bad}: what do the chunks before it add up to?"


# 2.B: sums from the right, out of a scan from the left ----------------------------------------------------------


@exercise("2.B")
def _suffixes(my_suffixes):
    """Letters again: three slips (no flip back, no flip at all, operands not turned) give three different texts."""
    for text in ("abcd", "x", ""):
        scans = []

        def scan(items, then, scans=scans):
            scans.append(1)
            return _loop(items, then)

        got = _as_list(my_suffixes(list(text), scan, _glue), "my_suffixes")
        want = [text[t:] for t in range(len(text))]
        if got != want:
            raise WrongAnswer(f"{list(text)}: what follows from each step on is {want}, yours is {got}. "
                              + _slip_in_suffixes(got, text))
        if text == "abcd" and len(scans) != 1:
            raise WrongAnswer(f"The values are right, but `scan` was called {len(scans)} times. The budget is one "
                              "call: then a fast scan from the left makes this fast as well.")


def _slip_in_suffixes(got, text):
    if got == [text[t:][::-1] for t in range(len(text))]:
        return ("Right letters, wrong order inside: in the flipped list the later step comes first, so `then` receives "
                "its operands the wrong way round. Turn them back.")
    if got == [text[t:] for t in range(len(text))][::-1]:
        return "Only the last flip is missing: the list still runs from the end."
    if got == [text[t:][::-1] for t in range(len(text))][::-1]:
        return "You scanned the flipped list, but did not flip the result back (and look at the order of the letters)."
    if got == [text[:t + 1] for t in range(len(text))]:
        return "These are the prefixes: the scan still starts at the left end."
    return "Try it with two letters on paper: flip, scan, flip."


def _loop(items, then):
    """An inclusive scan from the left."""
    items = list(items)
    so_far = items[:1]
    for item in items[1:]:
        so_far.append(then(so_far[-1], item))
    return so_far


# 2.C: an inclusive tree that needs no identity ------------------------------------------------------------------


@dataclass
class _Piece:
    """A text that knows how many combines had to wait for each other to make it."""
    text: str
    depth: int = 0


@dataclass
class _Meter:
    """Gives out `then`, counts its calls."""
    calls: int = 0

    def then(self, first, second):
        for operand in (first, second):
            if not isinstance(operand, _Piece):
                raise WrongAnswer(f"`then` was given {operand!r}: it combines items and results of `then`, nothing "
                                  "else. There is no identity here, and none is needed.")
        self.calls += 1
        return _Piece(first.text + second.text, 1 + max(first.depth, second.depth))


@exercise("2.C")
def _tree(my_tree):
    """Values first, then the depth, then the work; each slip (loop, doubling, swap) breaks exactly one of them."""
    for n in (1, 2, 4, 8, 16, 64):
        text = "".join(chr(ord("a") + t % 26) for t in range(n))
        meter = _Meter()
        got = _as_list(my_tree([_Piece(letter) for letter in text], meter.then), "my_tree")
        texts = [piece.text if isinstance(piece, _Piece) else piece for piece in got]
        _check_texts(texts, text)
        rounds = round(log2(n))
        depth, depth_budget = max(piece.depth for piece in got), max(2 * rounds - 1, 0)
        if depth > depth_budget:
            words = " That is the loop: let pairs be combined at the same time." if depth == n - 1 else ""
            raise WrongAnswer(f"Right values, but for {n} items some result waited for {depth} combines in a row; "
                              f"the budget is 2 log2 n - 1 = {depth_budget}.{words}")
        budget = 2 * n - 2 - rounds
        if meter.calls > budget:
            words = " That is Hillis-Steele: few rounds, much work." if meter.calls == n * rounds - (n - 1) else ""
            raise WrongAnswer(f"Right values, few rounds, but {meter.calls} combines for {n} items; the budget is "
                              f"2 n - 2 - log2 n = {budget}.{words}")


def _check_texts(texts, text):
    want = [text[:t + 1] for t in range(len(text))]
    if texts == want:
        return
    story = f"{len(text)} items {list(text[:8])}{'…' if len(text) > 8 else ''}: "
    if len(texts) != len(want):
        raise WrongAnswer(story + f"one result for each is needed, yours are {len(texts)}.")
    bad = next(t for t in range(len(want)) if texts[t] != want[t])
    story += f"step {bad} must hold {want[bad]!r}, yours holds {texts[bad]!r}. "
    if sorted(str(texts[bad])) == sorted(want[bad]):
        raise WrongAnswer(story + "All letters, wrong order: the earlier part is the first argument of `then`.")
    if texts[bad] == text[:bad]:
        raise WrongAnswer(story + "That is the exclusive scan; here each step includes itself.")
    raise WrongAnswer(story + "The steps before it are right, so look at how this one gets its left part.")
