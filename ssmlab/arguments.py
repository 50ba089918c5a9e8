"""Checks what a kernel is given against the kernel's own parameter list, with the same words on a CPU and on a GPU.

A kernel launch passes raw bytes: nothing in CUDA notices a float64 array behind a `float*`, a Python float (8 bytes) in
the place of a `float` (4 bytes), or a length that does not fit into an `int`. Here a float is cast to the parameter's
type, and the others are errors that name the argument, its value and the rule, before anything is launched.

What a parameter accepts
    T*                 a NumPy array, a torch tensor or a CuPy array of T's dtype; None for a null pointer
                       integers: the same size, either sign; bool and one-byte integers for each other
                       __nv_bfloat16*: torch.bfloat16, or uint16 (NumPy has no bfloat16) holding its bits
                       float4* and the like: the lane's dtype, a whole number of vectors, an aligned start
                       struct*: any dtype, a whole number of structs, an aligned start; void*: anything
    int, unsigned, …   int, bool and NumPy integers that fit
    float, double, …   numbers; rounded to the parameter's type; a finite number that would overflow is refused
    bool               bool, or 0 or 1
    float4, a struct   as many numbers as it has lanes; bytes, np.void, a structured scalar or a
                       ctypes.Structure of its size
    unknown            (a GPU launch whose parameter type only a compiler could know) arrays, ints and NumPy scalars

A raw pointer knows no strides, so arrays must be C-contiguous, unless the kernel was made with `strided=True`: then it
says that it takes the strides as arguments of their own, and any view is passed by its first element.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .simt.signature import KernelInfo, Parameter, TypeInfo

MAX_THREADS = 1024  # of one block; with the limits below, the same from sm_75 to sm_120
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED = 227 * 1024  # [B] of one block: what sm_90 and later offer, and what the CPU offers


@dataclass(slots=True)
class ArrayInfo:
    """What is known of an array without touching its data. strides in bytes; device: "cpu" or "cuda:<n>"."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str  # NumPy's name, or "bfloat16"
    itemsize: int
    address: int
    device: str
    writable: bool
    source: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize

    @property
    def contiguous(self) -> bool:
        expected = self.itemsize
        for axis in range(len(self.shape) - 1, -1, -1):
            length = self.shape[axis]
            if length != 1 and self.strides[axis] != expected:
                return self.nbytes == 0
            expected *= length
        return True

    @property
    def span(self) -> tuple[int, int]:
        """[lowest address, highest address) of the bytes that the array's elements cover."""
        if not self.nbytes:
            return self.address, self.address
        reaches = [(length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True)]
        low = self.address + sum(min(reach, 0) for reach in reaches)
        high = self.address + sum(max(reach, 0) for reach in reaches) + self.itemsize
        return low, high


@dataclass(slots=True)
class Argument:
    """One argument that passed the checks.

    data    the bytes of the value that the kernel receives: a scalar in its exact size, or an 8-byte address
    array   of a pointer: what it points to; None for a null pointer and for values.
            The bytes of two arguments may overlap (`ArrayInfo.span`); a CPU launch may then move them only together.
    """

    name: str
    parameter: Parameter
    data: bytes
    array: ArrayInfo | None = None


# ---- launch shapes


def three(value: Any, what: str) -> tuple[int, int, int]:
    """A grid or a block as three sizes. Raises TypeError, or ValueError for a negative size or more than three."""
    sizes = (value,) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else value
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence) or not 1 <= len(sizes) <= 3:
        raise TypeError(f"{what} is {value!r}: it must be a tuple of one to three integers")
    for size in sizes:
        if isinstance(size, (bool, np.bool_)) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"{what} is {value!r}: {size!r} is not an integer")
        if size < 0:
            raise ValueError(f"{what} is {value!r}: {size} is negative")
    return (*(int(size) for size in sizes), 1, 1)[:3]


def check_shape(
    kernel: KernelInfo,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_mem: int,
    *,
    max_threads: int = MAX_THREADS,
    max_shared: int = MAX_SHARED,
    static_shared: int = 0,
    machine: str = "a block",
) -> None:
    """Raises ValueError with both numbers for a launch that is too large. max_threads: of this kernel on its device."""
    for axis, size, limit in zip("xyz", grid, MAX_GRID, strict=True):
        if size > limit:
            raise ValueError(
                f"kernel {kernel.name!r}: grid {grid} has {size} blocks along {axis}: at most {limit} are possible"
            )
    threads = math.prod(block)
    for axis, size, limit in zip("xyz", block, MAX_BLOCK, strict=True):
        if size > limit:
            raise ValueError(
                f"kernel {kernel.name!r}: block {block} has {size} threads along {axis}: at most {limit} are possible"
            )
    if threads > MAX_THREADS:
        raise ValueError(
            f"kernel {kernel.name!r}: block {block} has {threads} threads: a block has at most {MAX_THREADS}"
        )
    if kernel.launch_bounds is not None and threads > kernel.launch_bounds:
        raise ValueError(
            f"kernel {kernel.name!r}: block {block} has {threads} threads: "
            f"its __launch_bounds__ promises at most {kernel.launch_bounds}"
        )
    if threads > max_threads:
        raise ValueError(
            f"kernel {kernel.name!r}: block {block} has {threads} threads: "
            f"its registers leave room for {max_threads} (use __launch_bounds__ to make it use fewer)"
        )
    if isinstance(shared_mem, (bool, np.bool_)) or not isinstance(shared_mem, (int, np.integer)):
        raise TypeError(f"shared_mem is {shared_mem!r}: it must be an integer, in bytes")
    if shared_mem < 0:
        raise ValueError(f"shared_mem is {shared_mem}: it must not be negative")
    if shared_mem + static_shared > max_shared:
        wanted = (
            f"{shared_mem} bytes" if not static_shared else f"{shared_mem} bytes beside {static_shared} static ones"
        )
        raise ValueError(f"kernel {kernel.name!r}: shared_mem asks for {wanted}: {machine} has at most {max_shared}")


# ---- arrays


def array_info(value: Any) -> ArrayInfo | None:
    """The facts about a NumPy array, torch tensor or CuPy array; None for anything else. Imports no library for it."""
    if isinstance(value, np.ndarray):
        interface = value.__array_interface__
        return ArrayInfo(
            value.shape, value.strides, value.dtype.name if value.dtype.fields is None else "struct",
            value.dtype.itemsize, interface["data"][0], "cpu", value.flags.writeable, value,
        )  # fmt: skip
    if isinstance(value, (int, float)) or value is None:
        return None
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor_info(value, torch)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(value, cupy.ndarray):
        return ArrayInfo(
            value.shape, value.strides, value.dtype.name, value.dtype.itemsize, value.data.ptr,
            f"cuda:{value.device.id}", True, value,
        )  # fmt: skip
    return None


def _tensor_info(tensor: Any, torch: Any) -> ArrayInfo:
    device = tensor.device
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise TypeError(f"a tensor of layout {tensor.layout} has no plain memory: pass a dense tensor")
    if device.type not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on device {device}: kernels run on cpu and on cuda")
    if tensor.is_conj() or tensor.is_neg():
        raise TypeError("a tensor with a pending conjugation or negation: pass tensor.resolve_conj().resolve_neg()")
    dtype = tensor.dtype
    name = _TORCH_NAMES.get(dtype)
    if name is None:
        name = _TORCH_NAMES[dtype] = str(dtype).removeprefix("torch.")
    size = tensor.element_size()
    place = "cpu" if device.type == "cpu" else f"cuda:{device.index}"
    strides = tuple([step * size for step in tensor.stride()])
    return ArrayInfo(tuple(tensor.shape), strides, name, size, tensor.data_ptr(), place, True, tensor)


_TORCH_NAMES: dict[Any, str] = {}


def array_infos(kernel: KernelInfo, args: Sequence[Any]) -> list[ArrayInfo | None]:
    """array_info of each argument. Raises TypeError where args is no sequence."""
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise TypeError(f"kernel {kernel.name!r}: args is {_shown(args)}: it must be a tuple")
    return [array_info(value) for value in args]


def device_of(kernel: KernelInfo, infos: Sequence[ArrayInfo | None]) -> str | None:
    """The one device that holds all arrays among the arguments; None without arrays. Raises TypeError for a mixture.

    A NumPy array without dimensions does not count: it may be a value.
    """
    first: tuple[int, str] | None = None
    for index, info in enumerate(infos):
        if info is None or (not info.shape and info.device == "cpu"):
            continue
        if first is not None and first[1] != info.device:
            names = [_label(kernel, at) for at in (first[0], index)]
            raise TypeError(
                f"kernel {kernel.name!r}: {names[0]} is on {first[1]} and {names[1]} is on {info.device}: "
                "all arrays must be on one device"
            )
        first = first or (index, info.device)
    return None if first is None else first[1]


class _Where:
    """The start of a message, "kernel 'k': argument 2 (const float* b)"; the text is made only when it is needed."""

    __slots__ = ("index", "kernel")

    def __init__(self, kernel: KernelInfo, index: int):
        self.kernel, self.index = kernel, index

    def __str__(self) -> str:
        return f"kernel {self.kernel.name!r}: {_label(self.kernel, self.index)}"


def _label(kernel: KernelInfo, index: int) -> str:
    if kernel.parameters is None or index >= len(kernel.parameters):
        return f"argument {index}"
    parameter = kernel.parameters[index]
    return f"argument {index} ({' '.join(filter(None, (parameter.ctype, parameter.name)))})"


# ---- binding


def bind(
    kernel: KernelInfo, args: Sequence[Any], infos: Sequence[ArrayInfo | None] | None = None, *, strided: bool = False
) -> list[Argument]:
    """Check the arguments and give the bytes of each. Raises TypeError and ValueError that name the argument.

    args   one for each parameter, see the top of this file
    infos  array_infos of them, where they are known already
    """
    if infos is None:
        infos = array_infos(kernel, args)
    parameters = kernel.parameters
    if parameters is None:
        parameters = tuple(Parameter("", "", None, False, None) for _ in args)
    if len(args) != len(parameters):
        listed = ", ".join(" ".join(filter(None, (p.ctype, p.name))) for p in parameters) or "none"
        raise TypeError(f"kernel {kernel.name!r} takes {len(parameters)} arguments ({listed}): {len(args)} were given")
    bound = []
    for index, parameter in enumerate(parameters):
        where, value, info = _Where(kernel, index), args[index], infos[index]
        name = parameter.name or f"argument {index}"
        if parameter.pointer:
            bound.append(_pointer(where, name, parameter, value, info, strided))
        elif parameter.type is not None:
            bound.append(Argument(name, parameter, _value(where, parameter.type, value)))
        else:
            bound.append(_unknown(where, name, parameter, value, info, strided))
    return bound


def _address(info: ArrayInfo) -> bytes:
    return struct.pack("=Q", info.address if info.nbytes else 0)


def _pointer(
    where: _Where, name: str, parameter: Parameter, value: Any, info: ArrayInfo | None, strided: bool
) -> Argument:
    if value is None:
        return Argument(name, parameter, bytes(8))
    if info is None:
        raise TypeError(f"{where} is a pointer: it needs an array (or None), not {_shown(value)}")
    if not info.contiguous and not strided:
        steps = tuple(
            step // info.itemsize if step % info.itemsize == 0 else step / info.itemsize for step in info.strides
        )
        raise ValueError(
            f"{where}: an array of shape {info.shape} with strides {steps} [elements] is not C-contiguous, and a "
            "pointer knows no strides: pass a contiguous copy, or make the kernel with strided=True "
            "if it takes the strides as arguments"
        )
    if not info.writable and not parameter.const:
        raise ValueError(f"{where}: the array is read-only, and the pointer is not const: the kernel may write to it")
    if parameter.type is not None:
        _check_pointee(where, parameter.type, info)
    return Argument(name, parameter, _address(info), info)


def _check_pointee(where: _Where, kind: TypeInfo, info: ArrayInfo) -> None:
    if kind.kind == "void":
        return
    if not _fits(kind, info):
        wanted = _dtype_name(kind)
        raise TypeError(f"{where}: an array of {info.dtype} was given, {kind.name} needs {wanted}")
    if info.nbytes % max(kind.size, 1):
        raise ValueError(
            f"{where}: shape {info.shape}: {info.nbytes} bytes are no whole number of {kind.name} "
            f"({kind.size} bytes each)"
        )
    if info.nbytes and info.address % kind.alignment:
        raise ValueError(
            f"{where}: the array starts at an address that is {info.address % kind.alignment} bytes past a multiple of "
            f"{kind.alignment}: {kind.name} must start at one (a view that begins in the middle of an array?)"
        )


def _fits(kind: TypeInfo, info: ArrayInfo) -> bool:
    """May a pointer to this type point to this array?"""
    dtype, size = info.dtype, kind.lane_size
    if kind.kind == "struct":
        return True
    if kind.kind == "pointer":
        return dtype in ("int64", "uint64")
    if kind.kind == "half":
        return dtype == "float16"
    if kind.kind == "bfloat16":
        return dtype in ("bfloat16", "uint16")
    if kind.kind == "float":
        return dtype == f"float{8 * size}" or (kind.lanes == 2 and dtype == f"complex{16 * size}")
    letter = "b" if dtype == "bool" else "u" if dtype.startswith("uint") else "i" if dtype.startswith("int") else "-"
    allowed = "biu" if size == 1 else "iu"
    return letter in allowed and info.itemsize == size


def _dtype_name(kind: TypeInfo) -> str:
    if kind.kind == "half":
        return "float16"
    if kind.kind == "bfloat16":
        return "bfloat16 (in NumPy: uint16)"
    if kind.kind == "pointer":
        return "int64 or uint64 (addresses)"
    if kind.kind == "bool":
        return "bool"
    return f"{kind.kind}{8 * kind.lane_size}"


def _value(where: _Where, kind: TypeInfo, value: Any) -> bytes:
    """The bytes of a value of a known type."""
    if type(value) is int and kind.kind in ("int", "uint") and kind.lanes == 1:
        return _integer(where, kind, value)
    if kind.kind == "struct" or kind.lanes > 1:
        return _compound(where, kind, value)
    value = _plain_number(where, kind, value)
    if kind.kind == "bool":
        if value not in (0, 1) or isinstance(value, float):
            raise TypeError(f"{where} needs True or False, not {_shown(value)}")
        return bytes([int(value)])
    if kind.kind in ("int", "uint"):
        if isinstance(value, float):
            raise TypeError(
                f"{where} needs an integer, not {_shown(value)}: convert it with int(), if rounding towards 0 is meant"
            )
        return _integer(where, kind, value)
    return _float_bytes(where, kind, value)


def _integer(where: _Where, kind: TypeInfo, value: int) -> bytes:
    signed = kind.kind == "int"
    try:
        return value.to_bytes(kind.size, sys.byteorder, signed=signed)
    except OverflowError:
        low = -(1 << (8 * kind.size - 1)) if signed else 0
        high = (1 << (8 * kind.size - signed)) - 1
        raise ValueError(f"{where} is {value}: it must be from {low} to {high} to fit into {kind.name}") from None


def _plain_number(where: _Where, kind: TypeInfo, value: Any) -> int | float:
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.shape == () and value.device.type == "cpu":
        value = value.item()
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if array_info(value) is not None:
        raise TypeError(f"{where} is a value of type {kind.name}: it needs a number, not {_shown(value)}")
    raise TypeError(f"{where} needs a number, not {_shown(value)}")


def _float_bytes(where: _Where, kind: TypeInfo, value: int | float) -> bytes:
    try:
        wide = float(value)
    except OverflowError:
        wide = math.inf
        finite = True
    else:
        finite = math.isfinite(wide)
    if kind.kind == "bfloat16":
        data = _bfloat16_bytes(wide)
        rounded = np.frombuffer(bytes(2) + data if sys.byteorder == "little" else data + bytes(2), np.float32)[0]
    else:
        dtype = np.dtype(f"float{8 * kind.size}")
        with np.errstate(over="ignore"):
            rounded = np.float64(wide).astype(dtype)
        data = rounded.tobytes()
    if finite and not np.isfinite(rounded):
        raise ValueError(f"{where} is {value}: it is too large for {kind.name}")
    return data


def _bfloat16_bytes(value: float) -> bytes:
    """Round to the nearest bfloat16, ties to even."""
    with np.errstate(over="ignore"):
        single = np.float64(value).astype(np.float32)
    bits = int(single.view(np.uint32))
    if np.isnan(single):
        bits |= 0x00400000
    elif np.isfinite(single):
        bits += 0x7FFF + ((bits >> 16) & 1)
    return ((bits >> 16) & 0xFFFF).to_bytes(2, sys.byteorder)


def _compound(where: _Where, kind: TypeInfo, value: Any) -> bytes:
    """The bytes of a struct or of a vector such as float4."""
    data = None
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif isinstance(value, (ctypes.Structure, ctypes.Union)):
        data = bytes(value)
    elif isinstance(value, np.void):
        data = value.tobytes()
    elif isinstance(value, np.ndarray) and value.dtype.fields is not None and value.size == 1:
        data = value.tobytes()
    elif kind.lanes > 1 and isinstance(value, (tuple, list, np.ndarray)) and np.ndim(value) == 1:
        if len(value) != kind.lanes:
            raise ValueError(f"{where} has {kind.lanes} lanes: {len(value)} numbers were given")
        lane = TypeInfo(kind.name, kind.kind, kind.lane_size, kind.lane_size)
        return b"".join(_value(where, lane, number) for number in value)
    if data is None:
        numbers = f" {kind.lanes} numbers," if kind.lanes > 1 else ""
        raise TypeError(
            f"{where} is {kind.name}, {kind.size} bytes by value: it needs{numbers} bytes, np.void, a structured "
            f"scalar or a ctypes.Structure, not {_shown(value)}"
        )
    if len(data) != kind.size:
        raise ValueError(f"{where} is {kind.name}: {len(data)} bytes were given, it has {kind.size}")
    return data


def _unknown(
    where: _Where, name: str, parameter: Parameter, value: Any, info: ArrayInfo | None, strided: bool
) -> Argument:
    """A parameter whose type only a compiler knows: what has a size of its own is passed as it is."""
    if info is not None and not (info.device == "cpu" and not info.shape):
        return _pointer(where, name, parameter, value, info, strided)
    if value is None:
        return Argument(name, parameter, bytes(8))
    if isinstance(value, (bytes, bytearray, ctypes.Structure, ctypes.Union)):
        return Argument(name, parameter, bytes(value))
    if isinstance(value, (np.generic, np.ndarray)):
        return Argument(name, parameter, value.tobytes())
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError(f"{where} is {value}: it does not fit into 8 bytes")
        return Argument(name, parameter, (value & (2**64 - 1)).to_bytes(8, sys.byteorder))
    raise TypeError(
        f"{where}: the type of this parameter cannot be read from the text, so {_shown(value)} has no size: "
        "pass a NumPy scalar of the exact type, such as np.float32(0.5)"
    )


def _shown(value: Any) -> str:
    """A value in a message: short, and with its type where the text alone would not show it."""
    info = array_info(value)
    if info is not None:
        return f"an array of {info.dtype} with shape {info.shape}"
    text = repr(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return text if isinstance(value, (int, str, type(None))) else f"{text} ({type(value).__name__})"
