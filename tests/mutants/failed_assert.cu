// failed_assert -- the assertion is stricter than the data.
//
// Wrong      label 6 is in use.
// From       tests/right/asserted_range.cu
// launch: grid=1 block=64
// args: x=modulo7:int32[64] y=zero:int32[64]

extern "C" __global__ void failed_assert(const int* x, int* y) {
    const int label = x[threadIdx.x];
    assert(label >= 0 && label < 6);  //! assert
    y[threadIdx.x] = label * label;
}
