"""ctypes mirrors of the structures in runtime/abi.h (second part), field by field."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p

REGIONS = (
    "stacks", "fibers", "blocks", "arena", "shared_cells", "global_cells", "links", "requests", "order", "sites",
    "results", "faults",
)  # fmt: skip
KINDS = (
    "race", "global-race", "out-of-bounds", "misaligned", "uninitialised", "divergent-barrier", "deadlock",
    "invalid-mask", "wild-access", "endless-loop", "stack-overflow", "assert", "local-escape",
    "division-by-zero",
)  # fmt: skip
ACCESSES = ("read", "write", "atomic", "")
SPACES = ("shared", "global", "")
NO_THREAD = 0xFFFFFFFF
PRINT_BYTES = 1 << 20
PAUSED = 2  # what simt_run gives when it wants to be called again


class Buffer(ctypes.Structure):
    _fields_ = [("address", c_uint64), ("bytes", c_uint64), ("first_byte", c_uint64)]


class Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", c_void_p), ("arguments", c_void_p),
        ("grid", c_uint32 * 3), ("block", c_uint32 * 3),
        ("dynamic_shared", c_uint64), ("arena_bytes", c_uint64),
        ("lane_order", c_uint32), ("block_order", c_uint32), ("resident", c_uint32), ("worker", c_uint32),
        ("seed", c_uint64), ("watchdog", c_uint64),
        ("region", c_void_p * len(REGIONS)), ("region_bytes", c_uint64 * len(REGIONS)),
        ("heap", c_uint64), ("heap_bytes", c_uint64), ("granules", c_void_p), ("buffers", c_void_p),
        ("argument_buffers", c_uint32), ("buffer_count", c_uint32), ("global_cells", c_uint64),
        ("parameters", c_uint64), ("parameters_bytes", c_uint64),
        ("text", c_uint64), ("text_bytes", c_uint64), ("lines", c_void_p),
        ("image", c_uint64), ("image_bytes", c_uint64),
        ("launch_number", c_uint32), ("next_interval", c_uint32), ("stop", c_void_p), ("next_block", c_void_p),
        ("resume", c_uint32), ("whole_grid", c_uint32),
    ]  # fmt: skip


class Finding(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint32), ("severity", c_uint32), ("line", c_uint32), ("other_line", c_uint32),
        ("access", c_uint32), ("other_access", c_uint32), ("space", c_uint32), ("object", c_int32),
        ("thread", c_uint32), ("other_thread", c_uint32), ("block", c_uint64), ("other_block", c_uint64),
        ("count", c_uint64), ("bytes", c_uint64), ("offset", c_int64), ("size", c_uint32), ("variant", c_uint32),
        ("extra", c_int64 * 4), ("text", c_char_p),
    ]  # fmt: skip


class Stats(ctypes.Structure):
    _fields_ = [
        ("line", c_uint32), ("space", c_uint32), ("access", c_uint32), ("size", c_uint32), ("objects", c_uint64),
        ("requests", c_uint64), ("lanes", c_uint64), ("sectors", c_uint64), ("ideal_sectors", c_uint64),
        ("wavefronts", c_uint64), ("ideal_wavefronts", c_uint64), ("sample_mask", c_uint32), ("sample_size", c_uint32),
        ("sample_object", c_int32), ("reserved", c_uint32), ("sample_key", c_uint64), ("sample_offset", c_int64 * 32),
    ]  # fmt: skip


class Print(ctypes.Structure):
    _fields_ = [
        ("block", c_uint64), ("interval", c_uint32), ("thread", c_uint32), ("bytes", c_uint32), ("reserved", c_uint32),
    ]  # fmt: skip


class Results(ctypes.Structure):
    _fields_ = [
        ("findings", c_uint32), ("stats", c_uint32), ("print_lost", c_uint32), ("order_limit", c_uint32),
        ("findings_lost", c_uint64), ("accesses", c_uint64), ("barriers", c_uint64),
        ("blocks_done", c_uint64), ("print_bytes", c_uint64), ("sites_lost", c_uint64), ("shared_bytes", c_uint64),
        ("request_bytes", c_uint64), ("finding", c_void_p), ("stat", c_void_p), ("print", c_void_p),
    ]  # fmt: skip
