// bins_cleared_late -- threads count while others still clear.
//
// Wrong      a plain write and an atomic on the same bin are unordered without B0.
// From       tests/right/histogram.cu
// launch: grid=3 block=64
// args: x=modulo7:int32[180] count=zero:int32[16] n=180

extern "C" __global__ void bins_cleared_late(const int* x, int* count, int n) {
    __shared__ int bins[16];
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;

    if (t < 16) {
        bins[t] = 0;  //! race
    }
    // B0 is missing here
    if (i < n) {
        atomicAdd(&bins[x[i]], 1);  //! race
    }
    __syncthreads();                                        // B1: everyone has counted before the bins are read
    if (t < 16) {
        atomicAdd(&count[t], bins[t]);
    }
}
