// One translation unit, two runtimes: see abi.h.
#if SIMT_CHECKED
#include "checked.h"
#else
#include "native.h"
#endif
