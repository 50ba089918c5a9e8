// cooperative_groups/reduce.h -- reduce over a tile or a coalesced group. All threads get the result.
//
// Operands are combined in order of rank, pairs of neighbours first; a GPU may choose another order, so that floats
// differ in the last bits.
#pragma once

#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class Value>
struct plus { Value operator()(Value a, Value b) const { return a + b; } };
template <class Value>
struct less { Value operator()(Value a, Value b) const { return b < a ? b : a; } };
template <class Value>
struct greater { Value operator()(Value a, Value b) const { return a < b ? b : a; } };
template <class Value>
struct bit_and { Value operator()(Value a, Value b) const { return a & b; } };
template <class Value>
struct bit_or { Value operator()(Value a, Value b) const { return a | b; } };
template <class Value>
struct bit_xor { Value operator()(Value a, Value b) const { return a ^ b; } };

template <class Group, class Value, class Operation>
Value reduce(const Group& group, Value value, Operation operation) {
    // Each round joins the run of ranks that a thread holds with the run that follows it.
    const unsigned int rank = group.thread_rank(), size = static_cast<const thread_group&>(group).size();
    for (unsigned int reach = 1; reach < size; reach *= 2) {
        const Value right = group.shfl_down(value, reach);
        if (rank % (2 * reach) == 0 && rank + reach < size) value = operation(value, right);
    }
    return group.shfl(value, 0);
}

}  // namespace cooperative_groups
