// reader_then_writer -- all lanes read one cell, and behind a barrier one thread overwrites it.
//
// Right      many readers of one cell are no hazard; the barrier keeps the writer behind the last of them.
// launch: grid=1 block=96
// args: x=small[96] y=nan[96]
// expect: y = x + x[0] + x[1]

extern "C" __global__ void reader_then_writer(const float* x, float* y) {
    __shared__ float cell;
    const int t = threadIdx.x;
    float sum = x[t];

    if (t == 0) {
        cell = x[0];
    }
    __syncthreads();                                        // B0: the first value is written before it is read
    sum += cell;
    __syncthreads();                                        // B1: everyone has read it before it is overwritten
    if (t == 95) {
        cell = x[1];
    }
    __syncthreads();                                        // B2: the second value is written before it is read
    y[t] = sum + cell;
}
