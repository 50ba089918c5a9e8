// optional_bias -- a pointer that may be null is asked before it is followed.
//
// Right      no bias was given, and none is read.
// launch: grid=1 block=64
// args: x=small[64] bias=null y=nan[64]
// expect: y = x

extern "C" __global__ void optional_bias(const float* x, const float* bias, float* y) {
    const int t = threadIdx.x;
    y[t] = x[t] + (bias != nullptr ? bias[t] : 0.0f);
}
