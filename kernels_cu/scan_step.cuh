// scan_step.cuh -- one step of a scan, a run of steps, and where both lie in memory: what all algorithms share.
//
// What       forward    h = a * h + b                                   reads a, x = b;           writes out = h
//            BACKWARD   g = dh + e;  db = g;  da = g * h_before;        reads a, x = dh, h;       writes out = db, da
//                       e = a * g   (e = what arrives from later steps)
//            Both carry one number from step to step, and a step changes it by state -> a * state + b. In the backward
//            pass b = a * dh, and time runs the other way. So every algorithm here computes both.
// Position   p counts steps in the order of the scan, t is the place in memory: t = p, or length - 1 - p if DESCENDING.
// PACKED     rows hold several sequences and padding. marks[batch][t] says what a step is (bits below); a step that
//            begins a sequence forgets the state before it by a select, not by a product with 0: 0 * NaN is NaN.
// States     begin, end, initial: (batches, channels) real, contiguous; PACKED: (slots, channels).
// WIDE       1: every row is read and written 16 bytes at a time. The launcher sets it if strides, addresses and sizes allow;
//            0 takes any strides, and combines in the same order.
// Offsets    64 bits everywhere.
#pragma once
#include "scan_element.cuh"

#ifndef BACKWARD
#define BACKWARD 0
#endif
#ifndef REVERSE
#define REVERSE 0
#endif
#ifndef PACKED
#define PACKED 0
#endif

constexpr bool DESCENDING = REVERSE != BACKWARD;
constexpr unsigned ALL_LANES = 0xffffffffu;

constexpr int HAS_BEGIN = 1, WANTS_END = 2, HAS_INITIAL = 4;                                 // bits of flags
constexpr int FIRST = 1, FIRST_FROM_SLOT = 2, LAST = 4, LAST_TO_SLOT = 8, PADDING = 16;      // bits of a mark
constexpr int SLOT_SHIFT = 5;                                                                // mark >> 5 = slot
constexpr int BEGINS = BACKWARD ? LAST : FIRST;                          // the backward pass enters where the scan left
constexpr int BEGINS_FROM_SLOT = BACKWARD ? LAST_TO_SLOT : FIRST_FROM_SLOT;
constexpr int ENDS_TO_SLOT = BACKWARD ? FIRST_FROM_SLOT : LAST_TO_SLOT;

// What a run of steps does to the state before it: state -> a * state + b.
struct Span {
    real a, b;
#if PACKED
    int cut;                                    // 1: a sequence begins inside the run, nothing before it counts
#endif
};

__device__ __forceinline__ Span span(real a, real b) {
    Span made;
    made.a = a;
    made.b = b;
#if PACKED
    made.cut = 0;
#endif
    return made;
}

__device__ __forceinline__ Span no_steps() { return span(1, 0); }

__device__ __forceinline__ real apply(Span run, real state) {
#if PACKED
    if (run.cut) {
        return run.b;
    }
#endif
    return run.a * state + run.b;
}

__device__ __forceinline__ Span then(Span first, Span second) {     // do first, then second
    Span both = span(first.a * second.a, second.a * first.b + second.b);
#if PACKED
    if (second.cut) {
        return second;
    }
    both.cut = first.cut;
#endif
    return both;
}

__device__ __forceinline__ Span from_lane(Span mine, int lane) {
    Span got = span(__shfl_sync(ALL_LANES, mine.a, lane), __shfl_sync(ALL_LANES, mine.b, lane));
#if PACKED
    got.cut = __shfl_sync(ALL_LANES, mine.cut, lane);
#endif
    return got;
}

__device__ __forceinline__ Span from_lanes_left(Span mine, int distance) {
    Span got = span(__shfl_up_sync(ALL_LANES, mine.a, distance), __shfl_up_sync(ALL_LANES, mine.b, distance));
#if PACKED
    got.cut = __shfl_up_sync(ALL_LANES, mine.cut, distance);
#endif
    return got;
}

struct Strides {
    long long batch, time, channel;             // [elements]
};

struct Problem {
    const element* a;
    const element* x;
    const element* h;                           // BACKWARD: what the forward pass wrote
    element* out;
    element* da;                                // BACKWARD; strides of out
    const real* begin;                          // state before position 0, if HAS_BEGIN
    real* end;                                  // state after the last position, if WANTS_END
    const real* initial;                        // BACKWARD: the forward pass's begin, if HAS_INITIAL
    const int* marks;                           // PACKED: (batches, length)
    const int* before;                          // PACKED and BACKWARD: t of the real step before, or -1
    Strides a_at, x_at, h_at, out_at;
    long long batches, channels, length;
    int flags;

    __device__ __forceinline__ bool is(int flag) const { return (flags & flag) != 0; }
    __device__ __forceinline__ unsigned zero() const { return (unsigned)flags >> 31; }      // flags are never negative
};

// One row (or VEC neighbouring rows): pointers to its first element, and which row it is.
struct Row {
    const element* a;
    const element* x;
    const element* h;
    element* out;
    element* da;
    long long batch, channel;
};

__device__ __forceinline__ Row row_at(const Problem& task, long long batch, long long channel) {
    Row row;
    row.a = task.a + batch * task.a_at.batch + channel * task.a_at.channel;
    row.x = task.x + batch * task.x_at.batch + channel * task.x_at.channel;
    row.h = task.h + batch * task.h_at.batch + channel * task.h_at.channel;
    row.out = task.out + batch * task.out_at.batch + channel * task.out_at.channel;
    row.da = task.da + batch * task.out_at.batch + channel * task.out_at.channel;
    row.batch = batch;
    row.channel = channel;
    return row;
}

__device__ __forceinline__ long long time_of(const Problem& task, long long position) {
    return DESCENDING ? task.length - 1 - position : position;
}

// Number of a row among all rows, as the arrays of states count them.
__device__ __forceinline__ long long number_of(const Problem& task, long long batch, long long channel) {
    return batch * task.channels + channel;
}

// The state before position 0. PACKED: nothing comes before it.
__device__ __forceinline__ real begin_of(const Problem& task, long long number) {
    return task.is(HAS_BEGIN) && !PACKED ? task.begin[number] : real(0);
}

__device__ __forceinline__ real initial_of(const Problem& task, long long slot, long long channel) {
    return task.is(HAS_INITIAL) ? task.initial[slot * task.channels + channel] : real(0);
}

__device__ __forceinline__ int mark_at(const Problem& task, const Row& row, long long position) {
#if PACKED
    return task.marks[row.batch * task.length + time_of(task, position)];
#else
    return 0;
#endif
}

// The state that a sequence starts from.
__device__ __forceinline__ real begin_in_slot(const Problem& task, int mark, long long channel) {
    const bool given = (mark & BEGINS_FROM_SLOT) && task.is(HAS_BEGIN);
    return given ? task.begin[(long long)(mark >> SLOT_SHIFT) * task.channels + channel] : real(0);
}

__device__ __forceinline__ Span step_span(const Problem& task, int mark, long long channel, real a, real x) {
    Span step = span(a, BACKWARD ? a * x : x);
#if PACKED
    if (mark & PADDING) {
        return no_steps();
    }
    if (mark & BEGINS) {
        step.b = a * begin_in_slot(task, mark, channel) + step.b;
        step.cut = 1;
    }
#endif
    return step;
}

// One step, for real: changes the state, gives what is written at this position. `previous` is h one step earlier.
__device__ __forceinline__ void take_step(const Problem& task, int mark, long long channel, real a, real x, real previous,
                                          real& state, real& out, real& da) {
#if PACKED
    if (mark & PADDING) {
        out = 0;
        da = 0;
        return;
    }
    if (mark & BEGINS) {
        state = begin_in_slot(task, mark, channel);
    }
#endif
#if BACKWARD
    out = x + state;
    da = out * previous;
    state = a * out;
#else
    state = a * state + x;
    out = state;
#endif
#if PACKED
    if ((mark & ENDS_TO_SLOT) && task.is(WANTS_END)) {
        task.end[(long long)(mark >> SLOT_SHIFT) * task.channels + channel] = state;
    }
#endif
}

// h one step before this one in the forward pass, which is one position later in the backward pass.
__device__ __forceinline__ real h_before(const Problem& task, const Row& row, int mark, int i, long long position) {
#if PACKED
    if (mark & PADDING) {
        return 0;
    }
    const long long t = task.before[row.batch * task.length + time_of(task, position)];
    if (t < 0) {
        return mark & FIRST_FROM_SLOT ? initial_of(task, mark >> SLOT_SHIFT, row.channel + i) : real(0);
    }
#else
    if (position + 1 >= task.length) {
        return initial_of(task, row.batch, row.channel + i);
    }
    const long long t = time_of(task, position + 1);
#endif
    return to_real(row.h[t * task.h_at.time + i * task.h_at.channel]);
}
