"""Runs one kernel of a library on the CPU.

    run(library, kernel, grid, block, arguments, shared_mem, cooperative=…, lane_order=…, …) -> Report, or None (native)

library, kernel   compiler.Library and its KernelInfo;  arguments: what arguments.bind gives, one for each parameter
Checked mode copies the arrays into guarded memory first and back afterwards. Arrays that overlap are copied as one.
Native mode works on the arrays themselves.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from . import lines, structures
from .memory import GuardedRegion, Region
from .placement import GRANULE, placement
from .report import Finding, KernelError, Report
from .results import Names, index_of, printed, read_report
from .wording import WORDING, Facts

ORDERS = ("forward", "reverse", "random")
WATCHDOG = 20_000_000  # basic blocks of one thread, or turns of a block, in checked mode: up to a few seconds
MOST_RESIDENT_THREADS = 65_536
GUARD = 65_536  # [B] on both sides of each array: an access there is out of bounds, one farther away is wild
ARENA = 384 * 1024  # [B] of one block's shared memory with gaps; 227 KiB can be used
MOST_STATIC_SHARED = 48 * 1024  # [B] of a block
MOST_SHARED = 227 * 1024  # [B] of a block, static and dynamic, on the GPUs that have most
UNWRITTEN = 0x7FFFFFFF  # what guard zones hold: NaN as a float, and no index of anything

_lock = threading.Lock()  # checked launches share one set of regions
_regions = {name: Region() for name in (*structures.REGIONS, "parameters") if name != "faults"}
_regions["heap"] = GuardedRegion()
_numbers = {"launch": 1, "interval": 1}  # never used twice while the regions live
_tables: dict[str, lines.LineTable] = {}


def run(
    library: Any,
    kernel: Any,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: Sequence[Any],
    shared_mem: int = 0,
    *,
    cooperative: bool = False,
    lane_order: str = "forward",
    block_order: str = "forward",
    resident: int = 1,
    seed: int = 0,
    watchdog: int = WATCHDOG,
    workers: int | None = None,
) -> Report | None:
    """Run a kernel; a Report in checked mode, None in native mode (output of printf is written there).

    lane_order, block_order   "forward" | "reverse" | "random" (by `seed`); checked mode: verdicts do not depend on them
    resident                  blocks alive at once, at most 65,536 threads together; cooperative: all of them
    watchdog                  checked mode: basic blocks that one thread may run, and barriers and warp-wide operations
                              that the threads of a block may come to together; 0: no limit
    workers                   native: OS threads; None: one for each CPU of this process

    Raises ValueError for a schedule that cannot be, KernelError if an assert fails in native mode.
    """
    _check_schedule(lane_order, block_order, resident, seed, watchdog)
    blocks, threads = math.prod(grid), math.prod(block)
    if cooperative:
        resident = blocks
        if blocks * threads > MOST_RESIDENT_THREADS:
            raise ValueError(
                f"kernel {kernel.name!r}: a cooperative launch keeps all {blocks} blocks of {threads} threads alive "
                f"at once: at most {MOST_RESIDENT_THREADS} threads are possible here"
            )
    if library.mode == "native":
        return _run_native(library, kernel, grid, block, arguments, shared_mem, workers, cooperative)
    resident = max(1, min(resident, blocks, MOST_RESIDENT_THREADS // threads))
    with _lock:
        return _run_checked(
            library, kernel, grid, block, arguments, shared_mem,
            ORDERS.index(lane_order), ORDERS.index(block_order), resident, seed, watchdog,
        )  # fmt: skip


def _check_schedule(lane_order: str, block_order: str, resident: int, seed: int, watchdog: int) -> None:
    for name, value in (("lane_order", lane_order), ("block_order", block_order)):
        if value not in ORDERS:
            raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(map(repr, ORDERS))}")
    for name, value, least in (("resident", resident, 1), ("seed", seed, 0), ("watchdog", watchdog, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} is {value!r}: it must be an integer")
        if not least <= value < 2**64:
            raise ValueError(f"{name} is {value}: it must be at least {least} and fit into 64 bits")


def _functions(library: Any) -> tuple[Any, Any]:
    simt_run, region_bytes = library.cdll.simt_run, library.cdll.simt_region_bytes
    simt_run.restype, simt_run.argtypes = ctypes.c_uint32, [ctypes.c_void_p]
    region_bytes.restype, region_bytes.argtypes = ctypes.c_uint64, [ctypes.c_void_p, ctypes.c_int]
    return simt_run, region_bytes


def _shape(library: Any, kernel: Any, grid: tuple, block: tuple, shared_mem: int) -> structures.Launch:
    launch = structures.Launch()
    launch.kernel = library.thunk(kernel.name)
    launch.grid[:], launch.block[:] = grid, block
    launch.dynamic_shared = shared_mem
    launch.arena_bytes = ARENA
    return launch


class _Faults:
    """Handlers for the signals of faults, there while launches run (runtime/faults.h); the first one installs them.

    region   alternate signal stacks of all launching threads, those of checked and of native mode
    """

    def __init__(self) -> None:
        self.region = Region()
        self._lock = threading.Lock()
        self._launches = 0
        self._library: Any = None

    def catch(self, library: Any, launch: structures.Launch) -> None:
        with self._lock:
            if self._launches == 0:
                library.cdll.simt_catch_faults.argtypes = [ctypes.c_void_p]
                library.cdll.simt_catch_faults(ctypes.byref(launch))
                self._library = library
            self._launches += 1

    def leave(self) -> None:
        with self._lock:
            self._launches -= 1
            if self._launches == 0:
                self._library.cdll.simt_leave_faults()
                self._library = None


_faults = _Faults()


def _to_its_end(library: Any, launch: structures.Launch) -> bool:
    """Run a launch; was it given up? It pauses a few times a second, so that Ctrl-C raises KeyboardInterrupt here."""
    simt_run, _ = _functions(library)
    _faults.catch(library, launch)
    try:
        while (result := simt_run(ctypes.byref(launch))) == structures.PAUSED:
            launch.resume = 1
            if launch.stop and ctypes.c_uint32.from_address(launch.stop).value:
                break  # native: another worker has given up
        return bool(result)
    finally:
        _faults.leave()


# ---- checked


def _run_checked(
    library, kernel, grid, block, arguments, shared_mem, lane_order, block_order, resident, seed, watchdog
) -> Report:  # fmt: skip
    key = str(library.path)
    if key not in _tables:
        _tables[key] = lines.read(library.path, library.cdll, library.translation)
    table = _tables[key]
    launch = _shape(library, kernel, grid, block, shared_mem)
    launch.lane_order, launch.block_order, launch.resident = lane_order, block_order, resident
    launch.seed, launch.watchdog = seed, watchdog
    launch.text, launch.text_bytes = table.text, len(table.lines)
    launch.lines = table.lines.ctypes.data
    launch.image, launch.image_bytes = table.image
    heap = _Heap(arguments, _module_variables(library))
    heap.fill(launch)
    parameters = _Parameters(arguments, heap)
    launch.arguments = launch.parameters = parameters.address
    launch.parameters_bytes = parameters.bytes

    _, region_bytes = _functions(library)
    for number, name in enumerate(structures.REGIONS):
        region = _faults.region if name == "faults" else _regions[name]
        region.reserve(region_bytes(ctypes.byref(launch), number))
        launch.region[number], launch.region_bytes[number] = region.address, region.bytes
    if _numbers["interval"] > 1 << 31 or _numbers["launch"] > 1 << 31:
        _forget_numbers()
    launch.launch_number, launch.next_interval = _numbers["launch"], _numbers["interval"]

    try:
        given_up = _to_its_end(library, launch)
    except BaseException:  # Ctrl-C: nobody knows how much memory it has used
        for region in _regions.values():
            region.give_back()
        raise
    finally:
        _numbers["launch"], _numbers["interval"] = launch.launch_number + 1, launch.next_interval
    heap.copy_back()
    results = structures.Results.from_address(_regions["results"].address)
    _check_static_shared(kernel, results.shared_bytes, shared_mem)
    report = Report(kernel.name, grid, block, shared_mem, library.translation.filename, complete=not given_up)
    declared = {array.index: (array.filename, array.line) for array in library.translation.shared}
    names = Names(_shared_names(library), heap.names, declared)
    read_report(results, report, table, names, library.translation.original)
    _tidy(results, heap, resident * math.prod(block))
    return report


def _check_static_shared(kernel: Any, static: int, dynamic: int) -> None:
    """What a compiler or a launch refuses on a GPU; here the sizes are known when the arrays have been met."""
    if static > MOST_STATIC_SHARED:
        raise ValueError(
            f"kernel {kernel.name!r}: its __shared__ arrays have {static} bytes: at most {MOST_STATIC_SHARED} are "
            "possible (use extern __shared__ and shared_mem= for more)"
        )
    if static + dynamic > MOST_SHARED:
        raise ValueError(
            f"kernel {kernel.name!r}: shared_mem asks for {dynamic} bytes beside {static} static ones: "
            f"a block has at most {MOST_SHARED}"
        )


def _shared_names(library: Any) -> dict[int, str]:
    names: dict[int, str] = {}
    for array in library.translation.shared:
        names.setdefault(-1 if array.dynamic else array.index, array.name)
    names.setdefault(-1, "dynamic shared memory")
    return names


def _forget_numbers() -> None:
    for name in ("shared_cells", "global_cells", "blocks"):
        _regions[name].give_back()
    _numbers.update(launch=1, interval=1)


def _tidy(results: structures.Results, heap: _Heap, threads: int) -> None:
    """Give memory back after a launch that used much of it."""
    much = 64 << 20
    if results.request_bytes > much:
        _regions["requests"].give_back()
    if heap.bytes > much // 4:  # its records are nine times as large
        for name in ("heap", "global_cells", "links"):
            _regions[name].give_back()
    if threads > 8192:
        for name in ("stacks", "fibers", "blocks", "shared_cells"):
            _regions[name].give_back()
    _regions["order"].give_back()


def _module_variables(library: Any) -> list[tuple[str, int, int]]:
    """(name, address, bytes) of each __device__ and __constant__ variable."""
    variables = []
    for variable in library.translation.globals:
        address, size, _ = library.global_memory(variable.symbol)
        variables.append((variable.name, address, size))
    return variables


class _Heap:
    """Guarded copies of the arrays: guard zone, array, guard zone, array, guard zone.

    names   of the buffers: arguments by address of their arrays, then module variables
    """

    def __init__(self, arguments: Sequence[Any], variables: Sequence[tuple[str, int, int]]):
        pointers = [argument for argument in arguments if argument.array is not None and argument.array.nbytes]
        spans = [(*argument.array.span, argument) for argument in pointers]
        self.parts: list[list[Any]] = []  # [low, high, arguments, offset in the heap]
        order = {id(argument): number for number, argument in enumerate(arguments)}
        for low, high, argument in sorted(spans, key=lambda span: span[:2]):
            if self.parts and low < self.parts[-1][1]:
                self.parts[-1][1] = max(self.parts[-1][1], high)
                self.parts[-1][2].append(argument)
            else:
                self.parts.append([low, high, [argument], 0])
        # The order of the copies must not depend on where the arrays happen to lie: it is that of the parameters.
        self.parts.sort(key=lambda part: min(order[id(argument)] for argument in part[2]))
        at = GUARD
        for part in self.parts:
            # A view that starts in the middle of a float4, or of a sector, does so in the copy.
            part[3] = at + placement(part[2][0].array.source, part[0])
            at = -(-(part[3] + part[1] - part[0]) // GRANULE) * GRANULE + GUARD
        self.bytes = at
        if self.bytes >= 1 << 32:
            raise ValueError(f"the arrays have {self.bytes} bytes together: checked mode takes up to 4 GiB")
        region = _regions["heap"]
        region.reserve(self.bytes)
        self.address = region.address
        self.variables = list(variables)
        self.names = [_joined(part[2], order) for part in self.parts] + [name for name, _, _ in variables]

    def fill(self, launch: structures.Launch) -> None:
        """Copy the arrays in, and tell the launch where everything is."""
        words = np.frombuffer((ctypes.c_uint32 * (self.bytes // 4)).from_address(self.address), np.uint32)
        self.granules = np.zeros(self.bytes // GRANULE + 1, np.uint16)
        rows, end = [], 0
        for number, (low, high, _, offset) in enumerate(self.parts):
            words[end // 4 : offset // 4 + 4] = UNWRITTEN
            ctypes.memmove(self.address + offset, low, high - low)
            end = offset + high - low
            self.granules[offset // GRANULE : -(-end // GRANULE)] = number + 1
            words[-(-end // 4) : -(-end // GRANULE) * GRANULE // 4] = UNWRITTEN
            rows.append((self.address + offset, high - low, offset))
        words[-(-end // 4) :] = UNWRITTEN
        end = self.bytes
        for _, address, size in self.variables:  # counted from their start, wherever the compiler has put them
            end = -(-end // GRANULE) * GRANULE
            rows.append((address, size, end))
            end += size
        self.buffers = (structures.Buffer * max(len(rows), 1))(*rows)
        launch.heap, launch.heap_bytes = self.address, self.bytes
        launch.granules = self.granules.ctypes.data
        launch.buffers = ctypes.addressof(self.buffers)
        launch.argument_buffers, launch.buffer_count = len(self.parts), len(rows)
        launch.global_cells = end // 4 + 64

    def translated(self, argument: Any) -> int:
        """Where the kernel finds an argument's array."""
        for low, high, _, offset in self.parts:
            if low <= argument.array.address < high:
                return self.address + offset + argument.array.address - low
        return 0  # an empty array

    def copy_back(self) -> None:
        for low, high, owners, offset in self.parts:
            if any(argument.array.writable and not argument.parameter.const for argument in owners):
                ctypes.memmove(low, self.address + offset, high - low)


def _joined(arguments: Sequence[Any], order: dict[int, int]) -> str:
    return ", ".join(argument.name for argument in sorted(arguments, key=lambda argument: order[id(argument)]))


class _Parameters:
    """The values of the arguments and the table of pointers to them, which the thunk reads."""

    def __init__(self, arguments: Sequence[Any], heap: _Heap | None, region: Region | None = None):
        values = []
        for argument in arguments:
            pointer = argument.array is not None and argument.array.nbytes and heap is not None
            values.append(heap.translated(argument).to_bytes(8, sys.byteorder) if pointer else argument.data)
        places, at = [], 8 * len(values)
        for value in values:
            at = -(-at // 16) * 16
            places.append(at)
            at += max(len(value), 1)
        self.bytes = at + 16
        self.region = region or _regions["parameters"]
        self.region.reserve(self.bytes)
        self.address = self.region.address
        for number, (place, value) in enumerate(zip(places, values, strict=True)):
            ctypes.memmove(self.address + place, value, len(value))
            ctypes.c_uint64.from_address(self.address + 8 * number).value = self.address + place


# ---- native

MOST_WORKERS = 64
_free_workers = list(range(MOST_WORKERS))
_workers_changed = threading.Condition()
_native_lock = threading.Lock()
_native_regions = {name: Region() for name in ("stacks", "fibers", "blocks", "arena")}
_result_regions = [Region() for _ in range(MOST_WORKERS)]
_pool: ThreadPoolExecutor | None = None
_SMALL = 16_384  # threads: a launch below this is not worth waking others


def _take_workers(count: int, least: int = 1) -> list[int]:
    """At least `least` and at most `count` workers that no other launch uses."""
    with _workers_changed:
        _workers_changed.wait_for(lambda: len(_free_workers) >= least)
        taken = _free_workers[:count]
        del _free_workers[: len(taken)]
        return taken


def _return_workers(workers: Sequence[int]) -> None:
    with _workers_changed:
        _free_workers.extend(workers)
        _free_workers.sort()
        _workers_changed.notify_all()


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_native(library, kernel, grid, block, arguments, shared_mem, workers, cooperative) -> None:
    global _pool
    blocks = math.prod(grid)
    wanted = _cpus() if workers is None else workers
    if workers is None and blocks * math.prod(block) <= _SMALL:
        wanted = 1
    _, region_bytes = _functions(library)
    stop, next_block = ctypes.c_uint32(0), ctypes.c_uint64(0)
    parameters = _Parameters(arguments, None, Region())
    if cooperative:  # blocks wait for each other: all are alive at once, on one OS thread with everybody's stacks
        mine = _take_workers(MOST_WORKERS, MOST_WORKERS)
    else:
        mine = _take_workers(max(1, min(wanted, blocks, MOST_WORKERS)))
    used = mine[:1] if cooperative else mine
    try:
        launches = []
        for worker in used:
            launch = _shape(library, kernel, grid, block, shared_mem)
            launch.arguments, launch.worker, launch.resident = parameters.address, worker, MOST_WORKERS
            launch.stop, launch.next_block = ctypes.addressof(stop), ctypes.addressof(next_block)
            launch.whole_grid = cooperative
            for number, name in enumerate(structures.REGIONS):
                size = region_bytes(ctypes.byref(launch), number)
                region = _result_regions[worker] if name == "results" else _native_regions.get(name)
                region = _faults.region if name == "faults" else region
                if region is not None and size:
                    with _native_lock:
                        region.reserve(size)
                    launch.region[number], launch.region_bytes[number] = region.address, region.bytes
            launches.append(launch)
        running = []
        if len(launches) > 1:
            with _native_lock:
                _pool = _pool or ThreadPoolExecutor(MOST_WORKERS, thread_name_prefix="simt")
            running = [_pool.submit(_to_its_end, library, launch) for launch in launches[1:]]
        try:
            _to_its_end(library, launches[0])
            for future in running:
                future.result()
        finally:  # after Ctrl-C the others end with the blocks that they have begun
            stop.value = stop.value or int(any(not future.done() for future in running))
            for future in running:
                future.result()
        _finish_native(library, kernel, grid, block, used, bool(stop.value))
    finally:
        if cooperative and blocks * math.prod(block) > 8192:
            for region in _native_regions.values():  # all workers are ours: nobody else uses them
                region.give_back()
        _return_workers(mine)


def _finish_native(library, kernel, grid, block, workers, stopped: bool) -> None:
    """Write what was printed; raise for an assert that failed."""
    results = [structures.Results.from_address(_result_regions[worker].address) for worker in workers]
    text = "".join(printed(one) for one in results)
    if text:
        sys.stdout.write(text)
    if not stopped:
        return
    report = Report(kernel.name, grid, block, 0, library.translation.filename, complete=False)
    for one in results:
        if one.findings:
            report.findings += (_native_finding(structures.Finding.from_address(one.finding), grid, block),)
    if not report.findings:
        raise RuntimeError(
            f"kernel {kernel.name!r}: its threads wait for each other for ever; run it in checked mode to see where"
        )
    raise KernelError(report)


def _native_finding(raw: structures.Finding, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Finding:
    kind, thread, at = structures.KINDS[raw.kind], index_of(raw.thread, block), index_of(raw.block, grid)
    text = raw.text.decode(errors="replace") if raw.text else ""
    facts = Facts(
        raw.variant, "error", "", "", "", "", str(thread), "", str(at), str(at), "", "", 0, 1, tuple(raw.extra), text
    )
    return Finding(kind, "error", None, None, "", "", (thread, None), (at, None), "", 1, 0, *WORDING[kind](facts))
