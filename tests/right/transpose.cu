// transpose -- a 32 x 32 tile turned through shared memory, one padding word a row.
//
// Right      rows in, columns out: both global sides contiguous, and 33 words a row keep the banks apart.
// launch: grid=2,1 block=32,8 conflicts=0
// args: x=small[32,64] y=nan[64,32]
// expect: y = x.T

extern "C" __global__ void transpose(const float* x, float* y) {
    __shared__ float tile[32][33];
    const int column = threadIdx.x;
    for (int row = threadIdx.y; row < 32; row += 8) {
        tile[row][column] = x[row * 64 + blockIdx.x * 32 + column];
    }
    __syncthreads();                                        // B0: the tile is loaded before it is read the other way
    for (int row = threadIdx.y; row < 32; row += 8) {
        y[(blockIdx.x * 32 + row) * 32 + column] = tile[column][row];
    }
}
