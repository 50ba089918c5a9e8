// cooperative_groups.h -- the block, tiles of a warp, the lanes that are active together, the grid.
//
// Tiles of 1 to 32 threads. sync() of a tile is __syncwarp with the tile's lanes; the exchanges of a tile are the
// warp's with the tile's lanes as mask, so each of its threads must take part. sync() of the grid needs all blocks
// alive at once.
#pragma once

#include "../runtime/abi.h"
#include "simt_math.h"
#include "simt_vectors.h"

namespace cooperative_groups {

// Rank of the calling thread in its block, and how many threads the block has.
inline unsigned int simt_block_rank() {
    const SimtIndex thread = simt_thread_index(), shape = simt_block_shape();
    return (thread.z * shape.y + thread.y) * shape.x + thread.x;
}
inline unsigned int simt_block_size() {
    const SimtIndex shape = simt_block_shape();
    return shape.x * shape.y * shape.z;
}

// One warp exchange of a value of any size: eight bytes a time.
template <class Value>
Value simt_exchange(unsigned int mask, const Value& value, int mode, int operand, int width) {
    uint64_t words[(sizeof(Value) + 7) / 8] = {};
    Value result;
    __builtin_memcpy((void*)words, (const void*)&value, sizeof value);
    for (uint64_t& word : words) word = simt_shuffle(mask, word, mode, operand, width);
    __builtin_memcpy((void*)&result, (const void*)words, sizeof result);
    return result;
}

// What all groups have. lanes is the warp's lanes in the group, in order of rank; 0 stands for the whole block.
class thread_group {
protected:
    unsigned int lanes;
    explicit thread_group(unsigned int lanes) : lanes(lanes) {}
    friend thread_group tiled_partition(const thread_group& parent, unsigned int size);
    unsigned int lanes_below() const { return lanes & ((1u << simt_lane()) - 1); }

public:
    void sync() const {
        if (lanes) simt_warp_barrier(lanes);
        else simt_barrier();
    }
    unsigned int size() const { return lanes ? (unsigned int)__popc(lanes) : simt_block_size(); }
    unsigned int num_threads() const { return size(); }
    unsigned int thread_rank() const { return lanes ? (unsigned int)__popc(lanes_below()) : simt_block_rank(); }
};

class thread_block : public thread_group {
    thread_block() : thread_group(0) {}
    friend thread_block this_thread_block();

public:
    enum { simt_can_be_tiled = 1 };
    static void sync() { simt_barrier(); }
    static unsigned int thread_rank() { return simt_block_rank(); }
    static unsigned int size() { return simt_block_size(); }
    static unsigned int num_threads() { return simt_block_size(); }
    static dim3 thread_index() { return simt_thread_index(); }
    static dim3 group_index() { return simt_block_index(); }
    static dim3 group_dim() { return simt_block_shape(); }
    static dim3 dim_threads() { return simt_block_shape(); }
};
inline thread_block this_thread_block() { return thread_block(); }

// Lanes of one warp that exchange values: tiles and coalesced groups. Ranks count the lanes from the lowest.
class simt_lane_group : public thread_group {
    // The lanes shifted so that the lowest is bit 0; in a tile all bits up to the highest are then set.
    unsigned int from_lowest() const { return lanes >> (__ffs((int)lanes) - 1); }
    int lane_of(unsigned int rank) const {
        if ((from_lowest() & (from_lowest() + 1)) == 0) return __ffs((int)lanes) - 1 + (int)rank;
        unsigned int rest = lanes;
        for (unsigned int i = 0; i < rank; i++) rest &= rest - 1;           // drop the lowest lane
        return __ffs((int)rest) - 1;
    }
    unsigned int by_rank(unsigned int of_warp) const {
        if ((from_lowest() & (from_lowest() + 1)) == 0) return (of_warp & lanes) >> (__ffs((int)lanes) - 1);
        unsigned int result = 0, rank = 0;
        for (int lane = 0; lane < 32; lane++)
            if (lanes >> lane & 1) result |= (of_warp >> lane & 1) << rank++;
        return result;
    }
    template <class Value>
    Value from(const Value& value, unsigned int rank) const {
        return simt_exchange(lanes, value, SIMT_SHUFFLE_INDEX, lane_of(rank < size() ? rank : thread_rank()), 32);
    }

protected:
    explicit simt_lane_group(unsigned int lanes) : thread_group(lanes) {}

public:
    template <class Value>
    Value shfl(Value value, unsigned int rank) const { return from(value, rank % size()); }
    template <class Value>
    Value shfl_up(Value value, unsigned int delta) const { return from(value, thread_rank() - delta); }
    template <class Value>
    Value shfl_down(Value value, unsigned int delta) const { return from(value, thread_rank() + delta); }
    int any(int predicate) const { return (int)simt_vote(lanes, SIMT_VOTE_ANY, predicate); }
    int all(int predicate) const { return (int)simt_vote(lanes, SIMT_VOTE_ALL, predicate); }
    unsigned int ballot(int predicate) const { return by_rank(simt_vote(lanes, SIMT_VOTE_BALLOT, predicate)); }
    template <class Value>
    unsigned int match_any(Value value) const {
        static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "match_any compares values of 4 or 8 bytes");
        uint64_t bits = 0;
        __builtin_memcpy(&bits, (const void*)&value, sizeof value);
        return by_rank(simt_match(lanes, bits, SIMT_MATCH_ANY));
    }
    template <class Value>
    unsigned int match_all(Value value, int& all_equal) const {
        static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "match_all compares values of 4 or 8 bytes");
        uint64_t bits = 0;
        __builtin_memcpy(&bits, (const void*)&value, sizeof value);
        const unsigned int equal = by_rank(simt_match(lanes, bits, SIMT_MATCH_ALL));
        all_equal = equal != 0;
        return equal;
    }
};

template <unsigned int Size, class Parent = void>
class thread_block_tile : public simt_lane_group {
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");
    explicit thread_block_tile(unsigned int lanes) : simt_lane_group(lanes) {}
    template <unsigned int OtherSize, class OtherParent>
    friend class thread_block_tile;
    template <unsigned int TileSize, class Group>
    friend thread_block_tile<TileSize, Group> tiled_partition(const Group& parent);

public:
    template <class OtherParent>
    thread_block_tile(const thread_block_tile<Size, OtherParent>& other) : simt_lane_group(other.lanes) {}
    enum { simt_can_be_tiled = 1 };
    static constexpr unsigned int size() { return Size; }
    static constexpr unsigned int num_threads() { return Size; }
    unsigned int meta_group_rank() const { return (unsigned int)simt_rank_of_tile(static_cast<Parent*>(nullptr)); }
    unsigned int meta_group_size() const { return simt_tiles(static_cast<Parent*>(nullptr)); }
    template <class Value>
    Value shfl_xor(Value value, unsigned int mask) const { return shfl(value, this->thread_rank() ^ mask); }

private:
    static unsigned int simt_rank_of_tile(void*) { return simt_block_rank() / Size; }
    static unsigned int simt_tiles(void*) { return (simt_block_size() + Size - 1) / Size; }
    template <unsigned int ParentSize, class Grandparent>
    static unsigned int simt_rank_of_tile(thread_block_tile<ParentSize, Grandparent>*) {
        return simt_lane() % ParentSize / Size;
    }
    template <unsigned int ParentSize, class Grandparent>
    static unsigned int simt_tiles(thread_block_tile<ParentSize, Grandparent>*) { return ParentSize / Size; }
};

// The lanes of the calling thread's tile of `size` threads. The last tile of a block may lack threads.
inline unsigned int simt_tile_lanes(unsigned int size) {
    const unsigned int lane = (unsigned int)simt_lane(), left = simt_block_size() - (simt_block_rank() - lane);
    const unsigned int lanes = (size >= 32 ? ~0u : (1u << size) - 1) << lane / size * size;
    return left < 32 ? lanes & ((1u << left) - 1) : lanes;
}
// Tiles of a block or of a larger tile.
template <unsigned int Size, class Group>
thread_block_tile<Size, Group> tiled_partition(const Group&) {
    static_assert(Group::simt_can_be_tiled, "tiles of coalesced_threads() are not supported on a CPU");
    return thread_block_tile<Size, Group>(simt_tile_lanes(Size));
}
inline thread_block_tile<1> this_thread() { return tiled_partition<1>(this_thread_block()); }
// The same with a size known only at run time: a group without exchanges.
inline thread_group tiled_partition(const thread_group& parent, unsigned int size) {
    return thread_group(parent.lanes ? parent.lanes & simt_tile_lanes(size) : simt_tile_lanes(size));
}

class coalesced_group : public simt_lane_group {
    explicit coalesced_group(unsigned int lanes) : simt_lane_group(lanes) {}
    friend coalesced_group coalesced_threads();

public:
    enum { simt_can_be_tiled = 0 };
    unsigned int meta_group_rank() const { return 0; }
    unsigned int meta_group_size() const { return 1; }
};
inline coalesced_group coalesced_threads() { return coalesced_group(simt_active_mask()); }
thread_group tiled_partition(const coalesced_group&, unsigned int) = delete;

class grid_group {
    grid_group() {}
    friend grid_group this_grid();

public:
    bool is_valid() const { return true; }
    void sync() const { simt_grid_barrier(); }
    static dim3 group_dim() { return simt_grid_shape(); }
    static dim3 dim_blocks() { return simt_grid_shape(); }
    static dim3 block_index() { return simt_block_index(); }
    static unsigned long long num_blocks() {
        const SimtIndex shape = simt_grid_shape();
        return (unsigned long long)shape.x * shape.y * shape.z;
    }
    static unsigned long long block_rank() {
        const SimtIndex block = simt_block_index(), shape = simt_grid_shape();
        return ((unsigned long long)block.z * shape.y + block.y) * shape.x + block.x;
    }
    static unsigned long long thread_rank() { return block_rank() * simt_block_size() + simt_block_rank(); }
    static unsigned long long size() { return num_blocks() * simt_block_size(); }
    static unsigned long long num_threads() { return size(); }
};
inline grid_group this_grid() { return grid_group(); }

template <class Group>
void sync(const Group& group) { group.sync(); }
template <class Group>
auto thread_rank(const Group& group) { return group.thread_rank(); }
template <class Group>
auto group_size(const Group& group) { return group.size(); }

}  // namespace cooperative_groups
