"""A few real GPUs in numbers, and how many blocks of a kernel one of their multiprocessors holds.

Plain arithmetic on facts that NVIDIA publishes; nothing here asks a GPU. A number that could not be verified is None.
Sizes are in bytes (1 KB = 1024 B inside a chip), rates per second (1 GB/s = 10^9 B/s, as datasheets count).
"""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024
WARP = 32
REGISTERS = 65_536  # 32-bit registers of a multiprocessor; 7.5 to 12.0 alike (CUDA C++ Programming Guide, as below)
PARTITIONS = 4  # quarters of a multiprocessor; a warp lives in one and takes its registers there (cuda_occupancy.h)
REGISTER_GRAIN = 256  # registers are handed out to a warp in steps of this many (cuda_occupancy.h)
MOST_THREADS = 1024  # a block
MOST_REGISTERS = 255  # a thread


@dataclass(frozen=True)
class Generation:
    """What all GPUs of one compute capability share; everything is for one multiprocessor (SM).

    shared_per_sm, shared_per_block   [B] most shared memory of an SM, and of one block (above 48 KB by opting in)
    reserved                          [B] the driver takes from each block's shared memory
    shared_grain                      [B] shared memory is handed out in steps of this size
    fp32_lanes, exponentials          results a clock: multiply-adds, and 2^x on the special function units
    """

    capability: tuple[int, int]
    name: str
    threads_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    reserved: int
    shared_grain: int
    fp32_lanes: int
    exponentials: int


# Threads, blocks, shared memory: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the
# same numbers stand in CCCL's cuda/__device/arch_traits.h. Grain and reserve: cuda_occupancy.h of CUDA 13.0.
# Results a clock: the same guide, "Throughput of Native Arithmetic Instructions" (add, multiply, multiply-add; and
# reciprocal, square root, base-2 logarithm and exponential). 10.0: the FlashAttention-4 paper counts 16 for a B200 too.
GENERATIONS = {
    generation.capability: generation
    for generation in (
        Generation((7, 5), "Turing", 1024, 16, 64 * KB, 64 * KB, 0, 256, 64, 16),
        Generation((8, 0), "Ampere", 2048, 32, 164 * KB, 163 * KB, KB, 128, 64, 16),
        Generation((8, 6), "Ampere", 1536, 16, 100 * KB, 99 * KB, KB, 128, 128, 16),
        Generation((8, 9), "Ada", 1536, 24, 100 * KB, 99 * KB, KB, 128, 128, 16),
        Generation((9, 0), "Hopper", 2048, 32, 228 * KB, 227 * KB, KB, 128, 128, 16),
        Generation((10, 0), "Blackwell", 2048, 32, 228 * KB, 227 * KB, KB, 128, 128, 16),
        Generation((12, 0), "Blackwell", 1536, 24, 100 * KB, 99 * KB, KB, 128, 128, 16),
    )
}


@dataclass(frozen=True)
class Device:
    """One product. `boost` is the clock [MHz] that its datasheet promises, or None; `bandwidth` [B/s] is of DRAM."""

    name: str
    generation: Generation
    sms: int
    bandwidth: float
    l2: int
    boost: float | None

    @property
    def sm(self):
        """The name that compilers use: "sm_90"."""
        return "sm_{}{}".format(*self.generation.capability)

    @property
    def flops(self):
        """[FLOP/s] of float32, a multiply-add counted as two; None without a clock."""
        return None if self.boost is None else 2 * self.generation.fp32_lanes * self.sms * self.boost * 1e6

    @property
    def exponentials(self):
        """[1/s] exponentials of float32; None without a clock."""
        return None if self.boost is None else self.generation.exponentials * self.sms * self.boost * 1e6

    @property
    def ridge(self):
        """[FLOP/B] where the bandwidth roof and the arithmetic roof meet; None without a clock."""
        return None if self.boost is None else self.flops / self.bandwidth


def _device(name, capability, sms, bandwidth, l2_mb, boost):
    return Device(name, GENERATIONS[capability], sms, bandwidth * 1e9, l2_mb * KB * KB, boost)


DEVICES = {
    device.name: device
    for device in (
        # Turing architecture whitepaper, appendix on the T4; T4 datasheet: 320 GB/s, 8.1 TFLOPS.
        _device("T4", (7, 5), 40, 320, 4, 1590),
        # A100 datasheet, SXM 80 GB: 2,039 GB/s, 19.5 TFLOPS; A100 whitepaper: 108 SMs, 40 MB, 1410 MHz.
        _device("A100", (8, 0), 108, 2039, 40, 1410),
        # GA102 whitepaper: GeForce RTX 3090, 82 SMs, 1695 MHz, 936 GB/s, 6 MB, 35.6 TFLOPS.
        _device("RTX 3090", (8, 6), 82, 936, 6, 1695),
        # A10 datasheet: 600 GB/s, 31.2 TFLOPS; 72 SMs and 6 MB: GA102 whitepaper and the product brief (1695 MHz).
        _device("A10", (8, 6), 72, 600, 6, 1695),
        # L4 datasheet: 300 GB/s, 30.3 TFLOPS; Ada whitepaper, appendix: 58 SMs (7,424 lanes), 48 MB, 2040 MHz.
        _device("L4", (8, 9), 58, 300, 48, 2040),
        # Ada whitepaper: GeForce RTX 4090, 128 SMs, 2520 MHz, 1,008 GB/s, 72 MB, 82.6 TFLOPS.
        _device("RTX 4090", (8, 9), 128, 1008, 72, 2520),
        # H100 datasheet, SXM: 3.35 TB/s, 67 TFLOPS; Hopper whitepaper: 132 SMs, 50 MB; 1980 MHz makes 66.9 TFLOPS.
        _device("H100", (9, 0), 132, 3350, 50, 1980),
        # H200 datasheet: 4.8 TB/s, 67 TFLOPS. 132 SMs, 60 MB, 1980 MHz: what the driver of a measured H200 reports.
        _device("H200", (9, 0), 132, 4800, 60, 1980),
        # HGX B200 datasheet: 7.7 TB/s a GPU; Blackwell tuning guide: 126 MB; 148 SMs: what a driver reports
        # (pytorch/ao, pull request 4002). No clock was found in a document of NVIDIA's.
        _device("B200", (10, 0), 148, 7700, 126, None),
        # RTX Blackwell whitepaper: GeForce RTX 5090, 170 SMs, 2407 MHz, 1,792 GB/s, 96 MB, 104.8 TFLOPS.
        _device("RTX 5090", (12, 0), 170, 1792, 96, 2407),
    )
}


@dataclass(frozen=True)
class Occupancy:
    """How much of a kernel one SM holds at a time.

    blocks     resident blocks; 0 means that the kernel cannot run there
    limits     blocks that each resource alone would allow: "threads", "blocks", "shared memory", "registers"
    limited_by the resources that allow no more, in that order
    threads    resident threads
    share      resident warps over the most an SM can hold, 0 to 1: what tools call (theoretical) occupancy
    """

    blocks: int
    limits: dict[str, int]
    limited_by: tuple[str, ...]
    threads: int
    share: float


def occupancy(device, threads, shared_bytes=0, registers=32):
    """How many blocks of a kernel fit on one SM of `device` at once, and which resource says no to the next one.

    device         a Device, its name ("T4"), or a Generation
    threads        of a block, 1 to 1024
    shared_bytes   [B] static plus dynamic shared memory of a block
    registers      of a thread, 1 to 255

    The rules are those of NVIDIA's calculator (cuda_occupancy.h): whole warps; registers are taken a warp at a time
    inside one quarter of the SM; from 8.0 on the driver adds 1 KB of shared memory to each block.
    Raises ValueError for an unknown device, or for numbers that no kernel can have.
    """
    generation = _generation(device)
    for name, value, most in (("threads", threads, MOST_THREADS), ("registers", registers, MOST_REGISTERS)):
        if not 1 <= value <= most:
            raise ValueError(f"{name} is {value}: it must be 1 to {most}")
    if not shared_bytes >= 0:
        raise ValueError(f"shared_bytes is {shared_bytes}: it must be 0 or more")

    warps = -(-threads // WARP)
    most_warps = generation.threads_per_sm // WARP
    limits = {
        "threads": most_warps // warps,
        "blocks": generation.blocks_per_sm,
        "shared memory": _by_shared_memory(generation, shared_bytes),
        "registers": _by_registers(warps, registers),
    }
    blocks = min(limits.values())
    limited_by = tuple(name for name, limit in limits.items() if limit == blocks)
    return Occupancy(blocks, limits, limited_by, blocks * threads, blocks * warps / most_warps)


def _generation(device):
    if isinstance(device, Generation):
        return device
    if isinstance(device, str):
        if device not in DEVICES:
            raise ValueError(f"device is {device!r}: known are {', '.join(DEVICES)}")
        return DEVICES[device].generation
    return device.generation


def _by_shared_memory(generation, shared_bytes):
    if shared_bytes > generation.shared_per_block:
        return 0
    taken = _round_up(shared_bytes + generation.reserved, generation.shared_grain)
    return generation.shared_per_sm // taken if taken else generation.blocks_per_sm


def _by_registers(warps, registers):
    of_a_warp = _round_up(registers * WARP, REGISTER_GRAIN)
    if of_a_warp * _round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // of_a_warp * PARTITIONS // warps


def _round_up(value, grain):
    return -(-value // grain) * grain
