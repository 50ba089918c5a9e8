// What was found, one entry for each kind and pair of lines; later events only count.
#pragma once
#include "model.h"

static constexpr u32 MOST_FINDINGS = 512;
static constexpr u32 FINDING_PLACES = 2048;      // a power of two

static SimtResults* results;
static u16 finding_place[FINDING_PLACES];        // hash table: number of the finding + 1

static void open_findings() { memset(finding_place, 0, sizeof finding_place); }

static bool same_finding(const SimtFinding& a, const SimtFinding& b) {
    return a.kind == b.kind && a.line == b.line && a.other_line == b.other_line && a.access == b.access &&
           a.other_access == b.other_access && a.space == b.space && a.object == b.object && a.variant == b.variant;
}

static SimtFinding* add_finding(const SimtFinding& finding) {
    u64 hash = finding.kind * 31 + finding.line;
    hash = (hash * 0x9E3779B97F4A7C15u + finding.other_line) * 0x9E3779B97F4A7C15u + (u32)finding.object * 8 +
           finding.variant;
    hash = (hash * 0x9E3779B97F4A7C15u + finding.access * 4 + finding.other_access) >> 24;
    for (u32 i = 0;; i++) {
        u16& place = finding_place[(hash + i) % FINDING_PLACES];
        if (!place) {
            if (results->findings == MOST_FINDINGS) {
                results->findings_lost += finding.count;
                return nullptr;
            }
            results->finding[results->findings++] = finding;
            place = (u16)results->findings;
            return &results->finding[place - 1];
        }
        SimtFinding& known = results->finding[place - 1];
        if (!same_finding(known, finding)) continue;
        u64 count = known.count + finding.count, bytes = known.bytes + finding.bytes;
        if (finding.severity > known.severity) known = finding;      // the example shows the worse case
        known.count = count, known.bytes = bytes;
        return &known;
    }
}

// A finding about one thread; the caller fills in the rest.
static SimtFinding finding_of(const Fiber* fiber, u32 kind, u32 variant, u32 line) {
    SimtFinding finding = {};
    finding.kind = kind, finding.severity = 1, finding.variant = variant;
    finding.line = line;
    finding.access = finding.other_access = ACCESS_NONE;
    finding.space = SPACE_OTHER, finding.object = -2;
    finding.thread = fiber->thread, finding.other_thread = NO_THREAD;
    finding.block = finding.other_block = fiber->block->number;
    finding.count = 1;
    return finding;
}
