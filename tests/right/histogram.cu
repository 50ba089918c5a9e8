// histogram -- a shared histogram per block by atomics, then one atomic a bin to the result.
//
// Right      bins are cleared, filled and read in three phases; every update is atomic.
// launch: grid=3 block=64
// args: x=modulo7:int32[180] count=zero:int32[16] n=180
// expect: count = np.bincount(x, minlength=16)

extern "C" __global__ void histogram(const int* x, int* count, int n) {
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
        atomicAdd(&count[t], bins[t]);
    }
}
