// selective_pieces.cuh -- how blocks of the backward share the steps of rows that are too few to fill the machine.
//
// A pair is a row of the batch and one block's width of its channels. The first `head` steps of a pair are one block's.
// What is behind them is laid end to end, pair behind pair, and cut into `others` equal shares: a share may end one pair and
// begin the next, so a block works on one piece or more, and all blocks have the same to do whatever the number of pairs.
// The pieces of a pair are its slots 0, 1, ... from left to right. Rows that are not cut (others 0) have one piece, their
// head. A launch may hold several teams of pairs that are cut alike.
//
//     pairs 3, others 2:   | head 0 | 0000 | head 1 | 0011 | head 2 | 1111 |      a digit: the share that has a unit of a tail
#pragma once

constexpr int UNIT = 32;                                    // pieces are multiples of it [steps]

struct Piece {
    int pair;                                               // of the team
    int slot, from, to;                                     // steps from ... to - 1
    bool closes;                                            // no piece of the pair lies behind it
};

struct Pieces {
    int pairs, head, others;                                // of a team
    int origin, end;                                        // the steps of the launch

    __device__ __forceinline__ long long units() const { return (end - origin - head + UNIT - 1) / UNIT; }  // of a tail

    // Places in the tails laid end to end: where a share begins, and which share has a unit.
    __device__ __forceinline__ long long begin_of(int share) const { return share * (pairs * units()) / others; }

    __device__ __forceinline__ int share_of(long long unit) const {
        return (int)(((unit + 1) * others - 1) / (pairs * units()));
    }

    __device__ __forceinline__ Piece head_of(int pair) const {
        const bool whole = head >= end - origin;
        return {pair, 0, origin, whole ? end : origin + head, whole};
    }

    // The piece of a share that begins at `unit`.
    __device__ __forceinline__ Piece piece_at(int share, long long unit) const {
        const long long tail = units(), stop = begin_of(share + 1);
        const int pair = (int)(unit / tail);
        const long long first = pair * tail;
        const bool closes = stop >= first + tail;
        const int from = origin + head + (int)(unit - first) * UNIT;
        return {pair, 1 + share - share_of(first), from, closes ? end : origin + head + (int)(stop - first) * UNIT, closes};
    }

    // Of a piece: where the next one of its share begins.
    __device__ __forceinline__ long long behind(const Piece& piece) const {
        return piece.closes ? (piece.pair + 1) * units() : piece.pair * units() + (piece.to - origin - head) / UNIT;
    }
};
