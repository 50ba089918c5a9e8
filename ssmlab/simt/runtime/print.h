// printf, assert, clock64, __nanosleep.  Text is kept in a bounded buffer, each piece with its thread, for launch.py.
#pragma once
#include "observe.h"
#include "scheduler.h"

static constexpr u64 PRINT_BYTES = 1 << 20;      // as on a GPU: 1 MiB, what comes later is lost (and counted)
static constexpr u32 LONGEST_PRINT = 4096;

static SimtResults* results_of(const SimtLaunch* launch) { return (SimtResults*)launch->region[REGION_RESULTS]; }

static u32 interval_of(Fiber* fiber) { return (u32)fiber->block->barriers; }

// CUDA's printf gives the number of its arguments, not of the characters written.
static int arguments_of(const char* format) {
    int count = 0;
    for (; *format; format++) {
        if (*format != '%') continue;
        if (format[1] == '%') format++;
        else for (count++; *++format && (*format < 'A' || *format == 'h' || *format == 'l'); ) count += *format == '*';
        if (!*format) break;
    }
    return count;
}

SIMT_API int simt_printf(const char* format, ...) {
    Fiber* fiber = current();
    SimtResults* results = results_of(fiber->block->machine->launch);
    char* to = results->print + results->print_bytes;
    u64 left = PRINT_BYTES - results->print_bytes;
    if (left < sizeof(SimtPrint) + LONGEST_PRINT) {
        results->print_lost++;
        return -1;
    }
    va_list arguments;
    va_start(arguments, format);
    observe_print(fiber, SIMT_CALLER);
    int wanted = vsnprintf(to + sizeof(SimtPrint), LONGEST_PRINT, format, arguments);
    observe_print(fiber, nullptr);
    va_end(arguments);
    u32 bytes = wanted < 0 ? 0 : smaller<u32>((u32)wanted, LONGEST_PRINT - 1);
    SimtPrint piece = {fiber->block->number, interval_of(fiber), fiber->thread, bytes, 0};
    memcpy(to, &piece, sizeof piece);
    results->print_bytes += sizeof piece + ((bytes + 7) & ~7u);
    return arguments_of(format);
}

static void record_assert(Fiber*, const char* expression, void* pc);     // checked.h, native.h

SIMT_API void simt_assert_failed(const char* expression, const char*, int) {
    Fiber* fiber = current();
    record_assert(fiber, expression, SIMT_CALLER);
    abandon(fiber);
}

SIMT_API void simt_trap() {
    Fiber* fiber = current();
    record_assert(fiber, "__trap()", SIMT_CALLER);
    abandon(fiber);
}

SIMT_API int64_t simt_clock() {
    Fiber* fiber = current();
#if SIMT_CHECKED
    steps_left--;
    return (i64)steps_of(fiber);
#elif defined(__x86_64__)
    (void)fiber;
    return (i64)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    (void)fiber;
    u64 ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return (i64)ticks;
#else
    return (i64)++fiber->steps;
#endif
}

SIMT_API void simt_sleep(unsigned) {
    Fiber* fiber = current();
#if SIMT_CHECKED
    observe_sleep(fiber, SIMT_CALLER);
#else
    let_others_run(fiber);
#endif
}

