// selective_v3 -- all gradients of the fused scan; states are made again, chunk by chunk, from the saved ones.
//
// What       h[t] = exp(delta A) h[t-1] + delta B[t] u[t],  y[t] = C[t] . h[t] + D u[t].  From the right,
//            g[t] = dL/dh[t] = C[t] dy[t] + a[t+1] g[t+1], and behind the last step the final state's gradient.
// Since v2   backwards. A chunk runs forward once more, from its border, and its states wait in shared memory.
//            Then it runs from its end to its start.
// Used in    notebook 07.   Oracle: autograd of the loop in float64.
// Next       selective_backward: threads share a channel and keep TILE steps in registers; softplus and gate.
//
// Mapping    a block is one warp and has 32 channels of a batch row, a thread each, with its STATES states.
//            grid = batch * ceil(channels / 32). Lanes past the last channel hold zeros, for the shuffles.
// Layout     u, delta, dy, du, ddelta (batch, length, channels), B, C (batch, length, states),
//            A (channels, states), borders (batch, chunks, channels, states): the state before each chunk,
//            d_final, d_initial (batch, channels, states). All contiguous float32.
//            Parts, for the caller to add up over their first axis: dA_part (batch, channels, states),
//            dD_part (batch, channels), dB_part, dC_part (warps, batch, length, states).
// Limits     CHUNK * STATES * 128 B of shared memory, at most 48 KB.
// Shared     CHUNK * STATES * 32 * 4 B, static (CHUNK=8, STATES=16: 16384 B).
// Work       a state and step: 2 exponentials, one on the way there and one on the way back.
// Barriers   none: a thread reads back what it wrote itself.
// Sums       no atomics: states inside a thread, channels by shuffles, the rest by the caller, in one order.
// compile: -DCHUNK=8 -DSTATES=16

static_assert(CHUNK * STATES * 128 <= 48 * 1024, "CHUNK * STATES: the chunk's states must fit into 48 KB");

__device__ __forceinline__ float warp_sum(float value) {    // the sum over all lanes, in every lane
    for (int reach = 16; reach > 0; reach /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, reach);
    }
    return value;
}

extern "C" __global__ __launch_bounds__(32)
void selective_v3(const float* __restrict__ u, const float* __restrict__ delta, const float* __restrict__ A,
                  const float* __restrict__ B, const float* __restrict__ C, const float* __restrict__ D,
                  const float* __restrict__ borders, const float* __restrict__ dy,
                  const float* __restrict__ d_final, float* __restrict__ du, float* __restrict__ ddelta,
                  float* __restrict__ dA_part, float* __restrict__ dB_part, float* __restrict__ dC_part,
                  float* __restrict__ dD_part, float* __restrict__ d_initial, int batches, int length, int channels) {
    __shared__ float h[CHUNK][STATES][32];                  // behind each step; a lane has its own column
    const int lane = threadIdx.x;
    const int warps = (channels + 31) / 32;
    const int warp = blockIdx.x % warps;
    const int batch = blockIdx.x / warps;
    const int channel = warp * 32 + lane;
    const bool here = channel < channels;                   // does this lane have a channel?
    const int chunks = (length + CHUNK - 1) / CHUNK;
    const long long row = ((long long)batch * channels + channel) * STATES;

    float rate[STATES], g[STATES], dA[STATES], dD = 0.0f;
    for (int n = 0; n < STATES; ++n) {
        rate[n] = here ? A[channel * STATES + n] : 0.0f;
        g[n] = here ? d_final[row + n] : 0.0f;
        dA[n] = 0.0f;
    }
    for (int k = chunks - 1; k >= 0; --k) {                 // from the last chunk to the first
        const int first = k * CHUNK;
        const int steps = length - first < CHUNK ? length - first : CHUNK;
        const float* border = borders + (((long long)batch * chunks + k) * channels + channel) * STATES;

        float now[STATES];
        for (int n = 0; n < STATES; ++n) {
            now[n] = here ? border[n] : 0.0f;
        }
        for (int t = 0; t < steps; ++t) {                   // there: the states of the chunk, once more
            const long long time = (long long)batch * length + first + t;
            const float step = here ? delta[time * channels + channel] : 0.0f;
            const float input = here ? u[time * channels + channel] : 0.0f;
            for (int n = 0; n < STATES; ++n) {
                now[n] = expf(step * rate[n]) * now[n] + step * B[time * STATES + n] * input;
                h[t][n][lane] = now[n];
            }
        }
        for (int t = steps - 1; t >= 0; --t) {              // and back
            const long long time = (long long)batch * length + first + t;
            const float step = here ? delta[time * channels + channel] : 0.0f;
            const float input = here ? u[time * channels + channel] : 0.0f;
            const float slope = here ? dy[time * channels + channel] : 0.0f;
            float through_b = 0.0f, through_a = 0.0f;       // what reaches delta * u, and delta by the decay
            for (int n = 0; n < STATES; ++n) {
                const float before = t > 0 ? h[t - 1][n][lane] : here ? border[n] : 0.0f;
                g[n] += C[time * STATES + n] * slope;       // now g[n] is dL/dh[t]
                const float dB = warp_sum(g[n] * step * input);
                const float dC = warp_sum(h[t][n][lane] * slope);
                if (lane == 0) {
                    const long long part = ((long long)warp * batches * length + time) * STATES + n;
                    dB_part[part] = dB;
                    dC_part[part] = dC;
                }
                through_b += g[n] * B[time * STATES + n];
                g[n] *= expf(step * rate[n]);               // on its way to step t - 1
                through_a += g[n] * before * rate[n];
                dA[n] += g[n] * before * step;
            }
            if (here) {
                du[time * channels + channel] = through_b * step + D[channel] * slope;
                ddelta[time * channels + channel] = through_b * input + through_a;
                dD += slope * input;
            }
        }
    }
    if (here) {
        for (int n = 0; n < STATES; ++n) {
            d_initial[row + n] = g[n];
            dA_part[row + n] = dA[n];
        }
        dD_part[(long long)batch * channels + channel] = dD;
    }
}
