#include "simt.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>
extern "C" __global__ void probe(float* a, int n, float4 v, __half h, __half2 h2, __nv_bfloat16 b, __nv_bfloat162 b2) {
    half x(h2);
}
