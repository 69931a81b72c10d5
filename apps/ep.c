// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Embarrassingly parallel: pairs of Gaussian numbers by Marsaglia's polar method, counted by the
// square ring max(|x|,|y|) that they fall into. Registers only, no memory traffic.
//
// The generator has no state, so any thread can make any block of BLOCK tries. An iteration is one
// batch of n tries, one region; only a handful of regions a second, so it adapts slowly.
//
// Verified: (1) in each batch every block in SAMPLE is made again by one thread and must agree in
// every bit; (2) every accepted pair is in one ring; (3) the accepted share is pi/4 and the rings
// follow the normal distribution: each count within 6 standard deviations (a right program fails
// that once in 10^8 counts, and the seed is fixed), and so are the sums of x and of y.
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

enum { BLOCK = 4096, RINGS = 8, SAMPLE = 128 };

static const struct app_spec spec = {
    .name = "ep", .what = "Gaussian random numbers, embarrassingly parallel",
    .n_means = "tries a batch, in whole blocks of 4096", .n_min = BLOCK, .n_max = 1000000000,
    .classes = {{'T', 1L << 16, 16}, {'S', 1L << 20, 88}, {'M', 1L << 20, 350}, {'L', 1L << 20, 1400},
                {'X', 1L << 20, 10000}},
};

struct tally {
    uint64_t accepted, ring[RINGS];
    double sum_x, sum_y;
};

static struct tally make_block(uint64_t block)
{
    struct tally tally = {0};
    for (uint64_t i = block * BLOCK; i < (block + 1) * BLOCK; i++) {
        const double a = 2 * app_uniform(2 * i) - 1, b = 2 * app_uniform(2 * i + 1) - 1, r = a * a + b * b;
        if (r >= 1 || r == 0)
            continue;
        const double f = sqrt(-2 * log(r) / r), x = a * f, y = b * f;
        const double far = fmax(fabs(x), fabs(y));
        tally.accepted++;
        tally.ring[far < RINGS ? (int)far : RINGS - 1]++;
        tally.sum_x += x, tally.sum_y += y;
    }
    return tally;
}

static void add(struct tally *to, const struct tally *t)
{
    to->accepted += t->accepted;
    to->sum_x += t->sum_x, to->sum_y += t->sum_y;
    for (int k = 0; k < RINGS; k++)
        to->ring[k] += t->ring[k];
}

// Of `tries`, `count` came out where each does with probability `p`.
static void check_count(const char *what, int which, double count, double tries, double p)
{
    const double expected = tries * p, deviation = sqrt(tries * p * (1 - p));
    app_check(fabs(count - expected) <= 6 * deviation + 10, "%s %d: %.0f where theory has %.0f +- %.0f", what, which,
              count, expected, deviation);
}

static double inside_square(int edge) { return pow(erf(edge / sqrt(2)), 2); }

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    const long blocks = app.n / BLOCK;
    struct tally *batch = app_alloc((size_t)blocks, sizeof *batch), total = {0};
    memset(batch, 0, (size_t)blocks * sizeof *batch);

    app_start();
    for (long it = 0; it < app.iterations; it++) {
        const uint64_t first = (uint64_t)it * (uint64_t)blocks;
#pragma omp parallel
        {
            app_region();
#pragma omp for schedule(static)
            for (long b = 0; b < blocks; b++)
                batch[b] = make_block(first + (uint64_t)b);
        }
        if (app_corrupt_now(it))
            batch[it % SAMPLE % blocks].ring[1]++;
        for (long b = it % SAMPLE % blocks; b < blocks; b += SAMPLE) {
            const struct tally again = make_block(first + (uint64_t)b);
            app_check(!memcmp(&again, &batch[b], sizeof again), "block %ld of batch %ld differs from its repetition",
                      b, it);
        }
        for (long b = 0; b < blocks; b++)
            add(&total, &batch[b]);
    }
    app_stop();

    const double tries = (double)(app.iterations * blocks * BLOCK), accepted = (double)total.accepted;
    uint64_t in_rings = 0;
    check_count("accepted pairs, seed", 0, accepted, tries, app_pi / 4);
    for (int k = 0; k < RINGS; k++) {
        in_rings += total.ring[k];
        const double p = (k == RINGS - 1 ? 1 : inside_square(k + 1)) - inside_square(k);
        check_count("ring", k, (double)total.ring[k], accepted, p);
    }
    app_check(in_rings == total.accepted, "%llu pairs in the rings, %llu accepted", (unsigned long long)in_rings,
              (unsigned long long)total.accepted);
    app_check(fabs(total.sum_x) <= 6 * sqrt(accepted) && fabs(total.sum_y) <= 6 * sqrt(accepted),
              "the sums %g and %g are too large for %.0f pairs", total.sum_x, total.sum_y, accepted);
    return app_finish("%llu/%.17g/%.17g", (unsigned long long)total.accepted, total.sum_x, total.sum_y);
}
