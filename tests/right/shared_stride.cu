// shared_stride -- one warp reads every STRIDE-th word of shared memory.
//
// Right      and its price: lanes that meet in a bank with different words wait for each other.
// launch: grid=1 block=32 options=-DSTRIDE=1 conflicts=0
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 1
// launch: grid=1 block=32 options=-DSTRIDE=2 conflicts=1
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 2
// launch: grid=1 block=32 options=-DSTRIDE=8 conflicts=7
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 8
// launch: grid=1 block=32 options=-DSTRIDE=15 conflicts=0
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 15
// launch: grid=1 block=32 options=-DSTRIDE=16 conflicts=15
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 16
// launch: grid=1 block=32 options=-DSTRIDE=17 conflicts=0
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 17
// launch: grid=1 block=32 options=-DSTRIDE=32 conflicts=31
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 32
// launch: grid=1 block=32 options=-DSTRIDE=33 conflicts=0
// args: y=zero:int32[32]
// expect: y = np.arange(32) * 33
// launch: grid=1 block=32 options=-DSTRIDE=0 conflicts=0
// args: y=zero:int32[32]
// expect: y = np.zeros(32)

extern "C" __global__ void shared_stride(int* y) {
    __shared__ int words[31 * 33 + 1];
    const int lane = threadIdx.x;
    for (int i = lane; i < 31 * 33 + 1; i += 32) {          // neighbour lanes, neighbour words: no conflicts here
        words[i] = i;
    }
    __syncwarp();                                           // W0: all words are written before any is read
    y[lane] = words[lane * STRIDE];
}
