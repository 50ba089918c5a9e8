// shared_vectors -- 4, 8 and 16 bytes a lane from shared memory, side by side or two steps apart.
//
// Right      and its price: 8-byte requests go out by half-warps, 16-byte requests by quarter-warps.
// launch: grid=1 block=32 options=-DVECTOR=float,-DSTRIDE=1 conflicts=0
// args: x=small[256] y=nan[256]
// expect: y = vectors(x, 1, 1)
// launch: grid=1 block=32 options=-DVECTOR=float2,-DSTRIDE=1 conflicts=0
// args: x=small[256] y=nan[256]
// expect: y = vectors(x, 2, 1)
// launch: grid=1 block=32 options=-DVECTOR=float2,-DSTRIDE=2 conflicts=2
// args: x=small[256] y=nan[256]
// expect: y = vectors(x, 2, 2)
// launch: grid=1 block=32 options=-DVECTOR=float4,-DSTRIDE=1 conflicts=0
// args: x=small[256] y=nan[256]
// expect: y = vectors(x, 4, 1)
// launch: grid=1 block=32 options=-DVECTOR=float4,-DSTRIDE=2 conflicts=4
// args: x=small[256] y=nan[256]
// expect: y = vectors(x, 4, 2)

extern "C" __global__ void shared_vectors(const float* x, float* y) {
    __shared__ __align__(16) float words[256];
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) {
        words[i] = x[i];
    }
    __syncwarp();                                           // W0: all words are written before any is read
    reinterpret_cast<VECTOR*>(y)[lane] = reinterpret_cast<const VECTOR*>(words)[lane * STRIDE];
}
