// block_votes -- one barrier that also counts, asks all, and asks any.
//
// Right      every thread comes to each of the three barriers, whatever it votes.
// launch: grid=1 block=80
// args: x=modulo7:int32[80] y=zero:int32[3]
// expect: y = np.array([(x == 6).sum(), (x < 7).all(), (x > 6).any()])

extern "C" __global__ void block_votes(const int* x, int* y) {
    const int mine = x[threadIdx.x];
    const int sixes = __syncthreads_count(mine == 6);
    const int all = __syncthreads_and(mine < 7);
    const int any = __syncthreads_or(mine > 6);
    if (threadIdx.x == 0) {
        y[0] = sixes;
        y[1] = all != 0;
        y[2] = any != 0;
    }
}
