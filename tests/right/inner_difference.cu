// inner_difference -- differences along the inner side of a two-dimensional shared tile.
//
// Right      the last column has no right neighbour: tile[row][32] would be the next row's first element.
// launch: grid=1 block=32,8
// args: x=small[8,32] y=zero[8,32]
// expect: y = inner_difference(x)

extern "C" __global__ void inner_difference(const float* x, float* y) {
    __shared__ float tile[8][32];
    const int column = threadIdx.x;
    const int row = threadIdx.y;

    tile[row][column] = x[row * 32 + column];
    __syncthreads();                                        // B0: the tile is loaded before anyone looks right
    if (column < 31) {
        y[row * 32 + column] = tile[row][column + 1] - tile[row][column];
    }
}
