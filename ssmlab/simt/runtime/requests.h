// How accesses of single threads become requests of warps, and what a request costs.
//
// Fibers run one after another, so the k-th execution of one site by each lane since the last __syncthreads (or
// __syncwarp of the whole warp) is taken for one request of the warp.  That is exact for structured code; where some
// lanes skip a turn of a loop it is a model.
//   global   a request moves 32-byte sectors; the ideal is the fewest that hold the active lanes' bytes
//   shared   32 banks of 4 bytes; different words of one bank are served one after another (wavefronts);
//            8-byte accesses are served by half-warps, 16-byte accesses by quarter-warps; reads by twice as many lanes
//            together where neighbours (lanes i and i^1, or i and i^2, of the whole warp) have one address
#pragma once
#include "watchdog.h"

struct Request {
    u32 mask, object;
    u32 address[32];             // shared: in the arena; global: in all buffers
};

// The open requests of one warp at one site: base … base + count - 1.  Number 0 lies in the slot itself, because most
// sites are passed once between two barriers: three lines of the cache, one of which half of the lanes need.
struct alignas(64) RequestSlot {
    u32 base, count, capacity, site;
    Request* ring;                               // of `capacity`, request k > 0 at k % capacity
    RequestSlot* next_open;
    u32 passed;                                  // lanes that have come by
    u32 unused[5];
    Request first;                               // its addresses begin a line
    u32 again[32];                               // per lane: accesses after its first one
};
static_assert(offsetof(RequestSlot, first.address) == 64, "a line");

SIMT_INLINE Request& request_of(RequestSlot& slot, u32 k) {
    return k ? slot.ring[k & (slot.capacity - 1)] : slot.first;
}
// The number of the lane's next access; it makes one.
SIMT_INLINE u32 next_number(const RequestSlot& slot, u32 lane) {
    return slot.passed >> lane & 1 ? slot.again[lane] + 1 : 0;
}
SIMT_INLINE void pass(RequestSlot& slot, u32 lane) {
    slot.again[lane] += slot.passed >> lane & 1;
    slot.passed |= 1u << lane;
}

static constexpr u32 SMALLEST_RING = 4, LARGEST_RING = 1024;

struct RequestMemory { char *next, *end; void* free[12]; } static request_memory;

static u64 request_bytes() { return 8ull << 30; }                // address space; only what is used becomes memory

static void open_requests(const SimtLaunch* launch) {
    request_memory = {};
    request_memory.next = (char*)launch->region[REGION_REQUESTS];
    request_memory.end = request_memory.next + launch->region_bytes[REGION_REQUESTS];
}

static void* take(u64 bytes) {
    char* place = request_memory.next;
    if (place + bytes > request_memory.end) return nullptr;
    request_memory.next += (bytes + 63) & ~63ull;
    return place;
}

// ---- cost of one request

static u32 count_sectors(const Request& r, u32 size) {
    u64 seen[64 * 5];
    u32 count = 0;
    u64 last = ~0ull;
    bool ascending = true;
    for (u32 rest = r.mask; rest; rest &= rest - 1) {
        u64 from = r.address[lowest(rest)], to = (from + size - 1) / 32;
        for (u64 sector = from / 32; sector <= to && count < sizeof seen / sizeof *seen; sector++) {
            if (sector == last) continue;
            if (ascending && count && sector < last) ascending = false;
            u32 i = ascending ? count : 0;
            while (i < count && seen[i] != sector) i++;
            if (i == count) seen[count++] = sector;
            last = sector;
        }
    }
    return count;
}

// Most different words in one bank, over the lanes of `mask`.
static u32 count_wavefronts(const Request& r, u32 size, u32 mask) {
    u32 banks = 0, first_word[32], conflicts = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        u32 from = r.address[lowest(rest)] / 4, to = (r.address[lowest(rest)] + size - 1) / 4;
        for (u32 word = from; word <= to; word++) {
            u32 bank = word % 32;
            if (!(banks >> bank & 1)) banks |= 1u << bank, first_word[bank] = word;
            else if (first_word[bank] != word) conflicts = 1;
        }
    }
    if (!conflicts) return 1;
    u32 words[32][40], count[32] = {}, most = 1;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        u32 from = r.address[lowest(rest)] / 4, to = (r.address[lowest(rest)] + size - 1) / 4;
        for (u32 word = from; word <= to; word++) {
            u32 bank = word % 32, i = 0;
            while (i < count[bank] && words[bank][i] != word) i++;
            if (i == count[bank] && i < 40) words[bank][count[bank]++] = word;
            most = larger(most, count[bank]);
        }
    }
    return most;
}

// Have all pairs of active lanes i and i ^ distance one address?  A lane without its partner does not stand against it.
static bool pairs_agree(const Request& r, u32 distance) {
    for (u32 rest = r.mask; rest; rest &= rest - 1) {
        u32 lane = lowest(rest), other = lane ^ distance;
        if (r.mask >> other & 1 && r.address[other] != r.address[lane]) return false;
    }
    return true;
}

// How many neighbouring lanes are served together.  That pairs join is NVIDIA's word for compute capability 7
// (forums.developer.nvidia.com, "Unexpected shared memory bank conflict"); an H200 counts so too, idle lanes and all
// (tests/test_simt_wide_reads.py).
static u32 lanes_together(const Request& r, u32 access, u32 size) {
    u32 lanes = size <= 4 ? 32 : size <= 8 ? 16 : 8;
    bool joined = lanes < 32 && access == ACCESS_READ && (pairs_agree(r, 1) || pairs_agree(r, 2));
    return joined ? 2 * lanes : lanes;
}

// Does each active lane begin where the one before it ends?  Then no bank is asked twice.
static bool is_straight(const Request& r, u32 size) {
    u32 start = r.address[lowest(r.mask)] - lowest(r.mask) * size, differ = 0;
    if (r.mask == ~0u)
        for (u32 lane = 0; lane < WARP; lane++) differ |= r.address[lane] - lane * size ^ start;
    else
        for (u32 rest = r.mask; rest; rest &= rest - 1) differ |= r.address[lowest(rest)] - lowest(rest) * size ^ start;
    return !differ;
}

static i64 offset_in_object(const Block* block, u32 space, u32 object, u32 address);      // access.h

static void close_request(const Warp* warp, u16 site, const Request& r, u32 k) {
    SimtStats& stats = sites.stats[site];
    u32 size = stats.size, active = ones(r.mask);
    stats.requests++;
    stats.lanes += active;
    bool straight = is_straight(r, size);
    if (stats.space == SPACE_GLOBAL) {
        stats.sectors += straight && r.mask == ~0u ? (r.address[31] + size - 1) / 32 - r.address[0] / 32 + 1
                                                   : count_sectors(r, size);
        stats.ideal_sectors += (active * size + 31) / 32;
    } else {
        sites.hot[site].objects |= bit_of_array(warp->block->arrays[r.object]);     // the same place in another block
        u32 phase = lanes_together(r, stats.access, size);
        for (u32 first = 0; first < 32; first += phase) {
            u32 mask = phase == 32 ? r.mask : r.mask & (((1u << phase) - 1) << first);
            if (!mask) continue;
            stats.wavefronts += straight && phase * size <= 128 ? 1 : count_wavefronts(r, size, mask);
            stats.ideal_wavefronts++;
        }
    }
    u64 key = warp->block->number << 37 | (u64)warp->number << 32 | k;
    if (key >= stats.sample_key) return;
    stats.sample_key = key;
    stats.sample_mask = r.mask, stats.sample_size = size;
    stats.sample_object = (int32_t)r.object;
    for (u32 rest = r.mask; rest; rest &= rest - 1)
        stats.sample_offset[lowest(rest)] =
            offset_in_object(warp->block, stats.space, r.object, r.address[lowest(rest)]);
}

static void close_requests(const Warp* warp, u16 site, RequestSlot& slot, u32 upto) {
    for (; slot.base < upto; slot.base++, slot.count -= slot.count > 0) {
        Request& r = request_of(slot, slot.base);
        if (slot.count && r.mask) close_request(warp, site, r, slot.base);
        r.mask = 0;
    }
}

// The warp's interval is over: no later access belongs to these requests.
static void close_all_requests(Warp* warp) {
    for (RequestSlot* slot = warp->checks.open; slot; slot = slot->next_open) {
        u32 end = slot->base + slot->count;
        close_requests(warp, (u16)slot->site, *slot, end);
        slot->base = slot->count = slot->passed = 0;
        if (end > 1) memset(slot->again, 0, sizeof slot->again);
    }
    warp->checks.open = nullptr;
}

static SIMT_NOINLINE RequestSlot* new_slot(WarpChecks& checks, u16 site) {
    RequestSlot**& page = checks.page[site / SITES_A_PAGE];
    if (!page) {
        page = (RequestSlot**)take(SITES_A_PAGE * sizeof(RequestSlot*));
        if (!page) return nullptr;
        memset(page, 0, SITES_A_PAGE * sizeof(RequestSlot*));
    }
    RequestSlot* slot = (RequestSlot*)take(sizeof(RequestSlot));
    Request* ring = (Request*)take(SMALLEST_RING * sizeof(Request));
    if (!slot || !ring) return nullptr;
    memset(slot, 0, sizeof *slot);
    memset(ring, 0, SMALLEST_RING * sizeof(Request));
    slot->site = site;
    slot->capacity = SMALLEST_RING;
    slot->ring = ring;
    return page[site % SITES_A_PAGE] = slot;
}

static SIMT_NOINLINE bool enlarge(RequestSlot* slot) {
    u32 capacity = slot->capacity * 4, level = (u32)__builtin_ctz(capacity);
    Request* ring = (Request*)request_memory.free[level];
    if (ring) request_memory.free[level] = *(void**)ring;
    else if (!(ring = (Request*)take(capacity * sizeof(Request)))) return false;
    memset(ring, 0, capacity * sizeof(Request));
    for (u32 k = larger(slot->base, 1u); k < slot->base + slot->count; k++)
        ring[k & (capacity - 1)] = request_of(*slot, k);
    *(void**)slot->ring = request_memory.free[__builtin_ctz(slot->capacity)];
    request_memory.free[__builtin_ctz(slot->capacity)] = slot->ring;
    slot->ring = ring;
    slot->capacity = capacity;
    return true;
}

// A lane is more than a full ring ahead of others: let them catch up; what nobody can join any more is closed.
static SIMT_NOINLINE void catch_up(Fiber* fiber, u16 site, RequestSlot* slot) {
    Warp* warp = fiber->warp;
    u32 k = next_number(*slot, fiber->lane);
    for (u32 turn = 0; turn <= WARP && k - slot->base >= slot->capacity; turn++) {
        u32 behind = k;
        for (u32 rest = warp->runnable_positions; rest; rest &= rest - 1)
            behind = smaller(behind, next_number(*slot, warp->lane_at[lowest(rest)]));
        if (behind > slot->base) {
            close_requests(warp, site, *slot, behind);
            continue;
        }
        u32 others = warp->runnable_positions & ~fiber->bit;
        if (!others) break;
        u32 later = others & above(fiber->bit);
        hand_over(fiber, by_position(warp, lowest(later ? later : others)));
    }
    if (k - slot->base >= slot->capacity) close_requests(warp, site, *slot, k - slot->capacity / 2);
}

static SIMT_NOINLINE RequestSlot* slot_of(WarpChecks& checks, u16 site) {
    RequestSlot** page = checks.page[site / SITES_A_PAGE];
    RequestSlot* slot = page ? page[site % SITES_A_PAGE] : nullptr;
    if (!slot && !(slot = new_slot(checks, site))) sites.lost++;
    return slot;
}

// A place in the ring for the lane's next access, number k; false: that counted as a request of its own.
static SIMT_NOINLINE bool make_room(Fiber* fiber, u16 site, RequestSlot* slot, u32 k, u32 object, u32 address) {
    take_accesses(fiber);
    u32 lane = fiber->lane;
    while (k >= slot->base && k - slot->base >= slot->capacity) {
        if (slot->capacity == LARGEST_RING || !enlarge(slot)) catch_up(fiber, site, slot);
    }
    if (k >= slot->base) return true;
    Request late = {1u << lane, object, {}};     // its request was closed
    late.address[lane] = address;
    pass(*slot, lane);
    close_request(fiber->warp, site, late, k);
    return false;
}

// The lane's first access in this interval, while request 0 is open: the usual one.
SIMT_INLINE bool is_first(const RequestSlot& slot, u32 bit) { return !(slot.base | (slot.passed & bit)); }
SIMT_INLINE void record_first(const Fiber* fiber, RequestSlot& slot, u32 object, u32 address) {
    WarpChecks& checks = fiber->warp->checks;
    if (!slot.count) {
        slot.next_open = checks.open, checks.open = &slot;
        slot.count = 1;
        slot.first.object = object;
    }
    slot.first.mask = slot.passed |= fiber->lane_bit;
    slot.first.address[fiber->lane] = address;
}

SIMT_INLINE void record_request(Fiber* fiber, u16 site, u32 object, u32 address) {
    WarpChecks& checks = fiber->warp->checks;
    HotSite& hot = sites.hot[site];
    RequestSlot* slot = hot.slot;
    if (SIMT_UNLIKELY(hot.warp != &checks)) {
        slot = slot_of(checks, site);
        if (!slot) return;
        hot.warp = &checks, hot.slot = slot;
    }
    if (SIMT_LIKELY(is_first(*slot, fiber->lane_bit))) return record_first(fiber, *slot, object, address);
    u32 lane = fiber->lane;
    u32 k = next_number(*slot, lane);
    if (SIMT_UNLIKELY(k - slot->base >= slot->capacity)) {       // or its request was closed
        if (!make_room(fiber, site, slot, k, object, address)) return;
    }
    pass(*slot, lane);
    slot->count = larger(slot->count, k - slot->base + 1);
    Request& request = request_of(*slot, k);
    if (!request.mask) request.object = object;
    request.mask |= 1u << lane;
    request.address[lane] = address;
}
