// null_pointer -- a null pointer is followed.
//
// Wrong      no bias was given, and it is read all the same.
// From       tests/right/optional_bias.cu
// launch: grid=1 block=64
// args: x=small[64] bias=null y=nan[64]

extern "C" __global__ void null_pointer(const float* x, const float* bias, float* y) {
    const int t = threadIdx.x;
    y[t] = x[t] + bias[t];  //! wild-access
}
