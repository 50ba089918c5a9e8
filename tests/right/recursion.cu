// recursion -- a device function that calls itself a few times.
//
// Right      the recursion is as deep as the thread number, and a thread's stack holds that easily.
// launch: grid=1 block=32
// args: y=zero:int32[32]
// expect: y = np.arange(32)

__device__ __noinline__ int depth(int n) { return n == 0 ? 0 : 1 + depth(n - 1); }

extern "C" __global__ void recursion(int* y) {
    y[threadIdx.x] = depth(threadIdx.x);
}
