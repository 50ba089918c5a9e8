// cuda_bf16.h -- __nv_bfloat16 and __nv_bfloat162, also by their short names.
#pragma once

#include "simt_half.h"

SIMT_SMALL_FLOAT(bfloat16, __nv_bfloat16, __nv_bfloat162)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
