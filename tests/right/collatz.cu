// collatz -- how many turns until a number falls to 1.
//
// Right      the loop ends for every start in use.
// launch: grid=1 block=32
// args: y=zero:int32[32]
// expect: y = collatz(32)

extern "C" __global__ void collatz(int* y) {
    int n = threadIdx.x + 1;
    int turns = 0;
    while (n != 1) { n = n % 2 == 0 ? n / 2 : 3 * n + 1; ++turns; }
    y[threadIdx.x] = turns;
}
