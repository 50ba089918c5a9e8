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
// Needs      CHANNELS, STEPS, THREADS.
#include "scan_step.cuh"

typedef Pack<CHANNELS> Group;

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
    const long long parts = (channels + CHANNELS - 1) / CHANNELS;       // threads a batch row
    const long long index = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (index >= batches * parts) {
        return;
    }
    const Row row = row_at(task, index / parts, index % parts * CHANNELS);
    const int mine = channels - row.channel < CHANNELS ? (int)(channels - row.channel) : CHANNELS;
    const bool wide = WIDE && mine == CHANNELS;

    real state[CHANNELS];
#pragma unroll
    for (int i = 0; i < CHANNELS; ++i) {
        state[i] = i < mine ? begin_of(task, number_of(task, row.batch, row.channel + i)) : real(0);
    }
    for (long long first = 0; first < length; first += STEPS) {
        Group now_a[STEPS], now_x[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            const long long t = time_of(task, first + s);
            if (first + s < length && wide) {
                now_a[s] = *reinterpret_cast<const Group*>(row.a + t * a_time);
                now_x[s] = *reinterpret_cast<const Group*>(row.x + t * x_time);
            } else {
#pragma unroll
                for (int i = 0; i < CHANNELS; ++i) {
                    const bool inside = first + s < length && i < mine;
                    now_a[s].at[i] = inside ? row.a[t * a_time + i * a_channel] : to_element(1);
                    now_x[s].at[i] = inside ? row.x[t * x_time + i * x_channel] : to_element(0);
                }
            }
        }
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            if (first + s < length) {
                const long long t = time_of(task, first + s);
                const int kind = mark_at(task, row, first + s);
                Group value, slope;
#pragma unroll
                for (int i = 0; i < CHANNELS; ++i) {
                    real y = 0, dy = 0;
                    if (i < mine) {
                        const real previous = BACKWARD ? h_before(task, row, kind, i, first + s) : real(0);
                        take_step(task, kind, row.channel + i, to_real(now_a[s].at[i]), to_real(now_x[s].at[i]), previous,
                                  state[i], y, dy);
                    }
                    value.at[i] = to_element(y);
                    slope.at[i] = to_element(dy);
                }
                if (wide) {
                    *reinterpret_cast<Group*>(row.out + t * out_time) = value;
                    if (BACKWARD) {
                        *reinterpret_cast<Group*>(row.da + t * out_time) = slope;
                    }
                } else {
#pragma unroll
                    for (int i = 0; i < CHANNELS; ++i) {
                        if (i < mine) {
                            row.out[t * out_time + i * out_channel] = value.at[i];
                            if (BACKWARD) {
                                row.da[t * out_time + i * out_channel] = slope.at[i];
                            }
                        }
                    }
                }
            }
        }
    }
    if (!PACKED && task.is(WANTS_END)) {
#pragma unroll
        for (int i = 0; i < CHANNELS; ++i) {
            if (i < mine) {
                end[row.batch * channels + row.channel + i] = state[i];
            }
        }
    }
}
