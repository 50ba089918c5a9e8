// A site is one place in the compiled code, known by the return address of a hook; it stands for one line of the
// learner.
//
// A call from a header function (a float4 copy, a shuffle wrapper) is blamed on the learner's line that led there: the
// shadow call stack, kept by func_entry and func_exit, is walked to the first frame in the learner's text.
#pragma once
#include "model.h"

static constexpr u32 MOST_SITES = SITES_A_PAGE * MOST_PAGES;     // 4096
static constexpr u32 HEADER_PLACES = 8192;                       // a power of two

struct HeaderPlace { void* pc; u32 line; u32 site; };

// Most header functions are called by the learner's text itself: place and caller decide.
struct QuickSite { void *pc, *caller; u32 site, unused; };
static constexpr u32 QUICK_SITES = 1024;         // a power of two

// What every access touches of its site.
struct HotSite {
    u32 key;
    u32 object;                                  // that it touched last: place in block.arrays, or a buffer's number
    u64 objects;                                 // as in SimtStats
    const WarpChecks* warp;                      // whose requests `slot` holds: the last one's that came by
    RequestSlot* slot;
};

SIMT_INLINE u32 site_key(u32 space, u32 access, u32 size) { return size << 8 | space << 4 | access; }

// The present launch, and what every access wants to know of it.
static struct Here {
    const SimtLaunch* launch;
    u64 text, text_bytes, arena_bytes;
} here;

struct Sites {
    HotSite* hot;                                // one for each site, like `stats`
    QuickSite quick[QUICK_SITES];
    u32 count, lost;
    SimtStats* stats;                            // one for each site; site 0 is none
    HeaderPlace* header;                         // hash table
    u16* by_code;                                // per byte of text
};
static Sites sites;

static u64 sites_bytes(const SimtLaunch* launch) {
    return HEADER_PLACES * sizeof(HeaderPlace) + MOST_SITES * sizeof(HotSite) + launch->text_bytes * 2;
}

static void open_sites(const SimtLaunch* launch, SimtStats* stats) {
    here = {launch, launch->text, launch->text_bytes, launch->arena_bytes};
    memset(launch->region[REGION_SITES], 0, sites_bytes(launch));
    memset(sites.quick, 0, sizeof sites.quick);
    sites.count = 1, sites.lost = 0;
    sites.stats = stats;
    sites.header = (HeaderPlace*)launch->region[REGION_SITES];
    sites.hot = (HotSite*)(sites.header + HEADER_PLACES);
    sites.by_code = (u16*)(sites.hot + MOST_SITES);
    sites.hot[0].key = ~0u;
}

static void close_sites() {
    for (u32 i = 1; i < sites.count; i++) sites.stats[i].objects = sites.hot[i].objects;
}

SIMT_INLINE u32 line_at(const SimtLaunch* launch, void* pc) {
    u64 at = (u64)pc - 1 - launch->text;         // the call, not what follows it
    return at < launch->text_bytes ? launch->lines[at] : 0;
}

static SIMT_NOINLINE u32 line_of_caller(const Fiber* fiber, const SimtLaunch* launch) {
    for (u32 depth = smaller(fiber->checks.depth, DEEPEST_FRAME); depth--;)
        if (u32 line = line_at(launch, fiber->checks.frames[depth])) return line;
    return 0;
}

static u32 learner_line(const Fiber* fiber, void* pc) {
    const SimtLaunch* launch = fiber->block->machine->launch;
    u32 line = line_at(launch, pc);
    return line ? line : line_of_caller(fiber, launch);
}

// The calls that led here, as one number; the outermost one is that of the kernel, always the same.
SIMT_INLINE u64 call_path(const Fiber* fiber, void* pc) {
    u64 hash = (u64)pc;
    for (u32 i = 1, end = smaller(fiber->checks.depth, DEEPEST_FRAME); SIMT_UNLIKELY(i < end); i++)
        hash = (hash ^ (u64)fiber->checks.frames[i]) * 0x100000001B3u;
    return hash;
}

static SIMT_NOINLINE u16 new_site(u32 line, u32 space, u32 access, u32 size) {
    if (sites.count == MOST_SITES) {
        sites.lost++;
        return 0;
    }
    SimtStats& stats = sites.stats[sites.count];
    memset(&stats, 0, sizeof stats);
    sites.hot[sites.count].key = site_key(space, access, size);
    sites.hot[sites.count].object = space == SPACE_SHARED ? NO_ARRAY : NO_BUFFER;
    stats.line = line, stats.space = space, stats.access = access, stats.size = size;
    stats.sample_key = ~0ull;
    return (u16)sites.count++;
}

static u16 site_by_hash(void* pc, u32 line, u32 space, u32 access, u32 size) {
    pc = (char*)pc + ((u64)(space * 4 + access) << 58 | (u64)size << 48);
    u64 hash = ((u64)pc * 0x9E3779B97F4A7C15u ^ line * 0x2545F4914F6CDD1Du) >> 20;
    for (u32 i = 0; i < 64; i++) {
        HeaderPlace& place = sites.header[(hash + i) % HEADER_PLACES];
        if (place.pc == pc && place.line == line && place.site) return (u16)place.site;
        if (!place.site) {
            place = {pc, line, new_site(line, space, access, size)};
            return (u16)place.site;
        }
    }
    sites.lost++;
    return 0;
}

static SIMT_NOINLINE u16 header_site(const Fiber* fiber, const SimtLaunch* launch, void* pc, u32 space, u32 access,
                                     u32 size) {
    u32 depth = fiber->checks.depth;
    void* caller = depth && depth <= DEEPEST_FRAME ? fiber->checks.frames[depth - 1] : nullptr;
    QuickSite& quick = sites.quick[((u64)pc * 31 + (u64)caller) * 0x9E3779B97F4A7C15u >> 54];
    if (SIMT_LIKELY(quick.pc == pc && quick.caller == caller && caller)) return (u16)quick.site;
    u16 site = site_by_hash(pc, line_of_caller(fiber, launch), space, access, size);
    if (caller && line_at(launch, caller)) quick = {pc, caller, site, 0};
    return site;
}

// A second site for one place in the code that touches another space, or another size, than at first.
static SIMT_NOINLINE u16 variant_site(const Fiber* fiber, void* pc, u32 space, u32 access, u32 size) {
    return site_by_hash(pc, learner_line(fiber, pc), space, access, size);
}

// The site of a place in the learner's own text, if it has one already; else 0.
SIMT_INLINE u16 known_site(void* pc) {
    u64 at = (u64)pc - 1 - here.text;
    return SIMT_LIKELY(at < here.text_bytes) ? sites.by_code[at] : 0;
}

// SimtStats.objects has a bit for each object.
SIMT_INLINE u64 bit_of_array(const SharedArray& array) { return 1ull << smaller(array.index + 1, 63); }
SIMT_INLINE u64 bit_of_buffer(u32 number) { return 1ull << smaller(number, 63u); }
SIMT_INLINE void note_object(HotSite& hot, u32 number, u64 bit) {
    if (hot.object == number) return;
    hot.object = number;
    hot.objects |= bit;
}

SIMT_INLINE u16 site_at(const Fiber* fiber, void* pc, u32 space, u32 access, u32 size) {
    u64 at = (u64)pc - 1 - here.text;
    if (SIMT_LIKELY(at < here.text_bytes)) {
        u16& site = sites.by_code[at];
        if (SIMT_LIKELY(site)) return site;
        if (u32 line = here.launch->lines[at]) return site = new_site(line, space, access, size);
    }
    return header_site(fiber, here.launch, pc, space, access, size);
}
