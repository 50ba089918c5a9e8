// Loops without end.
//
// A thread may run so many basic blocks (SimtLaunch.watchdog), and the threads of a block may take as many turns
// together: a turn is a barrier or a warp-wide operation of one thread, or four accesses in a long run of them, all far
// slower than a basic block, so that the first limit alone would be reached after minutes.  What other blocks do
// meanwhile is not charged to a block.  Who has reached a limit is watched for a while: the first and the last line that
// it comes by in its outermost function are the loop's.
#pragma once
#include "findings.h"
#include "sites.h"

static constexpr u64 LOOK_AT_LOOP = 100000;      // how long: basic blocks, or
static constexpr u64 LOOK_AT_TURNS = 500;        // as many of a thread that takes turns with others
static constexpr u64 TURNS_TO_OPEN = 96;         // that a barrier opens costs about as much as so many threads at it
static constexpr u64 TURNS_TO_WAIT = 1 << 22;    // who has not run so many meanwhile is not in the loop: another is watched
static constexpr u64 STEPS_TO_PAUSE = 1 << 20;
enum EndlessVariant { ENDLESS_STEPS = 0, ENDLESS_TURNS = 2 };

static u64 next_look(u64 steps) { return smaller((steps / STEPS_TO_PAUSE + 1) * STEPS_TO_PAUSE, most_steps); }

static SIMT_NOINLINE void suspect(Fiber* fiber) {
    BlockChecks& checks = fiber->block->checks;
    if (checks.turns <= checks.suspect_until || fiber->wait == EXITED) return;
    checks.suspect = fiber;
    checks.suspect_steps = steps_of(fiber);
    checks.suspect_until = checks.turns + TURNS_TO_WAIT;
    look_again_at(fiber, 0);
    fiber->checks.loop_frame = 0;
}

SIMT_INLINE void take_turns(Fiber* fiber, u64 turns) {
    if (SIMT_UNLIKELY((fiber->block->checks.turns += turns) > most_steps)) suspect(fiber);
}

// The launch's accesses up to here have been charged to the blocks that made them.  Each block is charged when it leaves
// the stage to another, so all since then are those of the block that runs.
static u64 accesses_charged;
static void charge_accesses(Block* block) {
    block->checks.accesses += results->accesses - accesses_charged;
    accesses_charged = results->accesses;
}

// In a long run of accesses, now and then: four of them are a turn.
static constexpr u64 ACCESSES_A_TURN = 4;
static void take_accesses(Fiber* fiber) {
    charge_accesses(fiber->block);
    u64 turns = fiber->block->checks.accesses / ACCESSES_A_TURN;
    fiber->block->checks.accesses = 0;
    take_turns(fiber, turns);
}

static SIMT_NOINLINE void budget_is_spent(Fiber* fiber, u64 frame, void* pc) {
    FiberChecks& checks = fiber->checks;
    const BlockChecks& block = fiber->block->checks;
    u32 line = line_at(here.launch, pc);
    if (line && frame > checks.loop_frame)
        checks.loop_frame = frame, checks.loop_line = checks.loop_end = line;        // the stack grows down
    if (line && frame == checks.loop_frame) {
        checks.loop_line = smaller(checks.loop_line, line);
        checks.loop_end = larger(checks.loop_end, line);
    }
    u64 steps = steps_of(fiber);
    bool turns = block.suspect == fiber && steps >= block.suspect_steps + LOOK_AT_TURNS;
    if (!turns && steps < most_steps + LOOK_AT_LOOP) return;
    SimtFinding finding = finding_of(fiber, KIND_ENDLESS_LOOP, turns ? ENDLESS_TURNS : ENDLESS_STEPS, checks.loop_line);
    finding.extra[0] = (i64)most_steps;
    finding.extra[1] = checks.loop_end;
    add_finding(finding);
    abandon(fiber);
}

static SIMT_NOINLINE void look_at_steps(void* pc) {
    Fiber* fiber = current();
    if (!fiber->block) return;
    u64 frame = (u64)stack_now(), steps = steps_of(fiber);
    bool suspected = fiber->block->checks.suspect == fiber;
    if (suspected || steps > most_steps) budget_is_spent(fiber, frame, pc);
    if (!(steps % STEPS_TO_PAUSE)) pause_if_due(fiber);
    look_again_at(fiber, suspected ? 0 : next_look(steps));
}

SIMT_API void __sanitizer_cov_trace_pc() {
    if (SIMT_UNLIKELY(--steps_left <= 0)) look_at_steps(SIMT_CALLER);
}
