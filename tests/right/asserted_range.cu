// asserted_range -- the kernel states what it relies on.
//
// Right      every label is in range, and the assertion holds.
// launch: grid=1 block=64
// args: x=modulo7:int32[64] y=zero:int32[64]
// expect: y = x * x

extern "C" __global__ void asserted_range(const int* x, int* y) {
    const int label = x[threadIdx.x];
    assert(label >= 0 && label < 7);
    y[threadIdx.x] = label * label;
}
