// bytes_side_by_side -- neighbour threads write neighbour bytes, four of them in one word.
//
// Right      a hazard is about bytes: four threads may write four bytes of a word without a barrier in between.
// launch: grid=1 block=64
// args: x=modulo7:uint8[64] y=zero:uint8[64]
// expect: y = x[::-1]

extern "C" __global__ void bytes_side_by_side(const unsigned char* x, unsigned char* y) {
    __shared__ unsigned char cell[64];
    const int t = threadIdx.x;
    cell[t] = x[t];
    __syncthreads();                                        // B0: all bytes are written before they are read
    y[t] = cell[63 - t];
}
