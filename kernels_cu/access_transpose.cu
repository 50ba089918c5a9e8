// transpose -- y = x transposed, one tile of 32 x 32 a block. Start of exercise 3.B.
// compile: -std=c++17
extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][32];                                  // tile[row][column] of x
    const int row = blockIdx.y * 32, column = blockIdx.x * 32;      // the tile's corner in x
    const int lane = threadIdx.x;                                   // 32 lanes, 8 warps: each warp takes every 8th line
    for (int line = threadIdx.y; line < 32; line += 8) {
        if (row + line < rows && column + lane < columns) {
            tile[line][lane] = x[(row + line) * columns + column + lane];
        }
    }
    __syncthreads();                                                // the tile is complete before it is read crosswise
    for (int line = threadIdx.y; line < 32; line += 8) {
        if (column + line < columns && row + lane < rows) {
            y[(column + line) * rows + row + lane] = tile[lane][line];
        }
    }
}
