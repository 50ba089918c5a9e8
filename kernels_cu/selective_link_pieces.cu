// selective_link_pieces -- second of two passes of the backward: the gradient that enters each piece of a row, from the right.
//
// What       selective_totals has found what finer pieces do to a gradient that passes: a block's share, cut into `finer` equal
//            ones, as more and shorter blocks fill the machine better. Here each state walks through those of its row from
//            the last to the first, out = product * in + total, and what passes the border of a piece is what enters the
//            piece before it. A product of 0 stops everything, also an infinite gradient.
// Used in    ssmlab.selective_scan.   Pieces: selective_pieces.cuh.
//
// Mapping    one thread a (batch, channel, state); BATCH loads are on their way before the first is used.
// Barriers   none.
// compile: -default-device -DELEMENT_FLOAT -DTHREADS=128 -DBATCH=8
#include "selective_element.cuh"
#include "selective_pieces.cuh"

extern "C" __global__ __launch_bounds__(THREADS)
void selective_link_pieces(const real* __restrict__ product, const real* __restrict__ total, const real* __restrict__ edge,
                           real* __restrict__ enter, int channels, int states, int groups, int across, int pairs,
                           int head, int others, int slots, int finer, int finer_slots, int origin, int end) {
    const long long plane = (long long)channels * states;
    const unsigned blocks = (unsigned)((plane + THREADS - 1) / THREADS);    // of a row
    const long long row = blockIdx.x / blocks, place = blockIdx.x % blocks * (long long)THREADS + threadIdx.x;
    if (place >= plane) {
        return;
    }
    const int channel = (int)(place / states), in_group = channels / groups;
    const int columns = (in_group + across - 1) / across * groups;     // blocks side by side over all channels
    const int column = channel / in_group * (columns / groups) + channel % in_group / across;
    const int pair = (int)((row * columns + column) % pairs);           // of the team

    const Pieces fine = {pairs, head, others * finer, origin, end};
    const int first = fine.share_of(pair * fine.units()), last = fine.share_of((pair + 1) * fine.units() - 1);
    int slot = 1 + last / finer - first / finer, left = last % finer;   // the piece that `last` is in; finer ones before it
    real carried = edge ? edge[row * plane + place] : real(0);
    enter[(row * slots + slot) * plane + place] = carried;
    for (int share = last; share >= first; share -= BATCH) {
        real p[BATCH], b[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const long long at = (row * finer_slots + 1 + share - i - first) * plane + place;
            p[i] = share - i >= first ? product[at] : real(0);
            b[i] = share - i >= first ? total[at] : real(0);
        }
#pragma unroll
        for (int i = 0; i < BATCH; ++i) {
            const int now = share - i;
            if (now >= first) {
                carried = p[i] == real(0) || carried == real(0) ? b[i] : p[i] * carried + b[i];
                if (now == first || left == 0) {            // here its piece begins
                    --slot;
                    enter[(row * slots + slot) * plane + place] = carried;
                    left = finer;
                }
                --left;
            }
        }
    }
}
