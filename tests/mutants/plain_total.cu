// plain_total -- blocks add their bins to the result without atomics.
//
// Wrong      two blocks write one word.
// From       tests/right/histogram.cu
// launch: grid=3 block=64
// args: x=modulo7:int32[180] count=zero:int32[16] n=180

extern "C" __global__ void plain_total(const int* x, int* count, int n) {
    __shared__ int bins[16];
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;

    if (t < 16) {
        bins[t] = 0;
    }
    __syncthreads();                                        // B0: the bins are cleared before anyone counts
    if (i < n) {
        atomicAdd(&bins[x[i]], 1);
    }
    __syncthreads();                                        // B1: everyone has counted before the bins are read
    if (t < 16) {
        count[t] += bins[t];  //! global-race
    }
}
