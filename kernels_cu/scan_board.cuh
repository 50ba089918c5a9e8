// scan_board.cuh -- where blocks post numbers for each other while all of them run.
//
// What       A board has words of 8 bytes: 32 bits of a number and a flag, in one aligned volatile access, which PTX makes a
//            relaxed one and never tears. So who sees the flag has the number; nothing is learnt from one word about another,
//            and no fence is needed (a double takes two words, each with its flag). All words must be 0 at the start.
// Used in    scan_lookback.cu, scan_relay.cu.
#pragma once
#include "scan_tile.cuh"

typedef unsigned long long word;

constexpr int PIECES = sizeof(real) / 4;        // words a number

constexpr unsigned TOTAL = 1, CUT_TOTAL = 2, STATE = 3;                 // flags; 0: nothing is posted yet

// VALUES numbers for each tile of each row.
template <int VALUES>
struct Board {
    volatile word* words;
    long long tiles, rows;

    // Words of one row lie together, or side by side for neighbouring rows.
    __device__ __forceinline__ volatile word* at(long long tile, long long row, int w) const {
        constexpr int each = VALUES * PIECES;
        return words + (COLUMNS ? (tile * each + w) * rows + row : (row * tiles + tile) * each + w);
    }
    __device__ __forceinline__ void post(long long tile, long long row, int value, real number, unsigned flag) const {
        unsigned bits[PIECES];
        *reinterpret_cast<real*>(bits) = number;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            *at(tile, row, value * PIECES + piece) = (word)bits[piece] << 32 | flag;
        }
    }
    // Reads the pieces of a value; no branch and no look at what came, so that several reads travel together.
    __device__ __forceinline__ void read(long long tile, long long row, int value, word seen[PIECES]) const {
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            seen[piece] = *at(tile, row, value * PIECES + piece);
        }
    }
};

// The flag of a value, or 0 if a piece of it is still missing.
__device__ __forceinline__ unsigned flag_of(const word seen[PIECES]) {
    unsigned flag = (unsigned)seen[0];
#pragma unroll
    for (int piece = 1; piece < PIECES; ++piece) {
        flag = (unsigned)seen[piece] == flag ? flag : 0;
    }
    return flag;
}

__device__ __forceinline__ real value_of(const word seen[PIECES]) {
    unsigned bits[PIECES];
#pragma unroll
    for (int piece = 0; piece < PIECES; ++piece) {
        bits[piece] = (unsigned)(seen[piece] >> 32);
    }
    return *reinterpret_cast<const real*>(bits);
}
