// What checked mode says about a fault (faults.h): accesses that the compiler gave no hook, divisions, traps.
#pragma once
#include "access.h"
#include "faults.h"

static Fiber* fiber_to_land_on(Machine*) { return running; }

static void observe_print(Fiber* fiber, void* pc) { fiber->checks.printing = pc; }

// In the learner's code, in printf (of a wild string), or behind a call of what is no function.
static u32 line_of_fault(const Fiber* fiber, const Fault& fault) {
    const SimtLaunch* launch = fiber->block->machine->launch;
    if (fault.pc - launch->image < launch->image_bytes) {
        u32 line = line_at(launch, (void*)(fault.pc + 1));       // the line of what comes before a return address
        if (!line && fault.address - launch->image < launch->image_bytes && fiber->checks.unchecked)
            line = learner_line(fiber, fiber->checks.unchecked);
        return line ? line : line_of_caller(fiber, launch);
    }
    if (fiber->checks.printing) return learner_line(fiber, fiber->checks.printing);
    return learner_line(fiber, (void*)fault.return_address);
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
    if (fault.cause == FAULT_DIVISION) {
        finding.kind = KIND_DIVISION_BY_ZERO;
    } else if (fault.cause == FAULT_INSTRUCTION) {
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
