// leader_value -- thread 0 computes one value, and all threads of the block use it.
//
// Right      the value itself goes through shared memory.
// launch: grid=2 block=64
// args: x=small[128] y=nan[128]
// expect: y = (x.reshape(2, 64) - x.reshape(2, 64)[:, :1])

extern "C" __global__ void leader_value(const float* x, float* y) {
    __shared__ float shared_first;
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;

    float first = x[i];
    if (t == 0) {
        shared_first = first;
    }
    __syncthreads();                                        // B0: the leader's value is written before it is read
    y[i] = first - shared_first;
}
