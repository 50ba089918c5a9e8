// votes_upto_and_including -- a lane counts its own vote too.
//
// Wrong      the place of an element is the number of elements before it: exclusive, not inclusive.
// From       tests/right/compact.cu
// launch: grid=1 block=64
// args: x=modulo7:int32[64] y=zero:int32[64]
// expect: y = front(x)
// first-bad: y[0]

extern "C" __global__ void votes_upto_and_including(const int* x, int* y) {
    const int t = threadIdx.x;
    const int lane = t % 32;
    const int mine = x[t];
    const unsigned votes = __ballot_sync(0xffffffffu, mine != 0);
    const unsigned before = votes & ((2u << lane) - 1u);  //! wrong-result
    if (mine != 0) {
        y[t - lane + __popc(before)] = mine;
    }
}
