// spin_lock -- blocks take turns at one plain word: lock, fence, update, fence, unlock.
//
// Right      whoever holds the lock is alone with the word, and the fences keep the update between lock and unlock.
// launch: grid=5 block=32
// args: x=small[5] lock=zero:int32[1] total=zero[1]
// expect: total = x.sum()

extern "C" __global__ void spin_lock(const float* x, int* lock, float* total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();                                    // the lock is taken before the total is read
        *total += x[blockIdx.x];
        __threadfence();                                    // the total is written before the lock is given back
        atomicExch(lock, 0);
    }
}
