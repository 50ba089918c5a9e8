// vector_copy -- four floats in one request, the last few one by one.
//
// Right      a float4 is only read where all four floats are there, and at a multiple of 16 bytes.
// launch: grid=2 block=128
// args: x=small[1001] y=nan[1001] n=1001
// expect: y = x

extern "C" __global__ void vector_copy(const float* x, float* y, int n) {
    const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < n) {
        *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i);
    } else {
        for (int k = i; k < n; ++k) {
            y[k] = x[k];
        }
    }
}
