// endless_loop -- the number never falls to 1.
//
// Wrong      starting at 0 the loop stays at 0.
// From       tests/right/collatz.cu
// launch: grid=1 block=32
// args: y=zero:int32[32]

extern "C" __global__ void endless_loop(int* y) {
    int n = threadIdx.x;
    int turns = 0;
    while (n != 1) { n = n % 2 == 0 ? n / 2 : 3 * n + 1; ++turns; }  //! endless-loop
    y[threadIdx.x] = turns;
}
