// block_of_1025 -- a block of 5 * 5 * 41 = 1025 threads.
//
// Wrong      a block holds at most 1024 threads; each side alone would be allowed.
// From       tests/right/block_3d.cu
// launch: grid=1 block=5,5,41
// args: y=zero:int32[1024]
// refused: 1025

extern "C" __global__ void block_of_1025(int* y) {
    const int i = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    if (i < 1024) {
        y[i] = i;
    }
}
