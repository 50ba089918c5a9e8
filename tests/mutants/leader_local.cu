// leader_local -- the pointer leads to thread 0's own variable.
//
// Wrong      a local variable lives in its thread: for every other thread the address means something else.
// From       tests/right/leader_pointer.cu
// launch: grid=2 block=64
// args: x=small[128] y=nan[128]

extern "C" __global__ void leader_local(const float* x, float* y) {
    __shared__ const float* where;
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;

    const float first = x[i];
    if (t == 0) {
        where = &first;
    }
    __syncthreads();                                        // B0: the pointer is written before anyone follows it
    y[i] = first - *where;  //! local-escape
}
