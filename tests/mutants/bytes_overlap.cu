// bytes_overlap -- a thread clears its neighbour's byte too.
//
// Wrong      two threads write one byte, and nothing decides which comes last.
// From       tests/right/bytes_side_by_side.cu
// launch: grid=1 block=64
// args: x=modulo7:uint8[64] y=zero:uint8[64]

extern "C" __global__ void bytes_overlap(const unsigned char* x, unsigned char* y) {
    __shared__ unsigned char cell[64];
    const int t = threadIdx.x;
    cell[t] = x[t];  //! race
    cell[(t + 1) % 64] = 0;  //! race
    __syncthreads();                                        // B0: all bytes are written before they are read
    y[t] = cell[63 - t];
}
