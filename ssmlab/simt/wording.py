"""The sentences of findings: what happened, and what to do. One function for each kind; raw numbers in, English out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Index = tuple[int, int, int]

OUT_OF_ROOM = 99  # the variant of "out-of-bounds" that says that a shared array has no room; arena.h


@dataclass(frozen=True)
class Facts:
    """A raw finding, its numbers resolved. line, other: "line 12" or "affine.cuh:12"; thread, block: "(1, 0, 0)"."""

    variant: int
    severity: str
    line: str
    other: str
    access: str
    other_access: str
    thread: str
    other_thread: str
    block: str
    other_block: str
    space: str
    name: str
    offset: int
    size: int
    extra: tuple[int, int, int, int]
    text: str


_DOES = {"read": "reads", "write": "writes", "atomic": "updates atomically", "": "touches"}


def _mask(value: int) -> str:
    return f"0x{value & 0xFFFFFFFF:08x}"


def _what(facts: Facts) -> str:
    return facts.name or f"{facts.space} memory".strip()


def _element(offset: int, size: int) -> str:
    return f"element {offset // size} (of {size} bytes)" if offset % size == 0 else f"byte {offset}"


def _race(f: Facts) -> tuple[str, str]:
    second = f"in {f.other}, " if f.other != f.line else ""
    detail = (
        f"thread {f.thread} {_DOES[f.access]} {_what(f)}, and {second}thread {f.other_thread} of the same block "
        f"{_DOES[f.other_access]} the same place: nothing decides which comes first"
    )
    if "atomic" in (f.access, f.other_access):
        return detail, (
            "an atomic update is safe against other atomics only: separate the two by __syncthreads(), or make both "
            "atomic."
        )
    if f.severity == "warning":
        return detail, (
            "both threads are in one warp, whose lanes need not run in step: put __syncwarp() between the two."
        )
    return detail, (
        "put __syncthreads() between the two, where every thread of the block passes it; or use a second buffer."
    )


def _global_race(f: Facts) -> tuple[str, str]:
    if f.other_block == f.block:
        detail, hint = _race(f)
        return detail, hint
    second = f"in {f.other}, " if f.other != f.line else ""
    detail = (
        f"thread {f.thread} of block {f.block} {_DOES[f.access]} {_what(f)}, and {second}thread {f.other_thread} "
        f"of block {f.other_block} {_DOES[f.other_access]} the same place: nothing decides which comes first"
    )
    if f.variant == 1:
        return detail, (
            "the flag was put up without a fence after the value: write the value, then __threadfence(), then the flag."
        )
    if f.variant == 2:
        return detail, (
            "the flag was read, but no fence follows: read the flag, then __threadfence() (or __syncthreads()), then "
            "the value."
        )
    return detail, (
        "blocks run in any order. Give each block its own part, use atomics, start a second kernel, or pass the value "
        "on by a flag: value, __threadfence(), volatile or atomic flag; and flag, __threadfence(), value."
    )


def _out_of_bounds(f: Facts) -> tuple[str, str]:
    if f.variant == OUT_OF_ROOM:
        return (
            f"the __shared__ array{f.name and ' ' + f.name} of {f.extra[0]:,} bytes does not fit: those before it take "
            f"{f.extra[1]:,}",
            "use smaller __shared__ arrays: a block has 227 KiB.",
        )
    if f.variant == 2:
        kind = re.sub(r"\s*\[", " [", f.text.strip("'"), count=1)
        count = re.search(r"\[(\d+)\]", kind)
        last = f"0 to {int(count[1]) - 1}" if count else "those of its declaration"
        array = f"{f.name} ({kind})" if f.name else f"an array {kind}"
        return (
            f"thread {f.thread} uses index {f.extra[0]} of {array}: its indices are {last}",
            "guard the access with a condition, or make the array larger.",
        )
    size, held = f.size, f.extra[0]
    holds = f"elements 0 to {held // size - 1}" if held >= size else f"{held} bytes"
    where = "before the start" if f.offset < 0 else "past the end"
    if held == 0:
        hint = "the launch gave no dynamic shared memory: pass shared_mem= in bytes."
    elif f.space == "shared" and f.text == "dynamic":
        hint = "ask for more with shared_mem= (bytes), or guard the access."
    else:
        hint = "guard the access: if (index < length) …"
    place = f"{_element(f.offset, size)} of {_what(f)}"
    return f"thread {f.thread} {_DOES[f.access]} {place}, {where}: it holds {holds}", hint


def _misaligned(f: Facts) -> tuple[str, str]:
    of = f" of {f.name}" if f.name else ""
    return (
        f"thread {f.thread} {_DOES[f.access]} {f.size} bytes{of} at an address that is {f.extra[0]} past a multiple "
        f"of {f.size}",
        f"an access of {f.size} bytes must start at a multiple of {f.size} bytes: a GPU stops the kernel otherwise.",
    )


def _uninitialised(f: Facts) -> tuple[str, str]:
    return (
        f"thread {f.thread} reads {_element(f.offset, f.size)} of {_what(f)}, which no thread has written before",
        "shared memory starts with anything in it: write every element first, also those past the end of the data.",
    )


def _divergent_barrier(f: Facts) -> tuple[str, str]:
    if f.variant == 1:
        return (
            f"thread {f.thread} waits at the barrier, but {f.extra[0]} thread{'s' * (f.extra[0] != 1)} of the block "
            f"(one is {f.other_thread}) returned before it",
            "let every thread reach every barrier: guard the work with if, not the barrier by return.",
        )
    if f.variant == 2:
        return (
            f"threads {f.thread} and {f.other_thread} wait at the same barrier, but came there by different calls",
            "all threads of a block must take the same way to a barrier: move the call out of the branch.",
        )
    return (
        f"thread {f.thread} waits at the barrier in {f.line}, thread {f.other_thread} at another one, in {f.other}",
        "all threads of a block must meet at the same barrier: move it out of the branch or loop that only some take.",
    )


def _deadlock(f: Facts) -> tuple[str, str]:
    resident, blocks, done = f.extra[:3]
    if f.variant == 1:
        if resident < blocks:
            return (
                f"thread {f.thread} of block {f.block} waits for the whole grid, but only {resident} of {blocks} "
                f"blocks {'is' if resident == 1 else 'are'} on the machine",
                "a grid barrier needs a cooperative launch: RawKernel(…, enable_cooperative_groups=True).",
            )
        return (
            f"thread {f.thread} of block {f.block} waits for the whole grid, and some threads never come"
            + (f": they wait in {f.other}" if f.other else ""),
            "every thread of every block must reach the grid's barrier.",
        )
    if f.variant == 2:
        return (
            f"thread {f.thread} of block {f.block} waits for threads that never come",
            "let all threads reach the same barriers.",
        )
    others = f"; others wait in {f.other}" if f.other else ""
    waits = f"thread {f.thread} of block {f.block} waits for a value that nobody will write any more{others}"
    if done < blocks and resident < blocks:
        return (
            f"{waits}: {done} of {blocks} blocks have ended, {resident} {'is' if resident == 1 else 'are'} on the "
            "machine, and a block that has not started yet cannot help",
            "never wait for a block that may start later: take the place in the order from an atomic counter, not from "
            "blockIdx.",
        )
    return waits, "check who should write it, and that this thread does not keep the writer from going on."


def _invalid_mask(f: Facts) -> tuple[str, str]:
    mask = _mask(f.extra[0])
    if f.variant == 0:
        return (
            f"thread {f.thread} is lane {f.extra[1]}, and its own mask {mask} does not name it",
            "a thread that calls a warp-wide function must be in its mask.",
        )
    if f.variant == 1:
        elsewhere = f": it waits in {f.other}" if f.other else ""
        return (
            f"the mask {mask} of thread {f.thread} names lane {f.extra[1]}, which never comes{elsewhere}",
            "name exactly the lanes that get here, or let all lanes get here.",
        )
    if f.variant == 2:
        return (
            f"the mask {mask} of thread {f.thread} names lane {f.extra[1]}, which has returned without coming",
            "name exactly the lanes that get here, or let all lanes get here before they return.",
        )
    if f.variant == 3:
        return (
            f"thread {f.thread} brings the mask {mask}, thread {f.other_thread} of the same warp {_mask(f.extra[1])}",
            "all lanes of one exchange must pass the same mask.",
        )
    if f.variant == 4:
        return (
            f"thread {f.thread} and thread {f.other_thread} of one warp meet in different warp-wide functions",
            "all lanes that the mask names must call the same function.",
        )
    return (
        f"thread {f.thread} and thread {f.other_thread} of one warp meet in two different lines",
        "GPUs before Volta need all lanes in the same line: move the call out of the branch.",
    )


def _wild_access(f: Facts) -> tuple[str, str]:
    if f.variant == 0:
        return (
            f"thread {f.thread} {_DOES[f.access]} {f'{f.size} bytes' if f.size else 'memory'} through a null pointer",
            "an argument that may be None needs a test before it is used.",
        )
    if f.variant == 2:
        return (
            f"thread {f.thread} {_DOES[f.access]} {f.size} bytes in the shared memory of another block",
            "shared memory belongs to one block: pass values between blocks through global memory.",
        )
    if f.variant == 3:
        return (
            f"thread {f.thread} calls a function at an address where there is none",
            "a pointer to a function must be set before it is called, to a __device__ function of the same module.",
        )
    if f.variant == 4:
        return (
            f"thread {f.thread} of block {f.block} touches an address that is not there, or not aligned",
            'run it in checked mode (mode="checked"), which names the line.',
        )
    if f.variant == 5:
        return (
            f"thread {f.thread} {_DOES[f.access]} a literal or a constant",
            "what is constant can only be read: copy it first.",
        )
    size = f"{f.size} bytes" if f.size else "memory"  # what the compiler gave no hook tells no size
    return (
        f"thread {f.thread} {_DOES[f.access]} {size} far outside every array",
        "look at how the index is made: an overflow of int, a negative index, a value that was never set?",
    )


_ENDLESS_TURNS = 2  # watchdog.h


def _endless_loop(f: Facts) -> tuple[str, str]:
    what = f"thread {f.thread} of block {f.block} has passed {f.extra[0]} basic blocks and is still in the loop"
    if f.variant == _ENDLESS_TURNS:
        what = (
            f"the threads of block {f.block} have taken {f.extra[0]} turns together (at barriers, in shuffles, in long "
            f"runs of accesses), and thread {f.thread} is still in the loop"
        )
    return (
        what,
        "is the condition ever false? A loop that waits for another thread must read its flag as volatile or by an "
        "atomic. (A longer loop may have its time: watchdog=)",
    )


def _stack_overflow(f: Facts) -> tuple[str, str]:
    if f.variant == 1:
        return (
            f"a thread of block {f.block} has used up its stack of 128 KiB",
            'a recursion without end, or large local arrays: checked mode (mode="checked") names the line.',
        )
    return (
        f"thread {f.thread} has used up its stack of 96 KiB",
        "a recursion without end, or large local arrays: keep them in shared memory.",
    )


def _assert(f: Facts) -> tuple[str, str]:
    if f.text == "__trap()":
        return f"thread {f.thread} of block {f.block} called __trap()", "look at the condition that led there."
    return (
        f"assert({f.text}) failed in thread {f.thread} of block {f.block}",
        "look at the values in the condition with printf.",
    )


def _local_escape(f: Facts) -> tuple[str, str]:
    owner = f" of thread {f.other_thread}" if f.other_thread else ""
    return (
        f"thread {f.thread} {_DOES[f.access]} a local variable{owner}",
        "a pointer to a local variable means nothing to other threads: pass the value through shared memory.",
    )


def _division_by_zero(f: Facts) -> tuple[str, str]:
    return (
        f"thread {f.thread} of block {f.block} divides an integer by 0 (or the smallest one by -1)",
        "a GPU goes on with a number that means nothing: test the divisor first.",
    )


WORDING: dict[str, Callable[[Facts], tuple[str, str]]] = {
    "race": _race,
    "global-race": _global_race,
    "out-of-bounds": _out_of_bounds,
    "misaligned": _misaligned,
    "uninitialised": _uninitialised,
    "divergent-barrier": _divergent_barrier,
    "deadlock": _deadlock,
    "invalid-mask": _invalid_mask,
    "wild-access": _wild_access,
    "endless-loop": _endless_loop,
    "stack-overflow": _stack_overflow,
    "assert": _assert,
    "local-escape": _local_escape,
    "division-by-zero": _division_by_zero,
}
