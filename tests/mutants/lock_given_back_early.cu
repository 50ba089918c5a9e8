// lock_given_back_early -- the lock is given back without a fence behind the update.
//
// Wrong      the next owner may read the total before the update is visible.
// From       tests/right/spin_lock.cu
// launch: grid=5 block=32
// args: x=small[5] lock=zero:int32[1] total=zero[1]

extern "C" __global__ void lock_given_back_early(const float* x, int* lock, float* total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();                                    // the lock is taken before the total is read
        *total += x[blockIdx.x];  //! global-race
        // the fence is missing here
        atomicExch(lock, 0);
    }
}
