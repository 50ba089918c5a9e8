"""Repeats the host work of an op: one call is watched, later calls of the same kind only allocate, fill and launch.

    result = replay.run(function, tensors, options)         the same as function(*tensors, *options)

What an op's host code decides (which kernels with which constants, how many blocks, how much scratch memory) follows
from shapes, strides, dtypes, the device and alignment, never from values. Deciding it anew takes longer than a small
scan runs. So for each such kind of call the first runs as it is written, the second is watched, and all later ones
repeat what was seen, with the new addresses:

    memory    what the function asked torch for. Each result has its own; all scratch memory is one allocation.
    fills     zeros and copies, which come before the launches that need them
    launches  a Launcher, its grid and block, and arguments: numbers, and addresses inside an input or that memory

A function that does anything else to a tensor (any arithmetic of torch's) is not repeated, and runs as it is written.
"""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from dataclasses import dataclass

import torch
from torch._C._dynamo.guards import _empty_strided_cpu, _empty_strided_cuda  # what torch.compile's code allocates with
from torch.utils._python_dispatch import TorchDispatchMode

MOST_KINDS = 1024  # kinds of calls that are remembered; then all are forgotten, which costs time and nothing else
ALIGNMENT = 256  # [B] of each piece of scratch memory, more than any access needs

_kinds = {}  # what decides of a call: the Kind that stands for it
_plans = {}  # (function, Kind, options): None (seen once), a Plan, or False (cannot be repeated)
_watching = threading.local()


class Kind:
    """Stands for one signature, so that it is hashed and compared once a call."""

    __slots__ = ()


def kind_of(tensors):
    """The Kind of a call: everything about the tensors (None among them) except their values and addresses."""
    signature = tuple(
        [None if t is None else (t.shape, t.stride(), t.dtype, t.device, t.data_ptr() & 31) for t in tensors]
    )
    found = _kinds.get(signature)
    if found is None:
        found = remember(_kinds, signature, Kind())
    return found


def remember(table, key, value):
    """table[key] = value, in a table that does not grow for ever. Returns the value."""
    if len(table) >= MOST_KINDS:
        table.clear()
    table[key] = value
    return value


def run(function, tensors, options, kind=None):
    """function(*tensors, *options). kind: kind_of(tensors), where the caller has it already."""
    key = function, kind or kind_of(tensors), options
    plan = _plans.get(key, _plans)
    if plan.__class__ is Plan:
        return plan(tensors)
    if plan is _plans:
        remember(_plans, key, None)
    elif plan is None:
        results, _plans[key] = watch(function, tensors, options)
        return results
    return function(*tensors, *options)


def watch(function, tensors, options):
    """(function(*tensors, *options), a Plan that repeats it; or False if that cannot be)."""
    watcher = _Watcher(tensors)
    _watching.by = watcher
    try:
        with torch._C._AutoDispatchBelowAutograd(), watcher:
            results = function(*tensors, *options)
        return results, watcher.plan(results)
    finally:
        _watching.by = None
        watcher.forget()


def launched(launcher, grid, block, args, shared_mem):
    """A Launcher tells of each launch, before it."""
    watcher = getattr(_watching, "by", None)
    if watcher is not None:
        watcher.launched(launcher, grid, block, args, shared_mem)


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies: in memory number `base`, `offset` bytes behind its begin; and how."""

    base: int
    offset: int
    size: tuple
    stride: tuple
    dtype: torch.dtype

    def of(self, tensors):
        """The tensor, when its memory is tensors[base]."""
        within = tensors[self.base]
        if self.offset == 0 and within.dtype == self.dtype and within.shape == self.size:
            if within.stride() == self.stride:
                return within
        start = _begin(within) + self.offset
        if within.dtype == self.dtype:
            return within.as_strided(self.size, self.stride, start // self.dtype.itemsize)
        view = torch.empty(0, dtype=self.dtype, device=within.device)
        return view.set_(within.untyped_storage(), start // self.dtype.itemsize, self.size, self.stride)


@dataclass(frozen=True)
class _Launch:
    launcher: object
    grid: tuple
    block: tuple
    args: tuple  # numbers and _Places
    shared_mem: int


class _Memory:
    """A tensor that the function asked for, and what happened to it."""

    def __init__(self, tensor, zeros):
        self.tensor = tensor
        self.zeros = zeros  # must it begin as zeros?
        self.used = False


_EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
_ZEROS = {"zeros", "zeros_like", "new_zeros"}
_VIEWS = {
    "alias", "as_strided", "contiguous", "detach", "expand", "flatten", "narrow", "permute", "reshape", "select",
    "slice", "squeeze", "t", "to", "transpose", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
}  # fmt: skip
_COPIES = {"clone", "_to_copy", "contiguous", "flatten", "reshape", "to"}  # where it is no view


class _Watcher(TorchDispatchMode):
    """Notes what a function does to memory. Tensors are told apart by identity: two inputs may be one and the same."""

    def __init__(self, inputs):
        super().__init__()
        self.count = len(inputs)
        self.memory = []
        self.places = {}  # id of a tensor: (its place, the tensor, kept so that the id stays its own)
        self.steps = []  # _Launch, or (from, to) of a copy
        distinct = {id(t) for t in inputs if t is not None}
        self.fault = len(distinct) < sum(t is not None for t in inputs)
        for base, tensor in enumerate(inputs):
            if tensor is not None:
                self._put(tensor, base, 0)

    def _put(self, tensor, base, offset):
        place = _Place(base, offset, tuple(tensor.shape), tensor.stride(), tensor.dtype)
        self.places[id(tensor)] = place, tensor
        return place

    def _place(self, tensor):
        found = self.places.get(id(tensor))
        self.fault |= found is None
        return None if found is None else found[0]

    def _use(self, place):
        if place is not None and place.base >= self.count:
            self.memory[place.base - self.count].used = True

    def _ask(self, tensor, zeros):
        self.memory.append(_Memory(tensor, zeros))
        return self._put(tensor, self.count + len(self.memory) - 1, 0)

    def _copy(self, source, target):
        self._use(source)
        self._use(target)
        self.steps.append((source, target))

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        if name in _EMPTY or name in _ZEROS:
            self._ask(result, name in _ZEROS)
        elif name in _VIEWS and _same_memory(result, args[0]):
            place = self._place(args[0])
            if place is not None:
                self._put(result, place.base, place.offset + _begin(result) - _begin(args[0]))
        elif name in _COPIES:
            self._copy(self._place(args[0]), self._ask(result, False))
        elif name == "zero_":
            place = self._place(args[0])
            memory = None if place is None or place.base < self.count else self.memory[place.base - self.count]
            if memory is None or memory.used or place.offset or args[0].numel() != memory.tensor.numel():
                self.fault = True
            else:
                memory.zeros = True
        elif name == "copy_":
            self._copy(self._place(args[1]), self._place(args[0]))
        else:
            self.fault = True
        return result

    def launched(self, launcher, grid, block, args, shared_mem):
        noted = []
        for value in args:
            if isinstance(value, torch.Tensor):
                value = self._place(value)
                self._use(value)
            noted.append(value)
        self.steps.append(_Launch(launcher, tuple(grid), tuple(block), tuple(noted), shared_mem))

    def forget(self):
        """Lets go of all tensors now: torch keeps a mode for longer."""
        self.places.clear()
        self.memory.clear()

    def plan(self, results):
        """What repeats it, or False."""
        returned = [None if result is None else self._place(result) for result in results]
        if self.fault or not self.memory:
            return False
        return Plan(self.count, self.memory, self.steps, returned)


def _begin(tensor):
    """[B] from the begin of its storage; an empty tensor has one, too, and no address."""
    return tensor.storage_offset() * tensor.element_size()


def _same_memory(one, other):
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


class Plan:
    """A call of one kind, ready to be repeated: plan(tensors) gives what the watched function gave.

    count      inputs; memory, steps, returned: what a _Watcher saw
    """

    def __init__(self, count, memory, steps, returned):
        kept = sorted({place.base for place in returned if place is not None and place.base >= count})
        self.count = count
        self.device = memory[0].tensor.device
        self.on_gpu = self.device.type == "cuda"
        # A result takes the form in which it is returned, where that is all of its memory.
        self.results = []
        for base in kept:
            tensor, forms = memory[base - count].tensor, [p for p in returned if p is not None and p.base == base]
            form = forms[0] if len(forms) == 1 else None
            size = 0 if form is None or form.offset or form.dtype != tensor.dtype else math.prod(form.size)
            if form is None or size != tensor.numel() or _extent(form) != _extent(tensor):
                form = _Place(base, 0, tuple(tensor.shape), tensor.stride(), tensor.dtype)
            self.results.append((form.size, form.stride, form.dtype))
        # Behind the inputs lie the results, then the scratch memory, those pieces of it first that begin as zeros.
        at = {base: (base, 0) for base in range(count)} | {base: (count + i, 0) for i, base in enumerate(kept)}
        scratch = [base for base in range(count, count + len(memory)) if base not in kept]
        self.bytes = 0
        for zeros in (True, False):
            for base in scratch:
                if memory[base - count].zeros == zeros:
                    at[base] = count + len(kept), self.bytes
                    tensor = memory[base - count].tensor
                    self.bytes += -(-_extent(tensor) * tensor.element_size() // ALIGNMENT) * ALIGNMENT
            if zeros:
                self.zero_bytes = self.bytes
        self.zero_results = [count + i for i, base in enumerate(kept) if memory[base - count].zeros]

        def moved(place):
            base, offset = at[place.base]
            return _Place(base, offset + place.offset, place.size, place.stride, place.dtype)

        self.returned = [None if place is None else moved(place) for place in returned]
        self.steps = []
        for step in steps:
            if isinstance(step, _Launch):
                args = tuple(moved(value) if isinstance(value, _Place) else value for value in step.args)
                step = _Launch(step.launcher, step.grid, step.block, args, step.shared_mem)
            else:
                step = moved(step[0]), moved(step[1])
            self.steps.append(step)
        # A result that is all of its memory needs no view: (its number, place), else (-1, place), or (-1, None).
        self.returned = [
            (place.base if place is not None and self._is_whole(place) else -1, place) for place in self.returned
        ]
        self.frames = []  # of the driver's arguments; not in use at the moment

    def _is_whole(self, place):
        memory = place.base - self.count
        return (
            0 <= memory < len(self.results) and place.offset == 0
            and (place.size, place.stride, place.dtype) == self.results[memory]
        )  # fmt: skip

    def __call__(self, inputs):
        if self.on_gpu and torch._C._cuda_getDevice() != self.device.index:
            with torch.cuda.device(self.device):
                return self._repeat(inputs)
        return self._repeat(inputs)

    def _repeat(self, inputs):
        tensors = list(inputs)
        empty = _empty_strided_cuda if self.on_gpu else _empty_strided_cpu
        for size, stride, dtype in self.results:
            tensors.append(empty(size, stride, dtype))
        if self.bytes:
            scratch = empty((self.bytes,), (1,), torch.uint8)
            if self.zero_bytes:
                (scratch if self.zero_bytes == self.bytes else scratch[: self.zero_bytes]).zero_()
            tensors.append(scratch)
        for base in self.zero_results:
            tensors[base].zero_()
        if self.on_gpu:
            self._launch_on_gpu(tensors, self.device.index)
        else:
            self._launch_on_cpu(tensors, self.device)
        return [tensors[whole] if whole >= 0 else place and place.of(tensors) for whole, place in self.returned]

    def _launch_on_cpu(self, tensors, device):
        for step in self.steps:
            if isinstance(step, _Launch):
                args = [value.of(tensors) if isinstance(value, _Place) else value for value in step.args]
                step.launcher(step.grid, step.block, args, device, step.shared_mem)
            else:
                step[1].of(tensors).copy_(step[0].of(tensors))

    def _launch_on_gpu(self, tensors, index):
        frame = self.frames.pop() if self.frames else _Frame(self.steps, index)  # list.pop and append are atomic
        addresses = [0 if t is None else t.data_ptr() for t in tensors]
        frame.set_addresses(addresses)
        stream = torch._C._cuda_getCurrentRawStream(index)
        for launch, handle, grid, block, shared_mem, start, copy in frame.launches:
            if copy is None:
                launch(handle, *grid, *block, shared_mem, stream, start, 0)
            else:
                copy[1].of(tensors).copy_(copy[0].of(tensors))
        self.frames.append(frame)


class _Frame:
    """The arguments of a plan's launches in the form that the driver reads: a place of 8 bytes for each value.

    Addresses have their places in front and are written anew in each call, one place for all launches that take the
    same one; numbers never change.
    """

    def __init__(self, steps, index):
        cells, numbers = {}, []
        for step in steps:
            for value in step.args if isinstance(step, _Launch) else ():
                if isinstance(value, _Place):
                    cells.setdefault((value.base, value.offset), len(cells))
                else:
                    numbers.append(0 if value is None else int(value))
        self.cells = list(cells)
        self.format = f"<{len(cells)}q"  # little end first, so that an int is the front half of its place
        self.values = (ctypes.c_int64 * (len(cells) + len(numbers)))(*[0] * len(cells), *numbers)
        first, number = ctypes.addressof(self.values), len(cells)
        self.launches, self.places = [], []
        for step in steps:
            if not isinstance(step, _Launch):
                self.launches.append((None, None, None, None, None, None, step))
                continue
            places = (ctypes.c_void_p * max(len(step.args), 1))()
            for i, value in enumerate(step.args):
                if isinstance(value, _Place):
                    places[i] = first + 8 * cells[value.base, value.offset]
                else:
                    places[i] = first + 8 * number
                    number += 1
            self.places.append(places)
            grid, block = (*step.grid, 1, 1)[:3], (*step.block, 1, 1)[:3]
            self.launches.append(
                (*step.launcher.ready(index), grid, block, step.shared_mem, ctypes.addressof(places), None)
            )

    def set_addresses(self, addresses):
        struct.pack_into(self.format, self.values, 0, *[addresses[base] + offset for base, offset in self.cells])


def _extent(form):
    """[elements] from the first one to behind the last one of a tensor or _Place."""
    size, stride = (form.size, form.stride) if isinstance(form, _Place) else (form.shape, form.stride())
    return 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
