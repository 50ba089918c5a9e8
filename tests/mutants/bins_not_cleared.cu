// bins_not_cleared -- the shared bins start with whatever was there.
//
// Wrong      shared memory is not zero at the start.
// From       tests/right/histogram.cu
// launch: grid=3 block=64
// args: x=modulo7:int32[180] count=zero:int32[16] n=180

extern "C" __global__ void bins_not_cleared(const int* x, int* count, int n) {
    __shared__ int bins[16];
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;

    // clearing is missing here
    __syncthreads();                                        // B0: the bins are cleared before anyone counts
    if (i < n) {
        atomicAdd(&bins[x[i]], 1);  //! uninitialised
    }
    __syncthreads();                                        // B1: everyone has counted before the bins are read
    if (t < 16) {
        atomicAdd(&count[t], bins[t]);  //! uninitialised
    }
}
