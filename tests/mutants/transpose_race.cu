// transpose_race -- the tile is read the other way before it is loaded.
//
// Wrong      rows are written by some warps, columns read by others.
// From       tests/right/transpose.cu
// launch: grid=2,1 block=32,8 conflicts=0
// args: x=small[32,64] y=nan[64,32]

extern "C" __global__ void transpose_race(const float* x, float* y) {
    __shared__ float tile[32][33];
    const int column = threadIdx.x;
    for (int row = threadIdx.y; row < 32; row += 8) {
        tile[row][column] = x[row * 64 + blockIdx.x * 32 + column];  //! race
    }
    // B0 is missing here
    for (int row = threadIdx.y; row < 32; row += 8) {
        y[(blockIdx.x * 32 + row) * 32 + column] = tile[column][row];  //! race
    }
}
