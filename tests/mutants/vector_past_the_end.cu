// vector_past_the_end -- the last float4 reaches behind the arrays.
//
// Wrong      one element is left, and four are moved.
// From       tests/right/vector_copy.cu
// launch: grid=2 block=128
// args: x=small[1001] y=nan[1001] n=1001

extern "C" __global__ void vector_past_the_end(const float* x, float* y, int n) {
    const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i);  //! out-of-bounds
    } else {
        for (int k = i; k < n; ++k) {
            y[k] = x[k];
        }
    }
}
