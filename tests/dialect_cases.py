"""What the kernels of dialect.cu must give, worked out with NumPy and torch, for a CPU and for a GPU alike."""

import dialect_language
import dialect_math
import dialect_small_floats
import dialect_warps

FEATURES = {
    name: cases
    for module in (dialect_language, dialect_warps, dialect_math, dialect_small_floats)
    for name, cases in vars(module).items()
    if getattr(cases, "is_feature", False)
}
