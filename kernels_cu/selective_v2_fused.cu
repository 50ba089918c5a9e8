// selective_v2 -- the same chain in one kernel: the states stay in registers, nothing of their size touches memory.
//
// What       y[t] = (C[t] . h[t] + D u[t]) silu(z[t]), h[t] = exp(delta' A) h[t-1] + delta' B[t] u[t].
// Since v1   one launch instead of four; a, b and h are never stored.
// Used in    notebook 06.   Oracle: ssmlab.reference.selective_scan.
// Next       selective_forward: threads share a channel, tiles are staged in shared memory and fetched ahead.
//
// Mapping    one thread a channel of a batch row; it walks along time with its STATES states.
// Layout     u, delta, z, y (batch, length, channels), B, C (batch, length, states), A (channels, states), all contiguous
//            float32: neighbour threads, neighbour words; B and C are the same word for all threads of a row.
// Limits     STATES states, in registers.
// Global     each input once, each output once.
// Work       a state and step: 1 exponential, 2 multiplies, 2 multiply-adds.
// Barriers   none: a thread waits for its own loads only, and there are as many threads as channels, which is too few.
// Rounding   the recurrence in the loop's order; y sums the states from the first to the last.
// compile: -DTHREADS=128 -DSTATES=16

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v2(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ A,
                  const float* __restrict__ B, const float* __restrict__ C, const float* __restrict__ D,
                  const float* __restrict__ z, const float* __restrict__ bias, float* __restrict__ y, int batches,
                  long long length, int channels) {
    const long long row = blockIdx.x * (long long)THREADS + threadIdx.x;    // (batch, channels)
    if (row >= (long long)batches * channels) {
        return;
    }
    const int channel = row % channels;
    const long long batch = row / channels;
    const float skip = D[channel], offset = bias[channel];
    float rate[STATES], h[STATES];
    for (int n = 0; n < STATES; ++n) {
        rate[n] = A[channel * STATES + n] * 1.44269504f;    // exp(x) = exp2(x log2(e))
        h[n] = 0.0f;
    }
    for (long long t = 0; t < length; ++t) {
        const long long time = batch * length + t;          // (batch, length)
        const long long at = time * channels + channel;     // (batch, length, channels)
        const float in = u[at], raw = delta[at] + offset, gate = z[at];
        const float step = raw > 20.0f ? raw : log1pf(expf(raw));
        float sum = skip * in;
        for (int n = 0; n < STATES; ++n) {
            h[n] = exp2f(step * rate[n]) * h[n] + step * in * B[time * STATES + n];
            sum += C[time * STATES + n] * h[n];
        }
        y[at] = sum * gate / (1.0f + expf(-gate));
    }
}
