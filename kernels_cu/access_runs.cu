// doubled -- y = 2 x; each thread takes a run of RUN numbers. Exercise 3.A starts here.
// compile: -DRUN=4
extern "C" __global__ void doubled(const float* x, float* y, int n) {
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < RUN; k++) {
        const int i = thread * RUN + k;
        if (i < n) {
            y[i] = 2 * x[i];
        }
    }
}
