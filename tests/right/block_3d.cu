// block_3d -- a block in three dimensions, as large as a block may be.
//
// Right      4 * 8 * 32 = 1024 threads; x runs fastest.
// launch: grid=1 block=4,8,32
// args: y=zero:int32[1024]
// expect: y = np.arange(1024)

extern "C" __global__ void block_3d(int* y) {
    const int i = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    if (i < 1024) {
        y[i] = i;
    }
}
