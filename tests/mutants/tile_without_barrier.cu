// tile_without_barrier -- the tile is used before it is loaded.
//
// Wrong      a thread looks left at an element that its neighbour has not stored yet.
// From       tests/right/guarded_work.cu
// launch: grid=4 block=256
// args: x=small[1000] y=nan[1000] n=1000

extern "C" __global__ void tile_without_barrier(const float* x, float* y, int n) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    const int i = blockIdx.x * 256 + t;

    if (i < n) {
        part[t] = x[i];  //! race
    }
    // B0 is missing here
    if (i < n) {
        y[i] = t > 0 ? part[t] - part[t - 1] : part[t];  //! race
    }
}
