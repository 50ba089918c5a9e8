// cuda_runtime_api.h -- nothing in it is for kernels; accepted because NVRTC accepts it.
#pragma once
