// writer_too_early -- the cell is overwritten while slow threads still read it.
//
// Wrong      B1 keeps the second write behind the last reader of the first value.
// From       tests/right/reader_then_writer.cu
// launch: grid=1 block=96
// args: x=small[96] y=nan[96]

extern "C" __global__ void writer_too_early(const float* x, float* y) {
    __shared__ float cell;
    const int t = threadIdx.x;
    float sum = x[t];

    if (t == 0) {
        cell = x[0];
    }
    __syncthreads();                                        // B0: the first value is written before it is read
    sum += cell;  //! race
    // B1 is missing here
    if (t == 95) {
        cell = x[1];  //! race
    }
    __syncthreads();                                        // B2: the second value is written before it is read
    y[t] = sum + cell;
}
