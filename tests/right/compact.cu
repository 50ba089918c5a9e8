// compact -- every warp moves its non-zero elements to the front, by votes.
//
// Right      a lane's place is the number of votes *before* it: an exclusive count.
// launch: grid=1 block=64
// args: x=modulo7:int32[64] y=zero:int32[64]
// expect: y = front(x)

extern "C" __global__ void compact(const int* x, int* y) {
    const int t = threadIdx.x;
    const int lane = t % 32;
    const int mine = x[t];
    const unsigned votes = __ballot_sync(0xffffffffu, mine != 0);
    const unsigned before = votes & ((1u << lane) - 1u);
    if (mine != 0) {
        y[t - lane + __popc(before)] = mine;
    }
}
