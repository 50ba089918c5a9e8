// Who touched which word: the records from which hazards are found.
//
// Each 4-byte word of shared and global memory has a cell with records, one for each (site, kind of access, bytes of
// the word) that touched it, so that every pair of conflicting lines is found whatever the schedule.  A record holds
// the lanes of one warp, at one time of that warp, and one thread of any other warp: enough to decide exactly, for a
// later access, whether somebody else's access is unordered with it, and whether the two are in different warps.
#pragma once
#include "findings.h"
#include "sites.h"

enum Kind : u8 { PLAIN_READ = 0, PLAIN_WRITE = 1, ATOMIC = 2, VOLATILE_READ = 4, VOLATILE_WRITE = 5, FLAG = 7 };
SIMT_INLINE bool writes(u8 kind) { return kind & 3; }
SIMT_INLINE bool strong(u8 kind) { return kind >= ATOMIC; }      // volatile and atomic: no race among themselves
SIMT_INLINE u32 access_word(u8 kind) {
    return kind == ATOMIC ? ACCESS_ATOMIC : writes(kind) ? ACCESS_WRITE : ACCESS_READ;
}

static constexpr u16 NO_OTHER = 0xFFFF;
enum RecordFlag : u8 { READ_UNWRITTEN = 1, IN_A_RACE = 2 };

struct Record {
    u32 lanes;                   // of `warp`; 0: the record is empty
    u32 time;                    // of the warp, when they did it
    u16 site, other;             // other: a thread of another warp that did it in the same interval
    u16 mask;                    // which bytes of the cell
    u8 warp, kind, flags, number;        // number: in the cell; records of one site, kind and mask share it
    u16 counted;                 // bit i: conflicts with the cell's record number i were counted
};
struct GlobalRecord : Record { u32 interval, block; };

// A cell's records beyond the first ones.
struct SharedLink { Record record; u32 next; };
struct GlobalLink { GlobalRecord record; u32 next; };

struct alignas(64) SharedCell {                  // one line of the cache
    u32 interval, links, written;                // written: bytes that have a value
    Record record[2];
};
struct GlobalCell { u32 launch, links; GlobalRecord record; };

static constexpr u32 SHARED_LINKS_A_WORD = 4, GLOBAL_LINKS_A_WORD = 4;
struct Links {
    GlobalLink* global;
    u32 global_used, global_end;
    SharedLink* shared;
} static links;        // each block: a part of `shared`

SIMT_INLINE bool known_to(const Fiber* fiber, u32 lane, u32 time) {      // both in the present interval and in one warp
    const WarpChecks& checks = fiber->warp->checks;
    return checks.known_interval == fiber->block->checks.interval && checks.known[fiber->lane][lane] > time;
}

SIMT_INLINE u32 warp_time(const Fiber* fiber) { return fiber->warp->checks.time; }

enum Order : u8 { ORDERED = 0, UNORDERED_IN_WARP = 1, UNORDERED = 2 };

// Is some other thread's access in `record`, of the present block and interval, unordered with what `fiber` does now?
SIMT_INLINE Order order_in_interval(const Fiber* fiber, const Record& record, u32& other_thread) {
    if (record.warp != fiber->warp->number) {
        other_thread = record.warp * WARP + lowest(record.lanes);
        return UNORDERED;
    }
    if (record.other != NO_OTHER) {
        other_thread = record.other;
        return UNORDERED;
    }
    for (u32 rest = record.lanes & ~(1u << fiber->lane); rest; rest &= rest - 1) {
        if (known_to(fiber, lowest(rest), record.time)) continue;
        other_thread = record.warp * WARP + lowest(rest);
        return UNORDERED_IN_WARP;
    }
    return ORDERED;
}

struct Conflict { Record* record; u32 other_thread; Order order; };
static constexpr u32 MOST_CONFLICTS = 24;

// The walk over one cell: finds conflicts and the record that the access belongs to.
struct Visit {
    Fiber* fiber;
    u16 site, mask;
    u8 kind;
    u32 number = 0;              // of kinds of records looked at
    Record* mine = nullptr;
    Record* empty = nullptr;
    u32 own_number = ~0u;        // of the records that are like this access
    u32 conflicts = 0;
    Conflict conflict[MOST_CONFLICTS];

    void add_conflict(Record& record, u32 other_thread, Order order) {
        if (conflicts < MOST_CONFLICTS) conflict[conflicts++] = {&record, other_thread, order};
    }
    bool alike(const Record& record) {
        if (record.site != site || record.kind != kind || record.mask != mask) return false;
        own_number = record.number;
        return true;
    }
    u32 new_number() const { return own_number == ~0u ? number : own_number; }
};

// Add this thread to a record of the same site in the same block and interval; false if the record cannot hold it.
static bool join_record(const Fiber* fiber, Record& record) {
    u32 bit = 1u << fiber->lane, time = warp_time(fiber);
    if (record.warp != fiber->warp->number) {
        if (record.other == NO_OTHER) record.other = (u16)fiber->thread;
        return true;
    }
    if (record.time != time && record.other == NO_OTHER) {
        for (u32 rest = record.lanes & ~bit; rest; rest &= rest - 1)
            if (!known_to(fiber, lowest(rest), record.time)) return false;
        record.lanes = 0;                        // all that comes before this access, which stands for it from now on
    }
    record.lanes |= bit;
    record.time = time;
    return true;
}

// In three words, not ten fields: every access does this.
SIMT_INLINE void write_record(const Fiber* fiber, Record& record, u32 number, u16 site, u8 kind, u16 mask) {
    struct Words { u64 who, what; u32 rest; } __attribute__((packed, may_alias));
    static_assert(sizeof(Words) == sizeof(Record) && offsetof(Record, site) == 8 && offsetof(Record, mask) == 12 &&
                      offsetof(Record, kind) == 15 && offsetof(Record, number) == 17,
                  "the words are those fields");
    const Warp* warp = fiber->warp;
    u64 who = fiber->lane_bit | (u64)warp->checks.time << 32;
    u64 what = site | (u64)NO_OTHER << 16 | (u64)mask << 32 | (u64)warp->number << 48 | (u64)kind << 56;
    *(Words*)&record = {who, what, smaller(number, 255u) << 8};
}

// Each pair of lines is counted once for each word (and interval); an error seen later still raises the severity.
static SIMT_NOINLINE void report_conflicts(const Visit& visit, u32 kind, u32 space, int32_t object, i64 offset,
                                           u32 size, u32 variant = 0) {
    for (u32 i = 0; i < visit.conflicts; i++) {
        const Conflict& conflict = visit.conflict[i];
        Record& theirs = *conflict.record;
        Record* mine = visit.mine;
        bool counted = mine && theirs.number < 16 && mine->number < 16 &&
                       ((mine->counted >> theirs.number & 1) || (theirs.counted >> mine->number & 1));
        if (mine && theirs.number < 16 && mine->number < 16) {
            mine->counted |= (u16)(1u << theirs.number);
            theirs.counted |= (u16)(1u << mine->number);
        }
        theirs.flags |= IN_A_RACE;
        if (mine) mine->flags |= IN_A_RACE;
        if (counted && conflict.order == UNORDERED_IN_WARP) continue;

        SimtFinding finding = finding_of(visit.fiber, kind, variant, sites.stats[visit.site].line);
        finding.severity = conflict.order == UNORDERED;
        finding.access = access_word(visit.kind);
        finding.other_line = sites.stats[theirs.site].line;
        finding.other_access = access_word(theirs.kind);
        finding.other_thread = conflict.other_thread;
        if (space == SPACE_GLOBAL) finding.other_block = ((const GlobalRecord&)theirs).block;
        u32 bytes = ones(visit.mask & theirs.mask);
        finding.count = counted ? 0 : (bytes + 3) / 4;
        finding.bytes = counted ? 0 : bytes;
        finding.space = space, finding.object = object, finding.offset = offset, finding.size = size;
        bool later = finding.line > finding.other_line ||
                     (finding.line == finding.other_line && finding.access < finding.other_access);
        if (later) {                             // which comes first is the schedule's choice: the report goes by lines
            u32 line = finding.line, access = finding.access, thread = finding.thread;
            u64 block = finding.block;
            finding.line = finding.other_line, finding.access = finding.other_access;
            finding.thread = finding.other_thread, finding.block = finding.other_block;
            finding.other_line = line, finding.other_access = access;
            finding.other_thread = thread, finding.other_block = block;
        }
        add_finding(finding);
    }
}
