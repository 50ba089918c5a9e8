// one_past_the_end -- the guard lets one thread too many through.
//
// Wrong      i <= n reads and writes one element behind the arrays.
// From       tests/right/left_neighbour.cu
// launch: grid=4 block=64
// args: x=small[250] y=nan[250] n=250

extern "C" __global__ void one_past_the_end(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        const float left = i > 0 ? x[i - 1] : 0.0f;
        y[i] = x[i] - left;  //! out-of-bounds
    }
}
