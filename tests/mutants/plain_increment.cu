// plain_increment -- bins are counted without atomics.
//
// Wrong      two threads read the same count, and one of them is lost.
// From       tests/right/histogram.cu
// launch: grid=3 block=64
// args: x=modulo7:int32[180] count=zero:int32[16] n=180

extern "C" __global__ void plain_increment(const int* x, int* count, int n) {
    __shared__ int bins[16];
    const int t = threadIdx.x;
    const int i = blockIdx.x * blockDim.x + t;

    if (t < 16) {
        bins[t] = 0;
    }
    __syncthreads();                                        // B0: the bins are cleared before anyone counts
    if (i < n) {
        bins[x[i]] += 1;  //! race
    }
    __syncthreads();                                        // B1: everyone has counted before the bins are read
    if (t < 16) {
        atomicAdd(&count[t], bins[t]);
    }
}
