// deep_recursion -- a recursion a million calls deep.
//
// Wrong      a thread's stack is small.
// From       tests/right/recursion.cu
// launch: grid=1 block=32
// args: y=zero:int32[32]

__device__ __noinline__ int depth(int n) { return n == 0 ? 0 : 1 + depth(n - 1); }  //! stack-overflow

extern "C" __global__ void deep_recursion(int* y) {
    y[threadIdx.x] = depth(1000000 + threadIdx.x);
}
