// cuda_fp16.h -- __half and __half2, also by their short names.
#pragma once

#include "simt_half.h"

SIMT_SMALL_FLOAT(half, __half, __half2)
typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;
