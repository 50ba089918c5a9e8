// affine.cuh -- the pair (a, b) of a step h -> a * h + b, kept in one float2, and how two pairs combine.
//
// .x is the decay a, .y the input b. Do `first`, then `second`:  h -> second.x * (first.x * h + first.y) + second.y.
// The order of the arguments is the order in time: then(p, q) and then(q, p) differ.
// Used in    block_scan_v1 ... block_scan_v5.   Derived in notebook 01.

__device__ __forceinline__ float2 then(float2 first, float2 second) {
    return make_float2(first.x * second.x, second.x * first.y + second.y);
}

// The step that changes nothing: it pads a short row, and it comes before the first step.
__device__ __forceinline__ float2 identity() {
    return make_float2(1.0f, 0.0f);
}
