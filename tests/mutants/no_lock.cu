// no_lock -- blocks update one word without taking turns.
//
// Wrong      two blocks read the same total, and one update is lost.
// From       tests/right/spin_lock.cu
// launch: grid=5 block=32
// args: x=small[5] lock=zero:int32[1] total=zero[1]

extern "C" __global__ void no_lock(const float* x, int* lock, float* total) {
    if (threadIdx.x == 0) {
        // the lock is missing here
        __threadfence();                                    // the lock is taken before the total is read
        *total += x[blockIdx.x];  //! global-race
        __threadfence();                                    // the total is written before the lock is given back
        atomicExch(lock, 0);
    }
}
