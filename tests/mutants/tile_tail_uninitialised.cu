// tile_tail_uninitialised -- every thread looks right, also the one whose neighbour had nothing to load.
//
// Wrong      in the last block nobody wrote the cell behind the last element.
// From       tests/right/guarded_work.cu
// launch: grid=4 block=256
// args: x=small[1000] y=nan[1000] n=1000

extern "C" __global__ void tile_tail_uninitialised(const float* x, float* y, int n) {
    __shared__ float part[256];
    const int t = threadIdx.x;
    const int i = blockIdx.x * 256 + t;

    if (i < n) {
        part[t] = x[i];
    }
    __syncthreads();                                        // B0: the tile is loaded before anyone looks left
    if (i < n) {
        y[i] = t < 255 ? part[t] - part[t + 1] : part[t];  //! uninitialised
    }
}
