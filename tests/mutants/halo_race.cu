// halo_race -- neighbours are added before they are loaded.
//
// Wrong      the barrier between load and sum is missing.
// From       tests/right/stencil.cu
// launch: grid=3 block=64
// args: x=small[180] y=nan[180] n=180

extern "C" __global__ void halo_race(const float* x, float* y, int n) {
    __shared__ float part[66];                              // part[t + 1] = x[i], with one more cell on each side
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;

    part[t + 1] = i < n ? x[i] : 0.0f;  //! race
    if (t == 0) {
        part[0] = i > 0 ? x[i - 1] : 0.0f;
    }
    if (t == 63) {
        part[65] = i + 1 < n ? x[i + 1] : 0.0f;
    }
    // B0 is missing here
    if (i < n) {
        y[i] = part[t] + part[t + 1] + part[t + 2];  //! race
    }
}
