// device_launch_parameters.h -- threadIdx, blockIdx, blockDim, gridDim are there already.
#pragma once
