"""Answers to the exercises of notebook 04, and wrong ones whose explanation must contain the words beside them."""

import re

from ssmlab import kernels

V2 = kernels.path("block_scan_v2_double_buffer.cu").read_text(encoding="utf-8")
V4 = kernels.path("block_scan_v4_tree.cu").read_text(encoding="utf-8")
V5 = kernels.path("block_scan_v5_tree_padded.cu").read_text(encoding="utf-8")


def edited(text, *edits):
    """The text with each (old, new) applied; an edit that finds nothing is a mistake in this file."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


STORE = """    if (t < length) {
        h[at] = mine.y;
    }
"""
LOAD = "t < length ? make_float2(a[at], b[at]) : identity();"
ENDS = "    if (t == 0 && length > 0) {\n        h[at] = 0.0f;\n    }\n"

exclusive = edited(V2, (STORE, ENDS + "    if (t + 1 < length) {\n        h[at + 1] = mine.y;\n    }\n"))
exclusive_by_loading = edited(V2, (LOAD, "t > 0 && t < length ? make_float2(a[at - 1], b[at - 1]) : identity();"))
STAY = "    __syncthreads();                                        // B1: all are written before anyone looks left\n"
LOOK = f"""    span[now][t] = mine;
{STAY}    if (t < length) {{
        h[at] = t > 0 ? span[now][t - 1].y : 0.0f;
    }}
"""
exclusive_by_looking = edited(V2, (STORE, LOOK))

two_steps = edited(
    V2,
    ("span[2][TILE]", "span[2][TILE / 2]"),
    ("length + t;", "length + 2 * t;"),
    ("    float2 mine = " + LOAD, """    const float2 one = 2 * t < length ? make_float2(a[at], b[at]) : identity();
    const float2 two = 2 * t + 1 < length ? make_float2(a[at + 1], b[at + 1]) : identity();
    float2 mine = then(one, two);"""),
    ("reach < TILE; reach", "reach < TILE / 2; reach"),
    (STORE, """    span[now][t] = mine;
    __syncthreads();                                        // B1: all are written before anyone looks left
    const float2 before = t > 0 ? span[now][t - 1] : identity();
    if (2 * t < length) {
        h[at] = then(before, one).y;
    }
    if (2 * t + 1 < length) {
        h[at + 1] = mine.y;
    }
"""),
)

SLOT = "__device__ __forceinline__ int slot(int node) {\n    return %s;\n}\n\nextern"
INDEX = re.compile(r"\b(decay|state)\[(step|left|right|TILE - 1)\]")


def stored(place):
    """The tree of v4, with node n of both arrays in `place`."""
    return INDEX.sub(r"\1[slot(\2)]", V4.replace("extern", SLOT % place, 1))


swizzled = stored("node ^ (node / 32)")
# v2 under the name of v4: right, without a conflict, and no tree. Half as many threads: two steps each.
NO_TREE = two_steps.replace("block_scan_v2", "block_scan_v4")

SOLUTIONS = {"4.A": exclusive, "4.B": two_steps, "4.C": swizzled}
WRONG = {
    "4.A": [
        (V2 + "\n// exclusive now?\n", "still the inclusive scan"),
        (edited(exclusive, (ENDS, "")), "Nothing comes before the first step"),
        (edited(exclusive, ("t + 1 < length", "t < length")), "out-of-bounds"),
        (edited(exclusive_by_looking, (STAY, "")), "race"),
        (edited(exclusive_by_loading, ("a[at - 1]", "a[at]")), "left a where it was"),
        (edited(V2, ("h[at] = mine.y;", "h[at] = (mine.y - b[at]) / a[at];")), "no division brings that back"),
        (edited(V2, ("h[at] = mine.y;", "h[at] = t > 0 ? mine.y - b[at] : 0.0f;")), "inclusive result of step 0"),
        (edited(exclusive_by_looking, ("span[now][t - 1]", "span[now][t - 2]")), "out-of-bounds"),
        (edited(exclusive_by_looking, ("0.0f", "1.0f")), "so its state is 0"),
        (edited(exclusive_by_looking, (STAY, STAY + STAY)), "the budget is one more"),
        (edited(exclusive, ("block_scan_v2(", "my_scan(")), "Keep its name"),
    ],
    "4.B": [
        (V2 + "\n// two steps a thread?\n", "only TILE / 2 threads now"),
        (edited(two_steps, ("then(before, one).y", "one.y")), "belongs to the left neighbour"),
        (edited(two_steps, ("then(before, one).y", "mine.y")), "one step later"),
        (edited(two_steps, ("then(one, two)", "then(two, one)")), "the first argument of `then`"),
        (edited(two_steps, (STAY, "")), "race"),
        (edited(two_steps, ("    if (2 * t + 1 < length) {\n", "    if (2 * t < length) {\n")), "out-of-bounds"),
        (edited(two_steps, ("reach < TILE / 2; reach", "reach < TILE; reach")), "The budget is log2(TILE) = 7"),
        (edited(two_steps, ("span[2][TILE / 2]", "span[2][TILE]")), "The budget is 1024"),
    ],
    "4.C": [
        (V4 + "\n// no conflicts?\n", "has 2170 bank conflicts"),
        (V5.replace("block_scan_v5", "block_scan_v4"), "Nothing needs to be empty"),
        (stored("node ^ 1"), "wavefronts, where"),
        (stored("node ^ (node / 32 % 2)"), "wavefronts, where"),
        (stored("node % 32 + node / 64 * 32"), "race"),
        (edited(swizzled, ("decay[slot(left)] = before.x;", "decay[left] = before.x;")), "race"),
        (edited(swizzled, ("state[slot(step)] + leaf", "state[step] + leaf")), "go through your function"),
        (NO_TREE, "no longer the tree"),
    ],
}
