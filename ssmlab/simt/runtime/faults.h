// A kernel that faults (an address that is not there, a division by zero, a trap) ends its launch, not the process.
//
// While a launch runs, the signals of such faults have a handler here.  A fault is ours if it happens on the alternate
// signal stack of a launching thread while one of its fibers runs; any other goes to the handler that was there before
// (Python's faulthandler, say).  The handler writes down the finding and lets the interrupted thread continue in
// `land`, on the fiber's emptied stack, which gives up the launch like any other fatal finding.
//
// Not covered: Windows, where the process still ends.
#pragma once
#include "machine.h"

enum FaultCause : u8 { FAULT_ACCESS, FAULT_DIVISION, FAULT_INSTRUCTION };

struct Fault {
    FaultCause cause;
    bool at_known_address, writes, reads;        // what the processor tells
    u64 pc, stack_pointer, address;
    u64 return_address;          // if the fault is at the first instruction of a function
};
static void report_fault(Machine*, const Fault&);                // fault_findings.h, native.h
static Fiber* fiber_to_land_on(Machine*);

static constexpr u64 FAULT_STACK = 65536;        // [B] a launching thread; one place for each native worker, one for
static constexpr u32 FAULT_STACKS = 65;          // the checked launch
static constexpr u64 FAULT_GUARD = 1 << 20;      // [B] below the first stack that nobody may touch

#if defined(_WIN32)

struct FaultWatch {
    FaultWatch(Machine*, u32) {}
};
SIMT_API void simt_catch_faults(const SimtLaunch*) {}
SIMT_API void simt_leave_faults() {}
static void guard_stacks(char*, u64) {}

#else

#include <signal.h>
#include <sys/mman.h>
#if defined(__APPLE__)
#include <sys/ucontext.h>
#else
#include <ucontext.h>
#endif

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#define SIMT_FAULT_LANDS 1
#elif defined(__APPLE__) && (defined(__x86_64__) || defined(__aarch64__))
#define SIMT_FAULT_LANDS 1
#else
#define SIMT_FAULT_LANDS 0
#endif

struct FaultPlace {              // lies at the low end of a thread's alternate stack
    Machine* machine;
    bool (*take)(FaultPlace*, int, siginfo_t*, void*);           // of the library whose launch it is
    stack_t stack_before;
};

static constexpr int FAULT_SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
static constexpr u32 FAULT_KINDS = sizeof FAULT_SIGNALS / sizeof *FAULT_SIGNALS;
static struct sigaction handlers_before[FAULT_KINDS];
static char* fault_stacks;

// Where a fiber goes on whose instruction could not be carried out.
static SIMT_NOINLINE void land() { abandon(current()); }

#if SIMT_FAULT_LANDS
static Fault read_fault([[maybe_unused]] const Machine* machine, int signal, const siginfo_t* info,
                        const ucontext_t* context) {
    Fault fault = {};
    fault.cause = signal == SIGFPE                        ? FAULT_DIVISION
                  : signal == SIGILL || signal == SIGTRAP ? FAULT_INSTRUCTION
                                                          : FAULT_ACCESS;
    fault.address = (u64)info->si_addr;
    fault.at_known_address = info->si_code > 0 && info->si_code != 0x80;         // 0x80: not a canonical address
#if defined(__linux__) && defined(__x86_64__)
    fault.pc = (u64)context->uc_mcontext.gregs[REG_RIP];
    fault.stack_pointer = (u64)context->uc_mcontext.gregs[REG_RSP];
    fault.writes = fault.at_known_address && context->uc_mcontext.gregs[REG_ERR] & 2;
    fault.reads = fault.at_known_address && !fault.writes;
#elif defined(__linux__)
    fault.pc = context->uc_mcontext.pc;
    fault.return_address = context->uc_mcontext.regs[30];
    fault.stack_pointer = context->uc_mcontext.sp;
#elif defined(__x86_64__)
    fault.pc = context->uc_mcontext->__ss.__rip;
    fault.stack_pointer = context->uc_mcontext->__ss.__rsp;
#else
    fault.pc = (u64)__darwin_arm_thread_state64_get_pc(context->uc_mcontext->__ss);
    fault.return_address = (u64)__darwin_arm_thread_state64_get_lr(context->uc_mcontext->__ss);
    fault.stack_pointer = (u64)__darwin_arm_thread_state64_get_sp(context->uc_mcontext->__ss);
#endif
#if defined(__x86_64__)
    const SimtLaunch* launch = machine->launch;
    if (fault.stack_pointer - (u64)stack_of(launch, 0) < launch->region_bytes[REGION_STACKS] - STACK_GUARD - 8)
        fault.return_address = *(u64*)fault.stack_pointer;
#endif
    return fault;
}

static void continue_at(ucontext_t* context, void (*place)(), u64 stack_pointer) {
#if defined(__linux__) && defined(__x86_64__)
    context->uc_mcontext.gregs[REG_RIP] = (long long)place;
    context->uc_mcontext.gregs[REG_RSP] = (long long)stack_pointer - 8;          // as after a call
#elif defined(__linux__)
    context->uc_mcontext.pc = (u64)place;
    context->uc_mcontext.sp = stack_pointer;
#elif defined(__x86_64__)
    context->uc_mcontext->__ss.__rip = (u64)place;
    context->uc_mcontext->__ss.__rsp = stack_pointer - 8;
#else
    __darwin_arm_thread_state64_set_pc_fptr(context->uc_mcontext->__ss, (void*)place);
    __darwin_arm_thread_state64_set_sp(context->uc_mcontext->__ss, (void*)stack_pointer);
#endif
}

static bool take_fault(FaultPlace* place, int signal, siginfo_t* info, void* context) {
    Machine* machine = place->machine;
    if (!machine || !machine->fiber_runs || info->si_code <= 0) return false;    // <= 0: sent by somebody
    report_fault(machine, read_fault(machine, signal, info, (ucontext_t*)context));
    Fiber* fiber = fiber_to_land_on(machine);
    continue_at((ucontext_t*)context, land, ((u64)fiber->stack + STACK_BYTES - 512) & ~15ull);
    return true;
}
#else
static bool take_fault(FaultPlace*, int, siginfo_t*, void*) { return false; }
#endif

static void pass_on(int signal, siginfo_t* info, void* context) {
    u32 i = 0;
    while (FAULT_SIGNALS[i] != signal) i++;
    const struct sigaction& before = handlers_before[i];
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else if (info->si_code > 0 || before.sa_handler == SIG_DFL) {
        sigaction(signal, &before, nullptr);     // the instruction is tried again, and the system does the rest
        if (info->si_code <= 0) raise(signal);
    }
}

static void on_fault(int signal, siginfo_t* info, void* context) {
    u64 in_stacks = (u64)((char*)__builtin_frame_address(0) - fault_stacks);
    if (in_stacks < FAULT_STACK * FAULT_STACKS) {
        FaultPlace* place = (FaultPlace*)(fault_stacks + in_stacks / FAULT_STACK * FAULT_STACK);
        if (place->take && place->take(place, signal, info, context)) return;
    }
    pass_on(signal, info, context);
}

// The launching thread has an alternate signal stack for as long as this lives.
struct FaultWatch {
    FaultPlace* place;
    FaultWatch(Machine* machine, u32 number) {
        char* low = (char*)machine->launch->region[REGION_FAULTS] + number * FAULT_STACK;
        place = (FaultPlace*)low;
        place->machine = machine;
        place->take = take_fault;
        stack_t stack = {};
        stack.ss_sp = low + 1024;
        stack.ss_size = FAULT_STACK - 1024;
        sigaltstack(&stack, &place->stack_before);
    }
    ~FaultWatch() {
        sigaltstack(&place->stack_before, nullptr);
        place->take = nullptr;
        place->machine = nullptr;
    }
};

// launch.py calls these around one launch or several beside each other: handlers belong to the whole process.
SIMT_API void simt_catch_faults(const SimtLaunch* launch) {
    fault_stacks = (char*)launch->region[REGION_FAULTS];
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (u32 i = 0; i < FAULT_KINDS; i++) sigaction(FAULT_SIGNALS[i], &action, &handlers_before[i]);
}

SIMT_API void simt_leave_faults() {
    for (u32 i = 0; i < FAULT_KINDS; i++) sigaction(FAULT_SIGNALS[i], &handlers_before[i], nullptr);
}

// Memory below stacks: who grows into it gets a fault.
static void guard_stacks(char* low, u64 bytes) { mprotect(low, bytes, PROT_NONE); }

#endif
