// cooperative_groups/scan.h -- inclusive and exclusive scan over a tile or a coalesced group, in order of rank.
#pragma once

#include "reduce.h"

namespace cooperative_groups {

template <class Group, class Value, class Operation>
Value inclusive_scan(const Group& group, Value value, Operation operation) {
    const unsigned int rank = group.thread_rank();
    for (unsigned int reach = 1; reach < group.num_threads(); reach *= 2) {
        const Value left = group.shfl_up(value, reach);
        if (rank >= reach) value = operation(left, value);
    }
    return value;
}
template <class Group, class Value>
Value inclusive_scan(const Group& group, Value value) { return inclusive_scan(group, value, plus<Value>()); }

// The first thread gets zero.
template <class Group, class Value, class Operation>
Value exclusive_scan(const Group& group, Value value, Operation operation) {
    const Value before = group.shfl_up(inclusive_scan(group, value, operation), 1);
    return group.thread_rank() == 0 ? Value() : before;
}
template <class Group, class Value>
Value exclusive_scan(const Group& group, Value value) { return exclusive_scan(group, value, plus<Value>()); }

}  // namespace cooperative_groups
