// left_neighbour -- each element minus the one to its left.
//
// Right      the first element has no left neighbour, the last thread may have no element.
// launch: grid=4 block=64
// args: x=small[250] y=nan[250] n=250
// expect: y = np.diff(x, prepend=0)

extern "C" __global__ void left_neighbour(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const float left = i > 0 ? x[i - 1] : 0.0f;
        y[i] = x[i] - left;
    }
}
