"""The table of GPUs and the blocks that fit: against NVIDIA's own calculator, datasheets, and a GPU if one is here."""

import pytest

from ssmlab.devices import DEVICES, GENERATIONS, KB, occupancy

# (threads, shared bytes, registers) and what cuda_occupancy.h of CUDA 13.0 gives for 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 and
# 12.0 when all of the L1 may be shared memory. 42,000 random kernels were compared once; these are kept.
CALCULATED = {
    (32, 0, 32): [16, 32, 16, 24, 32, 32, 24],
    (64, 0, 32): [16, 32, 16, 24, 32, 32, 24],
    (256, 0, 32): [4, 8, 6, 6, 8, 8, 6],
    (1024, 0, 32): [1, 2, 1, 1, 2, 2, 1],
    (33, 0, 32): [16, 32, 16, 24, 32, 32, 24],
    (1, 0, 16): [16, 32, 16, 24, 32, 32, 24],
    (96, 1, 40): [10, 16, 16, 16, 16, 16, 16],
    (256, 12288, 32): [4, 8, 6, 6, 8, 8, 6],
    (256, 6144, 32): [4, 8, 6, 6, 8, 8, 6],
    (256, 8192, 32): [4, 8, 6, 6, 8, 8, 6],
    (256, 32768, 32): [2, 4, 3, 3, 6, 6, 3],
    (256, 32767, 48): [2, 4, 3, 3, 5, 5, 3],
    (64, 2048, 40): [16, 24, 16, 24, 24, 24, 24],
    (128, 101376, 64): [0, 1, 1, 1, 2, 2, 1],
    (128, 101377, 64): [0, 1, 0, 0, 2, 2, 0],
    (256, 49152, 32): [1, 3, 2, 2, 4, 4, 2],
    (512, 65536, 64): [1, 2, 1, 1, 2, 2, 1],
    (1024, 0, 64): [1, 1, 1, 1, 1, 1, 1],
    (1024, 0, 65): [0, 0, 0, 0, 0, 0, 0],
    (768, 0, 80): [1, 1, 1, 1, 1, 1, 1],
    (992, 1000, 66): [0, 0, 0, 0, 0, 0, 0],
    (128, 16256, 255): [2, 2, 2, 2, 2, 2, 2],
    (32, 300, 168): [12, 12, 12, 12, 12, 12, 12],
    (256, 232448, 32): [0, 0, 0, 0, 1, 1, 0],
}

# [TFLOPS] float32 in the datasheets
DATASHEET = {"T4": 8.1, "A100": 19.5, "RTX 3090": 35.6, "A10": 31.2, "L4": 30.3, "RTX 4090": 82.6, "H100": 67,
             "H200": 67, "RTX 5090": 104.8}


@pytest.mark.parametrize("kernel", CALCULATED, ids=str)
def test_the_blocks_are_those_of_nvidias_calculator(kernel):
    assert [occupancy(generation, *kernel).blocks for generation in GENERATIONS.values()] == CALCULATED[kernel]


@pytest.mark.parametrize("name, device", DEVICES.items())
def test_lanes_and_clock_make_the_datasheets_flops(name, device):
    if device.boost is None:
        assert name not in DATASHEET and device.flops is device.exponentials is device.ridge is None
    else:
        assert abs(device.flops / 1e12 - DATASHEET[name]) <= 0.006 * DATASHEET[name]
        assert device.exponentials == device.flops / 2 / device.generation.fp32_lanes * 16


def test_names_and_compilers_agree():
    names = {device.sm for device in DEVICES.values()}
    assert names == {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}
    assert all(name == device.name for name, device in DEVICES.items())


def test_the_binding_resource_is_named():
    assert occupancy("H200", 256, 12 * KB, 24).limited_by == ("threads",)
    assert occupancy("T4", 256, 32 * KB).limited_by == ("shared memory",)
    assert occupancy("A100", 32, 0).limited_by == ("blocks",)
    assert occupancy("A100", 256, 0, 255).limited_by == ("registers",)
    assert occupancy("T4", 64, 4 * KB).limited_by == ("threads", "blocks", "shared memory")


def test_share_counts_whole_warps_and_threads_the_threads():
    odd = occupancy("A100", 33, 40 * KB)
    assert (odd.blocks, odd.threads, odd.share) == (4, 132, 8 / 64)
    assert occupancy("RTX 3090", 1024).share == 32 / 48
    assert occupancy("H200", 256).share == 1


def test_a_kernel_that_cannot_run_has_no_blocks():
    assert occupancy("T4", 256, 64 * KB).blocks == 1 and occupancy("T4", 256, 64 * KB + 1).blocks == 0
    assert occupancy("H200", 256, 227 * KB).blocks == 1 and occupancy("H200", 256, 227 * KB + 1).blocks == 0
    assert occupancy("H200", 1024, 0, 64).blocks == 1 and occupancy("H200", 1024, 0, 65).blocks == 0


@pytest.mark.parametrize("wrong, words", [
    ({"device": "H300"}, "device is 'H300': known are T4, A100"),
    ({"threads": 0}, "threads is 0: it must be 1 to 1024"),
    ({"threads": 1025}, "threads is 1025: it must be 1 to 1024"),
    ({"registers": 256}, "registers is 256: it must be 1 to 255"),
    ({"shared_bytes": -1}, "shared_bytes is -1: it must be 0 or more"),
    ({"shared_bytes": float("nan")}, "shared_bytes is nan"),
])
def test_impossible_kernels_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        occupancy(**{"device": "T4", "threads": 32, **wrong})


@pytest.mark.gpu
def test_the_gpu_that_is_here_says_the_same():
    import torch
    from cupy.cuda import driver

    from ssmlab.lab import machine

    here = torch.cuda.get_device_properties(0)
    generation = GENERATIONS[here.major, here.minor]
    assert here.shared_memory_per_multiprocessor == generation.shared_per_sm
    assert here.shared_memory_per_block_optin == generation.shared_per_block
    assert here.max_threads_per_multi_processor == generation.threads_per_sm
    kernel = machine.access_kernel("access_stride.cu", "strided_copy", "-DELEMENT=float")
    kernel.max_dynamic_shared_size_bytes = generation.shared_per_block
    for threads in (32, 96, 256, 1024):
        for shared in (0, 1000, 6 * KB, 12 * KB, 32 * KB, 33 * KB, 48 * KB):
            theirs = driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, threads, shared)
            assert occupancy(generation, threads, shared, kernel.num_regs).blocks == theirs, (threads, shared)
