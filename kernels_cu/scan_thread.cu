// scan_thread -- one thread walks whole rows, step by step: as many at once as there are channels.
//
// What       forward or backward scan, in the order of the loop; each thread owns CHANNELS neighbouring channels.
// Algorithm  "thread". The least work there is, and parallel only across rows: right for many short rows, and for a CPU.
// Used in    ssmlab.scan; notebook 05.   Oracle: ssmlab.reference.scan.
//
// Mapping    thread i of the grid owns channels i % parts * CHANNELS ... of batch i / parts.
// Global     each byte moves once; STEPS steps are loaded before the first is used.
// Barriers   none.
// Rounding   that of the loop itself: one multiply-add a step.
// Needs      CHANNELS, STEPS, THREADS, ALIGNED (1: groups of VEC channels start at multiples of 16 bytes).
// compile: -DELEMENT_FLOAT -DWIDE=1 -DALIGNED=1 -DCHANNELS=4 -DSTEPS=4 -DTHREADS=64
// compile: -DELEMENT_HALF -DWIDE=0 -DALIGNED=0 -DCHANNELS=1 -DSTEPS=8 -DTHREADS=64 -DBACKWARD=1 -DPACKED=1
#include "scan_step.cuh"

struct Group {                                  // one step of a thread's channels
    element at[CHANNELS];
};

// WHOLE: all CHANNELS exist and are neighbours in memory, so one access (or a plain loop, on a CPU) takes them.
template <bool WHOLE>
__device__ __forceinline__ Group read_group(const element* from, long long stride, int mine, element otherwise) {
    Group group;
    if constexpr (WHOLE && ALIGNED && CHANNELS == VEC) {
        const Pack<CHANNELS> pack = read_pack<CHANNELS>(from);
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) {
            group.at[i] = to_element(pack.get(i));
        }
    } else {
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) {
            group.at[i] = WHOLE ? from[i] : i < mine ? from[i * stride] : otherwise;
        }
    }
    return group;
}

template <bool WHOLE>
__device__ __forceinline__ void write_group(element* to, long long stride, int mine, const Group& group) {
    if constexpr (WHOLE && ALIGNED && CHANNELS == VEC) {
        Pack<CHANNELS> pack;
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) {
            pack.put(i, group.at[i]);
        }
        write_pack<CHANNELS>(to, pack);
    } else {
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) {
            if (WHOLE) {
                to[i] = group.at[i];
            } else if (i < mine) {
                to[i * stride] = group.at[i];
            }
        }
    }
}

template <bool WHOLE>
__device__ __forceinline__ void walk(const Problem& task, const Row& row, int mine) {
    const long long number = number_of(task, row.batch, row.channel);
    real state[CHANNELS];
#pragma unroll
    for (int i = 0; i < CHANNELS; ++i) {
        state[i] = WHOLE || i < mine ? begin_of(task, number + i) : real(0);
    }
    for (long long first = 0; first < task.length; first += STEPS) {
        const int room = task.length - first < STEPS ? (int)(task.length - first) : STEPS;
        Group a[STEPS], x[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const long long t = time_of(task, first + (s < room ? s : 0));
            a[s] = read_group<WHOLE>(row.a + t * task.a_at.time, task.a_at.channel, mine, to_element(1));
            x[s] = read_group<WHOLE>(row.x + t * task.x_at.time, task.x_at.channel, mine, to_element(0));
        }
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            if (s < room) {
                const int kind = mark_at(task, row, first + s);
                Group value, slope;
#pragma unroll
                for (int i = 0; i < CHANNELS; ++i) {
                    real y = 0, dy = 0;
                    if (WHOLE || i < mine) {
                        const real previous = BACKWARD ? h_before(task, row, kind, i, first + s) : real(0);
                        take_step(task, kind, row.channel + i, to_real(a[s].at[i]), to_real(x[s].at[i]), previous,
                                  state[i], y, dy);
                    }
                    value.at[i] = to_element(y);
                    slope.at[i] = to_element(dy);
                }
                const long long t = time_of(task, first + s);
                write_group<WHOLE>(row.out + t * task.out_at.time, task.out_at.channel, mine, value);
                if (BACKWARD) {
                    write_group<WHOLE>(row.da + t * task.out_at.time, task.out_at.channel, mine, slope);
                }
            }
        }
    }
    if (!PACKED && task.is(WANTS_END)) {
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) {
            if (WHOLE || i < mine) {
                task.end[number + i] = state[i];
            }
        }
    }
}

extern "C" __global__ __launch_bounds__(THREADS)
void scan_thread(const element* __restrict__ a, const element* __restrict__ x, const element* __restrict__ h,
                 element* __restrict__ out, element* __restrict__ da, const real* __restrict__ begin, real* __restrict__ end,
                 const real* __restrict__ initial, const int* __restrict__ marks, const int* __restrict__ before,
                 long long a_batch, long long a_time, long long a_channel, long long x_batch, long long x_time,
                 long long x_channel, long long h_batch, long long h_time, long long h_channel, long long out_batch,
                 long long out_time, long long out_channel, long long batches, long long channels, long long length,
                 int flags) {
    const Problem task = {a, x, h, out, da, begin, end, initial, marks, before,
                          {a_batch, a_time, a_channel}, {x_batch, x_time, x_channel}, {h_batch, h_time, h_channel},
                          {out_batch, out_time, out_channel}, batches, channels, length, flags};
    const long long parts = (channels + CHANNELS - 1) / CHANNELS;       // threads for one batch row
    const long long index = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (index >= batches * parts) {
        return;
    }
    const Row row = row_at(task, index / parts, index % parts * CHANNELS);
    const int mine = channels - row.channel < CHANNELS ? (int)(channels - row.channel) : CHANNELS;
    if (WIDE && mine == CHANNELS) {
        walk<true>(task, row, mine);
    } else {
        walk<false>(task, row, mine);
    }
}
