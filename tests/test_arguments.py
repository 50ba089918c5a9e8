"""Arguments against the kernel's own parameter list, and launch shapes against the limits, before any launch."""

import ctypes
import re
import struct

import numpy as np
import pytest
import torch

from ssmlab import arguments
from ssmlab.simt.outline import Outline


def kernel(parameters, bounds=""):
    """What the text alone says of `k(parameters)`."""
    return Outline(f'extern "C" __global__ void {bounds} k({parameters}) {{}}', "kernel.cu").kernel("k")


def one(parameter, value, **kwargs):
    return arguments.bind(kernel(parameter), (value,), **kwargs)[0]


def refused(parameter, value, error, words, **kwargs):
    with pytest.raises(error) as caught:
        one(parameter, value, **kwargs)
    told = str(caught.value)
    assert told.startswith("kernel 'k': argument 0 (") and words in told, told


def test_the_count_is_checked_and_the_list_is_shown():
    with pytest.raises(
        TypeError, match=re.escape("kernel 'k' takes 2 arguments (const float* a, int n): 1 were given")
    ):
        arguments.bind(kernel("const float* a, int n"), (np.zeros(1, np.float32),))
    assert arguments.bind(kernel(""), ()) == []
    with pytest.raises(TypeError, match="must be a tuple"):
        arguments.bind(kernel("int n"), 3)


# ---- values


@pytest.mark.parametrize(
    "value, data",
    [
        (5.0, struct.pack("f", 5)),
        (2, struct.pack("f", 2)),
        (np.float64(1 / 3), np.float32(1 / 3).tobytes()),
        (np.int8(-1), struct.pack("f", -1)),
        (float("inf"), struct.pack("f", float("inf"))),
        (np.array(0.5), struct.pack("f", 0.5)),
        (torch.tensor(0.5), struct.pack("f", 0.5)),
    ],
)
def test_a_python_float_reaches_a_float_parameter_in_four_bytes(value, data):
    assert one("float x", value).data == data


@pytest.mark.parametrize("value", [5.0, 2.0, 1.5, 0.1, 1 / 3])
def test_each_float_that_cupy_would_mangle_arrives(value):
    assert np.frombuffer(one("float x", value).data, np.float32)[0] == np.float32(value)


@pytest.mark.parametrize(
    "parameter, low, high",
    [
        ("int n", -(2**31), 2**31 - 1),
        ("unsigned n", 0, 2**32 - 1),
        ("long long n", -(2**63), 2**63 - 1),
        ("unsigned long long n", 0, 2**64 - 1),
        ("signed char n", -128, 127),
        ("unsigned char n", 0, 255),
        ("short n", -(2**15), 2**15 - 1),
        ("int64_t n", -(2**63), 2**63 - 1),
        ("size_t n", 0, 2**64 - 1),
    ],
)
def test_integers_must_fit(parameter, low, high):
    for value in (low, high):
        assert int.from_bytes(one(parameter, value).data, "little", signed=low < 0) == value
    for value in (low - 1, high + 1):
        refused(parameter, value, ValueError, f"is {value}: it must be from {low} to {high} to fit into")


@pytest.mark.parametrize(
    "parameter, value, error, words",
    [
        ("int n", 3.0, TypeError, "needs an integer, not 3.0 (float)"),
        ("int n", np.float32(3), TypeError, "needs an integer"),
        ("int n", "3", TypeError, "needs a number, not '3'"),
        ("int n", None, TypeError, "needs a number, not None"),
        ("int n", 3 + 0j, TypeError, "needs a number"),
        ("int n", np.zeros(3, np.int32), TypeError, "it needs a number, not an array of int32 with shape (3,)"),
        ("float x", torch.zeros(2), TypeError, "it needs a number, not an array of float32 with shape (2,)"),
        ("float x", 1e39, ValueError, "is 1e+39: it is too large for float"),
        ("float x", 10**400, ValueError, "it is too large for float"),
        ("__half x", 1e6, ValueError, "too large for __half"),
        ("bool x", 2, TypeError, "needs True or False, not 2"),
        ("bool x", 1.0, TypeError, "needs True or False"),
        ("float4 v", (1, 2, 3), ValueError, "has 4 lanes: 3 numbers were given"),
        ("float4 v", 1.0, TypeError, "it needs 4 numbers, bytes"),
        ("const float* x", 3, TypeError, "is a pointer: it needs an array (or None), not 3"),
        ("const float* x", np.float32(3), TypeError, "is a pointer"),
        ("const float* x", [1.0], TypeError, "is a pointer"),
    ],
)
def test_values_of_another_kind_are_refused(parameter, value, error, words):
    refused(parameter, value, error, words)


def test_values_of_every_kind_have_the_size_of_their_type():
    assert one("int n", True).data == struct.pack("i", 1) and one("int n", np.int64(-3)).data == struct.pack("i", -3)
    assert one("double x", 1 / 3).data == struct.pack("d", 1 / 3)
    assert one("__half x", 0.1).data == np.float16(0.1).tobytes()
    assert one("bool x", np.True_).data == b"\1" and one("bool x", 0).data == b"\0"
    assert (
        one("float4 v", (1, 2, 3, 4)).data
        == struct.pack("4f", 1, 2, 3, 4)
        == one("float4 v", struct.pack("4f", 1, 2, 3, 4)).data
    )
    assert one("float2 v", np.arange(2)).data == struct.pack("2f", 0, 1)


@pytest.mark.parametrize(
    "value", [0.0, 1.0, -2.5, 1 / 3, 3.3895e38, 1e-40, float("inf"), float("nan"), 1 + 2**-8, 1 + 3 * 2**-8]
)
def test_bfloat16_is_rounded_as_torch_does(value):
    data = one("__nv_bfloat16 x", value).data
    want = torch.tensor(value, dtype=torch.float32).to(torch.bfloat16)
    got = torch.frombuffer(bytearray(data), dtype=torch.bfloat16)[0]
    assert torch.equal(got, want) or (got.isnan() and want.isnan())


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_float), ("b", ctypes.c_float)]


def test_structs_come_as_bytes_of_their_size():
    from dataclasses import replace

    from ssmlab.simt.signature import TypeInfo

    info = kernel("Pair p")
    info = replace(
        info, parameters=(replace(info.parameters[0], pointer=False, type=TypeInfo("Pair", "struct", 8, 4)),)
    )
    want = struct.pack("2f", 1, 2)
    kind = np.dtype([("a", "f4"), ("b", "f4")])
    for value in (want, np.array((1, 2), kind), np.array([(1, 2)], kind)[0], Pair(1, 2), bytearray(want)):
        assert arguments.bind(info, (value,))[0].data == want
    with pytest.raises(ValueError, match="4 bytes were given, it has 8"):
        arguments.bind(info, (b"1234",))
    with pytest.raises(TypeError, match="Pair, 8 bytes by value"):
        arguments.bind(info, ((1.0, 2.0),))


def test_a_type_that_only_a_compiler_knows_takes_what_has_a_size():
    assert one("index_t n", 7).data == struct.pack("q", 7) and one("scalar_t x", np.float32(0.5)).data == struct.pack(
        "f", 0.5
    )
    assert one("Pair p", Pair(1, 2)).data == struct.pack("2f", 1, 2)
    array = np.zeros(3)
    assert one("pointer_t x", array).array.source is array
    refused("scalar_t x", 0.5, TypeError, "cannot be read from the text")
    refused("index_t n", 2**64, ValueError, "does not fit into 8 bytes")


# ---- arrays


@pytest.mark.parametrize(
    "parameter, dtypes",
    [
        ("float* x", "float32"),
        ("double* x", "float64"),
        ("int* x", "int32 uint32"),
        ("unsigned* x", "int32 uint32"),
        ("long long* x", "int64 uint64"),
        ("__half* x", "float16"),
        ("unsigned char* x", "uint8 int8 bool"),
        ("bool* x", "uint8 int8 bool"),
        ("__nv_bfloat16* x", "uint16"),
        ("short* x", "int16 uint16"),
        ("void* x", "float32 float64 int32 uint32 int64 uint64 float16 uint8 int8 bool int16 uint16 complex64"),
        ("float4* x", "float32"),
        ("float2* x", "float32 complex64"),
        ("int2* x", "int32 uint32"),
        ("float** x", "int64 uint64"),
    ],
)
def test_the_dtype_must_be_the_one_that_the_pointer_reads(parameter, dtypes):
    every = "float32 float64 int32 uint32 int64 uint64 float16 uint8 int8 bool int16 uint16 complex64".split()
    for dtype in every:
        value = np.zeros(8, dtype)
        if dtype in dtypes.split():
            assert one(parameter, value).array.address == value.ctypes.data
        else:
            refused(parameter, value, TypeError, f"an array of {dtype} was given")


def test_torch_tensors_are_read_where_they_are():
    for dtype, parameter in (
        (torch.bfloat16, "__nv_bfloat16* x"),
        (torch.float16, "half* x"),
        (torch.float32, "float* x"),
        (torch.int64, "long long* x"),
    ):
        tensor = torch.zeros(4, dtype=dtype)
        bound = one(parameter, tensor)
        assert bound.array.address == tensor.data_ptr() and bound.data == struct.pack("Q", tensor.data_ptr())
    assert one("const float* x", torch.zeros(4, requires_grad=True)).array is not None
    refused(
        "float* x",
        torch.zeros(4, dtype=torch.bfloat16),
        TypeError,
        "an array of bfloat16 was given, float needs float32",
    )


def test_null_pointers_and_empty_arrays_are_zero():
    assert one("const float* x", None).data == bytes(8) and one("const float* x", None).array is None
    assert one("float* x", np.zeros((3, 0), np.float32)).data == bytes(8)
    assert one("float* x", torch.zeros(0)).data == bytes(8)


def test_views_are_refused_unless_the_kernel_takes_strides():
    array = np.zeros((4, 6), np.float32)
    refused("float* x", array[:, ::2], ValueError, "shape (4, 3) with strides (6, 2) [elements] is not C-contiguous")
    refused("float* x", array.T, ValueError, "strided=True")
    refused("float* x", torch.zeros(4, 6).T, ValueError, "shape (6, 4) with strides (1, 6)")
    bound = one("float* x", array[::-1, ::2], strided=True).array
    assert bound.address == array[3].ctypes.data and bound.span == (array.ctypes.data, array.ctypes.data + 4 * 23)
    one("float* x", array[2:3, 1:2])  # one element has no strides
    one("float* x", array[1:3])


def test_read_only_arrays_need_a_const_pointer():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    one("const float* x", array)
    refused("float* x", array, ValueError, "read-only")


def test_vectors_need_whole_ones_at_an_aligned_start():
    room = np.zeros(64, np.float32)
    start = -room.ctypes.data % 16 // 4
    one("const float4* x", room[start : start + 8])
    refused("const float4* x", room[start + 1 : start + 9], ValueError, "4 bytes past a multiple of 16")
    refused("const float4* x", room[start : start + 7], ValueError, "28 bytes are no whole number of float4")


@pytest.mark.parametrize(
    "tensor", [torch.zeros(3).to_sparse(), torch.zeros(2, dtype=torch.complex64).conj(), torch.zeros(2, device="meta")]
)
def test_tensors_without_plain_memory_are_refused(tensor):
    with pytest.raises(TypeError, match="a tensor"):
        one("void* x", tensor)


class Elsewhere(torch.Tensor):
    """A CPU tensor that says it is on a GPU."""

    @property
    def device(self):
        return torch.device("cuda:1")


def test_arrays_on_two_machines_are_a_type_error_that_names_both():
    info = kernel("const float* a, float* b, int n")

    def device_of(*args):
        return arguments.device_of(info, arguments.array_infos(info, args))

    here, there = torch.zeros(2), torch.zeros(2).as_subclass(Elsewhere)
    assert device_of(here, np.zeros(2), 3) == "cpu"
    assert device_of(None, there, np.array(3)) == "cuda:1"
    assert device_of(None, None, 3) is None
    with pytest.raises(
        TypeError, match=re.escape("argument 0 (const float* a) is on cpu and argument 1 (float* b) is on cuda:1")
    ):
        device_of(here, there, 3)


# ---- shapes


@pytest.mark.parametrize(
    "value, sizes",
    [(3, (3, 1, 1)), ((4,), (4, 1, 1)), ((1, np.int64(2)), (1, 2, 1)), ([1, 2, 3], (1, 2, 3)), ((0, 5), (0, 5, 1))],
)
def test_sizes_are_completed_to_three(value, sizes):
    assert arguments.three(value, "grid") == sizes


@pytest.mark.parametrize(
    "value, error",
    [
        ((), TypeError),
        ((1, 2, 3, 4), TypeError),
        ("12", TypeError),
        (1.5, TypeError),
        ((1.0,), TypeError),
        ((True,), TypeError),
        (None, TypeError),
        ((-1,), ValueError),
    ],
)
def test_sizes_of_another_kind_are_refused(value, error):
    with pytest.raises(error, match="grid is "):
        arguments.three(value, "grid")


@pytest.mark.parametrize(
    "grid, block, shared, words",
    [
        ((1, 1, 1), (1025, 1, 1), 0, "1025 threads along x: at most 1024"),
        ((1, 1, 1), (5, 5, 41), 0, "1025 threads: a block has at most 1024"),
        ((1, 1, 1), (1, 1, 65), 0, "65 threads along z: at most 64"),
        ((2**31, 1, 1), (1, 1, 1), 0, "2147483648 blocks along x: at most 2147483647"),
        ((1, 65536, 1), (1, 1, 1), 0, "65536 blocks along y: at most 65535"),
        ((1, 1, 65536), (1, 1, 1), 0, "65536 blocks along z: at most 65535"),
        ((1, 1, 1), (1, 1, 1), 227 * 1024 + 1, "shared_mem asks for 232449 bytes: a block has at most 232448"),
        ((1, 1, 1), (1, 1, 1), -1, "shared_mem is -1"),
    ],
)
def test_too_large_launches_are_refused_with_both_numbers(grid, block, shared, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        arguments.check_shape(kernel("int n"), grid, block, shared)
    arguments.check_shape(kernel("int n"), (2**31 - 1, 65535, 65535), (16, 1, 64), 227 * 1024)


def test_launch_bounds_are_a_promise():
    info = kernel("int n", "__launch_bounds__(128)")
    arguments.check_shape(info, (1, 1, 1), (128, 1, 1), 0)
    with pytest.raises(ValueError, match="129 threads: its __launch_bounds__ promises at most 128"):
        arguments.check_shape(info, (1, 1, 1), (129, 1, 1), 0)


def test_a_devices_own_limits_come_with_both_numbers():
    with pytest.raises(ValueError, match="registers leave room for 512"):
        arguments.check_shape(kernel("int n"), (1, 1, 1), (1024, 1, 1), 0, max_threads=512)
    with pytest.raises(ValueError, match="65536 bytes beside 16 static ones: a block on Tesla T4 has at most 65536"):
        arguments.check_shape(
            kernel("int n"),
            (1, 1, 1),
            (1, 1, 1),
            65536,
            max_shared=65536,
            static_shared=16,
            machine="a block on Tesla T4",
        )
