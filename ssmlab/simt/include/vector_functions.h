// vector_functions.h -- make_char1 ... make_double4.
#pragma once

#include "simt_vectors.h"
