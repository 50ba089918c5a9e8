// leader_race -- every thread writes the one shared value.
//
// Wrong      which of 64 different values remains is anybody's guess.
// From       tests/right/leader_value.cu
// launch: grid=2 block=64
// args: x=small[128] y=nan[128]

extern "C" __global__ void leader_race(const float* x, float* y) {
    __shared__ float shared_first;
    const int t = threadIdx.x;
    const int i = blockIdx.x * 64 + t;

    float first = x[i];
    shared_first = first;  //! race
    __syncthreads();                                        // B0: the leader's value is written before it is read
    y[i] = first - shared_first;
}
