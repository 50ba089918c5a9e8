// cuda_runtime.h -- what a kernel gets from it is there already: simt.h is included before every text.
#pragma once
