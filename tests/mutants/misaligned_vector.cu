// misaligned_vector -- a float4 is read at an odd place.
//
// Wrong      a 16-byte request must start at a multiple of 16 bytes.
// From       tests/right/vector_copy.cu
// launch: grid=2 block=128
// args: x=small[1001] y=nan[1001] n=1001

extern "C" __global__ void misaligned_vector(const float* x, float* y, int n) {
    const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < n) {
        *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i + 1);  //! misaligned
    } else {
        for (int k = i; k < n; ++k) {
            y[k] = x[k];
        }
    }
}
