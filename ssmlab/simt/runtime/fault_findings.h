// What checked mode says about a fault (faults.h): accesses that the compiler gave no hook, divisions, traps.
#pragma once
#include "access.h"
#include "faults.h"

static Fiber* fiber_to_land_on(Machine*) { return running; }

// A fault inside a library (printf of a wild string): the innermost return address on the stack that is the learner's.
static u32 line_of_stack(const Fiber* fiber, u64 stack_pointer) {
    u64 end = (u64)fiber->stack + STACK_BYTES;
    if (stack_pointer - (u64)fiber->stack >= STACK_BYTES) return 0;
    for (u64 at = (stack_pointer + 7) & ~7ull; at + 8 <= end; at += 8)
        if (u32 line = line_at(fiber->block->machine->launch, *(void**)at)) return line;
    return 0;
}

static u32 line_of_fault(const Fiber* fiber, const Fault& fault) {
    const SimtLaunch* launch = fiber->block->machine->launch;
    void* pc = (void*)(fault.pc + 1);            // line_at looks at what comes before a return address
    u32 line = fault.pc - launch->image < launch->image_bytes ? 0 : line_of_stack(fiber, fault.stack_pointer);
    return line ? line : learner_line(fiber, pc);
}

static bool is_stack_overflow(const Fiber* fiber, const Fault& fault) {
    u64 stack = (u64)fiber->stack, around = fault.address - fault.stack_pointer + STACK_BYTES;
    return fault.stack_pointer < stack + STACK_RESERVE && fault.stack_pointer > stack - (64u << 20) &&
           around < 2 * STACK_BYTES;
}

static u32 wild_variant(const SimtLaunch* launch, const Fault& fault) {
    if (!fault.at_known_address) return WILD_NOWHERE;
    if (fault.address == fault.pc) return WILD_CODE;
    if (fault.address < 65536) return WILD_NULL;
    if (fault.address - launch->image < launch->image_bytes) return WILD_CONSTANT;
    return WILD_NOWHERE;
}

static void report_fault(Machine* machine, const Fault& fault) {
    Fiber* fiber = running;
    if (fiber->checks.frame_in_doubt) return;    // the index behind it was told already
    const SimtLaunch* launch = machine->launch;
    SimtFinding finding = finding_of(fiber, KIND_WILD_ACCESS, 0, line_of_fault(fiber, fault));
    bool in_code = fault.pc - launch->image < launch->image_bytes;
    if (fault.signal == SIGFPE) {
        finding.kind = KIND_DIVISION_BY_ZERO;
    } else if (fault.signal == SIGILL || fault.signal == SIGTRAP) {
        if (in_code) finding.kind = KIND_ASSERT, finding.text = "__trap()";
        else finding.variant = WILD_CODE;
    } else if (is_stack_overflow(fiber, fault)) {
        finding.kind = KIND_STACK_OVERFLOW;
    } else {
        finding.variant = wild_variant(launch, fault);
        finding.offset = (i64)fault.address;
        if (finding.variant != WILD_CODE)
            finding.access = fault.writes ? ACCESS_WRITE : fault.reads ? ACCESS_READ : ACCESS_NONE;
    }
    add_finding(finding);
}
