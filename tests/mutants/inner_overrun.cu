// inner_overrun -- the last column looks right too.
//
// Wrong      tile[row][32] is inside the array, but outside its row: it is the next row's first element.
// From       tests/right/inner_difference.cu
// launch: grid=1 block=32,8
// args: x=small[8,32] y=zero[8,32]

extern "C" __global__ void inner_overrun(const float* x, float* y) {
    __shared__ float tile[8][32];
    const int column = threadIdx.x;
    const int row = threadIdx.y;

    tile[row][column] = x[row * 32 + column];
    __syncthreads();                                        // B0: the tile is loaded before anyone looks right
    if (column < 32) {
        y[row * 32 + column] = tile[row][column + 1] - tile[row][column];  //! out-of-bounds
    }
}
