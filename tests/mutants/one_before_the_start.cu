// one_before_the_start -- the first element looks left too.
//
// Wrong      x[-1] is nobody's.
// From       tests/right/left_neighbour.cu
// launch: grid=4 block=64
// args: x=small[250] y=nan[250] n=250

extern "C" __global__ void one_before_the_start(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float left = x[i - 1];  //! out-of-bounds
        y[i] = x[i] - left;
    }
}
