// The functions that a translated kernel, the dialect headers and launch.py call.  Same names in both modes.
//
// No function takes a line: in checked mode the runtime finds the learner's line itself, from the return address and,
// when the caller is a function of the headers, from the calls that lead there (compiler hooks func_entry/func_exit).
// So a header function may call anything here from anywhere; it must stay an ordinary instrumented function
// (no always_inline, no no_sanitize), else its accesses are blamed on the header.
//
// Modes       checked: this library's kernels are compiled with -O0 -g -gdwarf-4 -fsanitize=thread -fsanitize=bounds
//             -fsanitize-coverage=trace-pc and linked with runtime.cpp compiled with -DSIMT_CHECKED=1;
//             native: -O2 and runtime.cpp with -DSIMT_CHECKED=0 (trace-pc optional: for threads that poll for others).
// Linking     freestanding: no C++ library, no exceptions, -nostdlib -shared; memcpy, memset, memmove and vsnprintf
//             come from the C library that the Python process has loaded.
// Two lists   the first part is for kernels and headers, the second for launch.py.
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define SIMT_API extern "C" __declspec(dllexport)
#else
#define SIMT_API extern "C" __attribute__((visibility("default")))
#endif

// For functions of the headers in which no access to the learner's memory happens (but those that the copies of vectors
// make, in the runtime) and no loop: the checker's hooks would only cost time there.
#if defined(__clang__)
#define SIMT_UNHOOKED __attribute__((__disable_sanitizer_instrumentation__, __no_sanitize__("coverage")))
#else
#define SIMT_UNHOOKED __attribute__((__no_sanitize_thread__, __no_sanitize_coverage__))
#endif
#define SIMT_UNSEEN SIMT_UNHOOKED inline

// ---------------------------------------------------------------- for kernels and dialect headers

struct uint3;                                    // defined in simt_vectors.h
struct dim3;
struct SimtIndex {                               // what threadIdx … gridDim are; simt.h defines the conversions
    unsigned int x, y, z;
    operator uint3() const;
    operator dim3() const;
};

// Indices.  A thread's values never change while it runs, hence `const`.
SIMT_API __attribute__((const)) SimtIndex simt_thread_index();
SIMT_API __attribute__((const)) SimtIndex simt_block_index();
SIMT_API __attribute__((const)) SimtIndex simt_block_shape();
SIMT_API __attribute__((const)) SimtIndex simt_grid_shape();
SIMT_API __attribute__((const)) int simt_lane();                 // linear thread index modulo 32

// Shared memory of the calling block.  `index` is the number that the translator gave to the declaration, `instance`
// any address that differs between the instances of a template that holds it, `type` a text with "T = <type>" in it.
SIMT_API void* simt_shared_array(int index, const void* instance, size_t bytes, size_t alignment, const char* type);
SIMT_API void* simt_dynamic_shared();
SIMT_API size_t simt_dynamic_shared_bytes();

// Barriers of the block; the last three also reduce `predicate` over the block.
SIMT_API void simt_barrier();
SIMT_API int simt_barrier_count(int predicate);
SIMT_API int simt_barrier_and(int predicate);
SIMT_API int simt_barrier_or(int predicate);
SIMT_API void simt_grid_barrier();                               // all blocks; needs all of them resident

// Warp-wide.  `mask` names lanes; only simt_warp_barrier orders memory (CUDA: shuffles and votes do not).
SIMT_API void simt_warp_barrier(unsigned mask);        // __syncwarp, and sync() of a tile with the tile's lanes
enum { SIMT_SHUFFLE_INDEX, SIMT_SHUFFLE_UP, SIMT_SHUFFLE_DOWN, SIMT_SHUFFLE_XOR };
SIMT_API uint64_t simt_shuffle(unsigned mask, uint64_t value, int mode, int operand, int width);
enum { SIMT_VOTE_BALLOT, SIMT_VOTE_ANY, SIMT_VOTE_ALL };
SIMT_API unsigned simt_vote(unsigned mask, int mode, int predicate);
enum { SIMT_MATCH_ANY, SIMT_MATCH_ALL };                         // ALL gives mask if all values are equal, else 0
SIMT_API unsigned simt_match(unsigned mask, uint64_t value, int mode);
enum { SIMT_REDUCE_ADD, SIMT_REDUCE_MIN, SIMT_REDUCE_MAX, SIMT_REDUCE_AND, SIMT_REDUCE_OR, SIMT_REDUCE_XOR,
       SIMT_REDUCE_UMIN, SIMT_REDUCE_UMAX };                     // 32-bit, __reduce_*_sync
SIMT_API unsigned simt_reduce(unsigned mask, int mode, unsigned value);
SIMT_API unsigned simt_active_mask();

// Atomics: one entry for all.  Operands and result travel as the low bits of 64; floats by their bit pattern.
enum { SIMT_ADD, SIMT_SUB, SIMT_EXCHANGE, SIMT_MIN, SIMT_MAX, SIMT_INCREMENT, SIMT_DECREMENT, SIMT_CAS,
       SIMT_AND, SIMT_OR, SIMT_XOR };
enum { SIMT_I32, SIMT_U32, SIMT_I64, SIMT_U64, SIMT_F32, SIMT_F64, SIMT_U16 };   // U16: CAS, exchange (for half types)
SIMT_API uint64_t simt_atomic(int operation, int type, void* address, uint64_t operand, uint64_t compare);

// Order, time, text.
enum { SIMT_FENCE_BLOCK, SIMT_FENCE_DEVICE, SIMT_FENCE_SYSTEM };
SIMT_API void simt_fence(int scope);
SIMT_API void simt_sleep(unsigned nanoseconds);
SIMT_API int64_t simt_clock();        // checked: steps of this thread; native: cycles. Not a time.
SIMT_API int simt_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
SIMT_API void simt_assert_failed(const char* expression, const char* file, int line);    // ends the launch
SIMT_API void simt_trap();                                                               // ends the launch
SIMT_API void* simt_memcpy(void* to, const void* from, size_t bytes);
SIMT_API void* simt_memmove(void* to, const void* from, size_t bytes);
SIMT_API void* simt_memset(void* to, int value, size_t bytes);

// ---------------------------------------------------------------- for launch.py (ctypes mirrors of these are there)

enum SimtRegion {                    // memory that launch.py owns and lends for one launch; zero when first lent
    REGION_STACKS, REGION_FIBERS, REGION_BLOCKS, REGION_ARENA, REGION_SHARED_CELLS, REGION_GLOBAL_CELLS, REGION_LINKS,
    REGION_REQUESTS, REGION_ORDER, REGION_SITES, REGION_RESULTS, REGION_FAULTS, REGION_COUNT
};

struct SimtBuffer {                  // one array that the kernel may use: an argument or a __device__ variable
    uint64_t address, bytes;
    uint64_t first_byte;             // its place among all bytes: REGION_GLOBAL_CELLS has a cell for each 4 of them
};

struct SimtLaunch {
    void (*kernel)(void**);          // simt_thunk_K
    void** arguments;
    uint32_t grid[3], block[3];
    uint64_t dynamic_shared;         // [B]
    uint64_t arena_bytes;            // [B] per block, for arrays, gaps between them and the dynamic part
    // Schedule (checked; native uses resident = 1 and its worker number)
    uint32_t lane_order, block_order;    // 0 forward, 1 reverse, 2 random
    uint32_t resident;               // blocks alive at once
    uint32_t worker;                 // native: which of the stack sets to use
    uint64_t seed;
    uint64_t watchdog;               // basic blocks of a thread, turns of a block (watchdog.h); 0: no limit
    // Memory
    void* region[REGION_COUNT];
    uint64_t region_bytes[REGION_COUNT];
    uint64_t heap, heap_bytes;       // all argument buffers with guard zones between them
    const uint16_t* granules;        // per 256 bytes of the heap: number of the buffer there + 1, or 0 for guard zones
    const SimtBuffer* buffers;       // arguments first, in heap order; then module variables
    uint32_t argument_buffers, buffer_count;
    uint64_t global_cells;           // 4-byte words in all buffers and guard zones
    uint64_t parameters, parameters_bytes;   // where `arguments` and the values behind it lie
    // Code
    uint64_t text, text_bytes;       // the library's machine code
    const uint32_t* lines;           // per byte of text: file << 20 | line for the learner's code, 0 for headers
    uint64_t image, image_bytes;     // the whole library, its constants and variables included
    // Numbers that must not repeat while the lent memory lives
    uint32_t launch_number;
    uint32_t next_interval;          // in: first free; out: first free
    uint32_t* stop;                  // native: shared by all workers; not 0 = give up
    uint64_t* next_block;            // native: shared by all workers
    uint32_t resume;                 // not 0: go on with a launch that paused
    uint32_t whole_grid;             // native: this worker has all others' memory and keeps all blocks alive
};

SIMT_API uint64_t simt_region_bytes(const SimtLaunch*, int region);
enum RunResult { RUN_FINISHED, RUN_ABANDONED, RUN_PAUSED };      // abandoned: see the last finding
SIMT_API uint32_t simt_run(SimtLaunch*);         // paused: nothing has happened but time; call it again with `resume`
SIMT_API void simt_catch_faults(const SimtLaunch*);      // before one or more launches, once; faults.h
SIMT_API void simt_leave_faults();

// What checked mode leaves at the start of REGION_RESULTS.
enum SimtKind {
    KIND_RACE,
    KIND_GLOBAL_RACE,
    KIND_OUT_OF_BOUNDS,
    KIND_MISALIGNED,
    KIND_UNINITIALISED,
    KIND_DIVERGENT_BARRIER,
    KIND_DEADLOCK,
    KIND_INVALID_MASK,
    KIND_WILD_ACCESS,
    KIND_ENDLESS_LOOP,
    KIND_STACK_OVERFLOW,
    KIND_ASSERT,
    KIND_LOCAL_ESCAPE,
    KIND_DIVISION_BY_ZERO
};
enum SimtAccess { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC, ACCESS_NONE };
enum SimtSpace { SPACE_SHARED, SPACE_GLOBAL, SPACE_OTHER };

struct SimtFinding {
    uint32_t kind, severity;         // severity: 0 warning, 1 error
    uint32_t line, other_line;       // as in SimtLaunch.lines; 0: none
    uint32_t access, other_access;
    uint32_t space;
    int32_t object;                  // shared: number of the declaration, -1 dynamic; global: buffer; -2: none
    uint32_t thread, other_thread;   // linear; 0xFFFFFFFF: none
    uint64_t block, other_block;     // linear
    uint64_t count, bytes;           // how often (races: words), and how many bytes
    int64_t offset;                  // [B] from the start of `object`, or the address if there is none
    uint32_t size, variant;          // size of the access; variant: which of the kind's messages (report.py)
    int64_t extra[4];                // numbers for that message
    const char* text;                // assert: the expression
};

struct SimtStats {        // one place in the code that touches memory; access NONE: a barrier, `requests` times passed
    uint32_t line, space, access, size;
    uint64_t objects;                // bit i: touched object i (shared: declaration + 1, 0 dynamic; global: buffer)
    uint64_t requests, lanes;        // lanes: sum of active lanes
    uint64_t sectors, ideal_sectors, wavefronts, ideal_wavefronts;
    uint32_t sample_mask, sample_size;
    int32_t sample_object;
    uint32_t reserved;
    uint64_t sample_key;             // smallest (block, warp, occurrence)
    int64_t sample_offset[32];       // [B] from the start of the object
};

struct SimtPrint { uint64_t block; uint32_t interval, thread, bytes, reserved; };       // then the text, padded to 8

struct SimtResults {
    uint32_t findings, stats, print_lost, order_limit;   // order_limit: not 0 if some checks had to be left out
    uint64_t findings_lost, accesses;
    uint64_t barriers;                      // __syncthreads that a block passed: the most of all blocks
    uint64_t blocks_done, print_bytes;
    uint64_t sites_lost;                    // accesses left out of the statistics
    uint64_t shared_bytes;                  // of the static arrays, without the gaps between them
    uint64_t request_bytes;                 // used of REGION_REQUESTS
    SimtFinding* finding;
    SimtStats* stat;
    char* print;
};
