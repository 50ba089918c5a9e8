// strided_copy -- a copy whose threads read `stride` elements apart.
// compile: -DELEMENT=float
// compile: -DELEMENT=float4
extern "C" __global__ void strided_copy(const ELEMENT* x, ELEMENT* y, int n, int stride, int offset) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;            // thread i owns y[i], 0 <= i < n
    if (i < n) {
        y[i] = x[(long long)i * stride + offset];
    }
}
