// leader_pointer -- thread 0 chooses a row, and all threads follow its pointer.
//
// Right      the pointer that goes through shared memory leads to global memory, which everyone may read.
// launch: grid=2 block=64
// args: x=small[128] y=nan[128]
// expect: y = (x.reshape(2, 64) - x.reshape(2, 64)[:, :1])

extern "C" __global__ void leader_pointer(const float* x, float* y) {
    __shared__ const float* where;
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;

    const float first = x[i];
    if (t == 0) {
        where = &x[i];
    }
    __syncthreads();                                        // B0: the pointer is written before anyone follows it
    y[i] = first - *where;
}
