// threadIdx, blockIdx, blockDim, gridDim.
#pragma once
#include "scheduler.h"

SIMT_API SimtIndex simt_thread_index() { return current()->index; }
SIMT_API SimtIndex simt_block_index() { return current()->block->index; }
SIMT_API SimtIndex simt_block_shape() { return current()->block->machine->block_shape; }
SIMT_API SimtIndex simt_grid_shape() { return current()->block->machine->grid_shape; }
SIMT_API int simt_lane() { return current()->lane; }
