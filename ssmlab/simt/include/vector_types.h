// vector_types.h -- char1 ... double4, dim3.
#pragma once

#include "simt_vectors.h"
