// far_away -- a byte offset is used as an index, a thousand times too far.
//
// Wrong      the address belongs to no array.
// From       tests/right/left_neighbour.cu
// launch: grid=4 block=64
// args: x=small[250] y=nan[250] n=250

extern "C" __global__ void far_away(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float left = i > 0 ? x[(i - 1) * 40000000LL] : 0.0f;  //! wild-access
        y[i] = x[i] - left;
    }
}
