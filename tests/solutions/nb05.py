"""Answers to the exercises of notebook 05, and wrong ones whose explanation must contain the words beside them."""

from ssmlab import kernels

V2 = kernels.path("chunks_v2_chain.cu").read_text(encoding="utf-8")
V4 = kernels.path("chunks_v4_handover.cu").read_text(encoding="utf-8")
V5 = kernels.path("chunks_v5_lookback.cu").read_text(encoding="utf-8")


def edited(text, *edits):
    """The text with each (old, new) applied; an edit that does not find exactly one place is a mistake in this file."""
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


# 5.A
PARAMETER = ("float* before, int rows, int chunks) {", "float* before, int rows, int chunks, float* last) {")
APPLY = "        state = total[at].x * state + total[at].y;\n    }\n"
last = edited(V2, PARAMETER, (APPLY, APPLY + "    last[row] = state;\n"))
IN_LOOP = APPLY.replace("    }\n", "        last[row] = state;\n    }\n")
TOO_EARLY = IN_LOOP.replace("last[row] = state;", "last[row] = before[at];")
GUARD = "    if (row >= rows) {\n        return;\n    }\n"

# 5.B
BOARD = ("int* ticket, float* after, volatile int* ready", "int* ticket, unsigned long long* word")
WAIT = V4[V4.index("            while (ready[") : V4.index("        }\n        after[here]")]
LOOK = """            unsigned long long seen;
            do {
                seen = atomicAdd(&word[here - 1], 0ull);
            } while (seen >> 32 == 0);
            before = __uint_as_float((unsigned)seen);
"""
GIVE = """        after[here] = mine.x * before + mine.y;             // value
        __threadfence();                                    // fence: the value is visible before the flag
        ready[here] = 1;                                    // flag
"""
POST = "        atomicExch(&word[here], 1ull << 32 | __float_as_uint(mine.x * before + mine.y));\n"
word = edited(V4, BOARD, (WAIT, LOOK), (GIVE, POST))

# 5.C
START = "    int found = 0;\n"
BODY = V5[V5.index(START) : V5.index("    float state = k >= 0 ?")]
LANES = """    const int lane = threadIdx.x % 32;
    int nearest = chunk - 1;                                // what lane 0 looks at
    unsigned states = 0;                                    // the lanes that have found one
    while (true) {
        int found = STATE;                                  // in front of the row: the start
        if (nearest - lane >= 0) {
            do {
                found = flag[first + nearest - lane];
            } while (found == 0);
        }
        states = __ballot_sync(0xffffffffu, found == STATE);
        if (states != 0) {
            break;
        }
        nearest -= 32;
    }
    __threadfence();                                        // the flags are read before the values,
    __syncwarp();                                           // by whichever lane
    int k = nearest - (__ffs(states) - 1);
"""
OWNER = "    if (threadIdx.x == CHUNK - 1) {                         // the thread that holds the chunk's total\n"
POSTS = "        total[here] = mine;\n        post(flag + here, TOTAL);\n"
ENDS = """        after[here] = mine.x * before + mine.y;
        post(flag + here, STATE);
        carry = before;
"""


def only_the_owner(text):
    return "        if (threadIdx.x == CHUNK - 1) {\n" + text.replace("        ", "            ") + "        }\n"


warp = edited(V5, (BODY, LANES), (OWNER, "    if (threadIdx.x >= CHUNK - 32) {\n"), (POSTS, only_the_owner(POSTS)),
              (ENDS, only_the_owner(ENDS)))

SOLUTIONS = {"5.A": last, "5.B": word, "5.C": warp}
WRONG = {
    "5.A": [
        (V2 + "\n// the end?\n", "must be `float"),
        (edited(V2, PARAMETER), "Every thread has a row"),
        (edited(V2, PARAMETER, (APPLY, IN_LOOP)), "Is your line inside the loop?"),
        (edited(V2, PARAMETER, (APPLY, TOO_EARLY)), "own total has not been"),
        (edited(last, ("last[row] = state;", "last[row] = total[row * chunks + chunks - 1].y;")), "last local element"),
        (edited(last, ("last[row] = state;", "last[row] = total[row * chunks].x;")), "when the loop is over"),
        (edited(last, ("last[row] = state;", "last[0] = state;")), "global-race"),
        (edited(last, (GUARD, "")), "out-of-bounds"),
        (edited(last, ("before[at] = state;  ", "before[at] = 0;  ")), "were right and are no longer"),
        (edited(last, ("chunks_v2_carry(", "my_carry(")), "must be `float"),
    ],
    "5.B": [
        (V4 + "\n// no fence?\n", "must be `unsigned"),
        (edited(word, (POST, "        __threadfence();\n" + POST)), "still a fence"),
        (edited(word, ("1ull << 32 | ", ""), ("seen >> 32 == 0", "seen == 0")), "does your word differ from 0"),
        (edited(word, ("atomicExch(&word[here], 1ull", "word[here] = (1ull")), "global-race"),
        (edited(word, ("atomicAdd(&word[here - 1], 0ull)", "word[here - 1]")), "by an atomic"),
        (edited(word, ("atomicExch(&word[here],", "atomicExch(&word[here + 1],")), "does the next one look"),
        (edited(word, ("mine.x * before + mine.y));", "mine.y));")), "last local element"),
        (edited(word, ("number = atomicAdd(ticket, 1);", "number = blockIdx.x;")), "does the next one look at it"),
        (edited(word, ("chunks_v4(", "mine4(")), "must be `unsigned"),
    ],
    "5.C": [
        (V5 + "\n// a warp?\n", "would do"),
        (edited(warp, ("(__ffs(states) - 1)", "__ffs(states)")), "the flag stands for"),
        (edited(warp, ("for (++k; k < chunk; ++k)", "for (k += 2; k < chunk; ++k)")), "the oldest first"),
        (edited(warp, ("nearest -= 32;", "nearest -= 8;")), "would do"),
        (edited(warp, ("flag[first + nearest - lane]", "flag[nearest - lane]")), "global-race"),
        (edited(warp, ("    __syncwarp(); ", "    //")), "A ballot orders no memory"),
        (edited(V5, (OWNER, "    if (threadIdx.x >= CHUNK - 32) {\n")), "race"),
        (edited(warp, ("chunks_v5(", "mine5(")), "Keep its name"),
    ],
}
