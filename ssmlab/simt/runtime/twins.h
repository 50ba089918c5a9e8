// One read that a compiler makes several times.
//
// With -fsanitize=bounds GCC evaluates an index that it takes for a constant, such as x[i] in bins[x[i]] with const
// int* x, once for the check and once for each use.  So a plain read of an address that the same thread has just read
// in the same line does not count again, unless it wrote there in between: a GPU's compiler would keep the value in a
// register.
#pragma once
#include "sites.h"

static constexpr u64 TWIN_STEPS = 6;             // "just": basic blocks since then

SIMT_INLINE bool is_twin(Fiber* fiber, u64 address, u32 size, void* pc) {
    FiberChecks& checks = fiber->checks;
    u64 now = steps_of(fiber);
    u32 code = (u32)((u64)pc - here.text), steps = (u32)now;
    for (u32 i = now > checks.twins_until ? RECENT_READS : 0; i < RECENT_READS; i++) {
        if (SIMT_LIKELY(checks.recent_address[i] != address)) continue;
        const RecentRead& read = checks.recent[i];
        if (read.size != size || (steps - read.steps & 0xFFFFFF) > TWIN_STEPS || read.code == code) continue;
        u32 line = line_at(here.launch, pc);
        if (line && line == line_at(here.launch, (void*)(here.text + read.code))) return true;
    }
    u32 i = checks.recent_next;
    checks.recent_next = i + 1 == RECENT_READS ? 0 : i + 1;
    checks.recent_address[i] = address;
    checks.recent[i] = {code, steps & 0xFFFFFF, size};
    checks.twins_until = now + TWIN_STEPS;
    return false;
}

SIMT_INLINE void forget_twins(Fiber* fiber, u64 address, u32 size) {
    if (SIMT_LIKELY(steps_of(fiber) > fiber->checks.twins_until)) return;
    for (u64& recent : fiber->checks.recent_address)
        if (SIMT_UNLIKELY(recent - address < size)) recent = 0;
}
