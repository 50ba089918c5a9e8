// selective_v1 -- the selective scan as four separate steps: each reads and writes device memory.
//
// What       delta' = softplus(delta + bias);  a = exp(delta' A), b = delta' B u;  h[t] = a h[t-1] + b;
//            y = (C . h + D u) silu(z).   The way a framework runs it, and what fusion is measured against.
// Used in    notebook 06.   Oracle: ssmlab.reference.selective_scan.   Bytes: ssmlab.ledger.unfused.
//
// Mapping    one thread a result: (batch, length, channels) for the first and last step, (batch, length, channels, states)
//            for the second, (batch, channels, states) for the third, whose thread walks along time.
// Layout     all contiguous float32; B, C (batch, length, states); a, b, h (batch, length, channels, states).
// Limits     any sizes; the threads of a launch must cover the results.
// Global     a, b and h are STATES times as large as u, and move 5 times: nearly all of the traffic.
// Barriers   none.
// Rounding   that of the loop itself.
// compile: -DTHREADS=128

__device__ __forceinline__ long long my_index() { return blockIdx.x * (long long)THREADS + threadIdx.x; }

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v1_softplus(const float* __restrict__ delta, const float* __restrict__ bias, float* __restrict__ step,
                           long long count, int channels) {
    const long long i = my_index();                         // (batch, length, channels)
    if (i < count) {
        const float x = delta[i] + bias[i % channels];
        step[i] = x > 20.0f ? x : log1pf(expf(x));
    }
}

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v1_discretise(const float* __restrict__ step, const float* __restrict__ u, const float* __restrict__ A,
                             const float* __restrict__ B, float* __restrict__ a, float* __restrict__ b, long long count,
                             int channels, int states) {
    const long long i = my_index();                         // (batch, length, channels, states)
    if (i < count) {
        const int n = i % states;
        const long long position = i / states;              // (batch, length, channels)
        const long long time = position / channels;         // (batch, length)
        a[i] = expf(step[position] * A[position % channels * states + n]);
        b[i] = step[position] * B[time * states + n] * u[position];
    }
}

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v1_recur(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ h, long long rows,
                        long long length, long long row) {
    const long long i = my_index();                         // (batch, channels, states): row = channels * states
    if (i < rows) {
        const long long first = i / row * length * row + i % row;
        float state = 0.0f;
        for (long long t = 0; t < length; ++t) {
            state = a[first + t * row] * state + b[first + t * row];
            h[first + t * row] = state;
        }
    }
}

extern "C" __global__ __launch_bounds__(THREADS)
void selective_v1_contract(const float* __restrict__ h, const float* __restrict__ C, const float* __restrict__ u,
                           const float* __restrict__ D, const float* __restrict__ z, float* __restrict__ y,
                           long long count, int channels, int states) {
    const long long i = my_index();                         // (batch, length, channels)
    if (i < count) {
        float sum = 0.0f;
        for (int n = 0; n < states; ++n) {
            sum += C[i / channels * states + n] * h[i * states + n];
        }
        y[i] = (sum + D[i % channels] * u[i]) * z[i] / (1.0f + expf(-z[i]));
    }
}
