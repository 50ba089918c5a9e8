// global_stride -- one warp reads every STRIDE-th float, and writes 32 neighbours.
//
// Right      and its price: the report counts the 32-byte sectors of the one read request.
// launch: grid=1 block=32 options=-DSTRIDE=1,-DOFFSET=0 read-sectors=4
// args: x=small[1024] y=nan[32]
// expect: y = x[0:32]
// launch: grid=1 block=32 options=-DSTRIDE=1,-DOFFSET=1 read-sectors=5
// args: x=small[1024] y=nan[32]
// expect: y = x[1:33]
// launch: grid=1 block=32 options=-DSTRIDE=2,-DOFFSET=0 read-sectors=8
// args: x=small[1024] y=nan[32]
// expect: y = x[0:64:2]
// launch: grid=1 block=32 options=-DSTRIDE=8,-DOFFSET=0 read-sectors=32
// args: x=small[1024] y=nan[32]
// expect: y = x[0:256:8]
// launch: grid=1 block=32 options=-DSTRIDE=32,-DOFFSET=0 read-sectors=32
// args: x=small[1024] y=nan[32]
// expect: y = x[0:1024:32]
// launch: grid=1 block=32 options=-DSTRIDE=0,-DOFFSET=7 read-sectors=1
// args: x=small[1024] y=nan[32]
// expect: y = x[7] + np.zeros(32)

extern "C" __global__ void global_stride(const float* x, float* y) {
    const int lane = threadIdx.x;
    y[lane] = x[lane * STRIDE + OFFSET];
}
