// banks -- the lanes of a warp write and read shared memory `stride` elements apart.
// compile: -DELEMENT=float
// compile: -DELEMENT=float2
// compile: -DELEMENT=float4
extern "C" __global__ void banks(const ELEMENT* x, ELEMENT* y, int stride) {
    __shared__ ELEMENT tile[1056];                                  // 31 * stride must stay below it
    const int lane = threadIdx.x;
    tile[lane * stride] = x[lane];
    __syncwarp();                                                   // all lanes have written before any reads
    y[lane] = tile[lane * stride];
}
