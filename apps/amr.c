// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Adaptive mesh refinement: a disc moves through a periodic square on a quadtree whose leaves are
// blocks of EDGE x EDGE cells, fine along the rim of the disc and coarse elsewhere. The number of
// blocks, and with it the length of a region, changes all the time; the mesh is changed only when
// a block asks for it, so the number of regions varies as well.
//
// First-order upwind finite volumes for u_t + a u_x + b u_y = 0 with constant a, b > 0. Then a
// cell needs its left and lower neighbours alone, and the flux through a face depends on the cell
// upwind alone: at a change of level both sides see the same flux (the mean of the fine cells), so
// mass is conserved. Blocks are split by copying and merged by averaging, which conserves it, too.
// An iteration is one episode with its own direction: from the root blocks, refine the start, then
// STEPS time steps, and every ADAPT_EVERY a look at the mesh.
//
// Verified in each episode: (1) mass is conserved to a relative 1e-11 (rounding of some 10^7
// operations of 1e-16 each, which partly cancel); a corrupted cell changes it by > 1e-8;
// (2) 0 ≤ u ≤ 1 up to 1e-12, as the scheme is monotone; (3) the integral of |u - exact| is below
// the length of the rim times the width over which the scheme smears it, sqrt(STEPS) finest cells.
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

enum { EDGE = 16, CELLS = EDGE * EDGE, ROOTS = 2, MAX_LEVELS = 10, STEPS = 48, ADAPT_EVERY = 4 };
static const double COURANT = 0.8, RADIUS = 0.2, SPLIT_ABOVE = 0.05, MERGE_BELOW = 0.01;

static const struct app_spec spec = {
    .name = "amr", .what = "adaptive mesh refinement along a moving front", .n_means = "finest cells an edge",
    .n_min = ROOTS * EDGE, .n_max = 8192, .n_power_of_two = true,
    .classes = {{'T', 128, 3}, {'S', 512, 95}, {'M', 1024, 200}, {'L', 2048, 450}, {'X', 4096, 1500}},
};

struct block {
    int level;
    long x, y;   // position among the blocks of its level
    long source; // while the mesh changes: index of the old block that it is made from
    int change;  // of the old block: 1 split, -1 may merge; of the new block: how it is made
};

static int finest;
static long count;                   // of blocks, in depth-first order: brothers are adjacent
static struct block *blocks, *fresh; // present mesh, and the next one while it is made
static double *u, *next;             // CELLS values a block
static int *index_of[MAX_LEVELS];    // block at a position of a level, -1 where none is
static double *partial, *partial2, *partial3, velocity[2], centre[2];

static long blocks_across(int level) { return (long)ROOTS << level; }
static double cell_width(int level) { return 1 / (double)(blocks_across(level) * EDGE); }

static double exact(double x, double y, double time)
{
    double dx = x - centre[0] - velocity[0] * time, dy = y - centre[1] - velocity[1] * time;
    dx -= rint(dx), dy -= rint(dy);
    return 0.5 - 0.5 * tanh((sqrt(dx * dx + dy * dy) - RADIUS) / (2 * cell_width(finest)));
}

// Value at a cell of `level` as its right (axis 0) or upper (axis 1) neighbour sees it: the cell,
// or the coarser one that covers it, or the mean of the finer cells at the shared face.
static double upwind(int level, long x, long y, int axis)
{
    for (int l = level; l >= 0; l--) {
        const long cx = x >> (level - l), cy = y >> (level - l);
        const int b = index_of[l][cy / EDGE * blocks_across(l) + cx / EDGE];
        if (b >= 0)
            return u[(long)b * CELLS + cy % EDGE * EDGE + cx % EDGE];
    }
    if (level == finest)
        return NAN; // a hole in the mesh: fails the verification
    const double one = upwind(level + 1, 2 * x + 1, 2 * y + 1, axis);
    return 0.5 * (one + (axis == 0 ? upwind(level + 1, 2 * x + 1, 2 * y, axis)
                                   : upwind(level + 1, 2 * x, 2 * y + 1, axis)));
}

static void ghosts(const struct block *b, double *left, double *below)
{
    const long across = blocks_across(b->level) * EDGE, x = b->x * EDGE, y = b->y * EDGE;
    for (int i = 0; i < EDGE; i++) {
        left[i] = upwind(b->level, (x + across - 1) % across, y + i, 0);
        below[i] = upwind(b->level, x + i, (y + across - 1) % across, 1);
    }
}

static void swap_values(void)
{
    double *swap = u;
    u = next, next = swap;
}

static void time_step(double dt)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(dynamic)
        for (long b = 0; b < count; b++) {
            double left[EDGE], below[EDGE];
            ghosts(&blocks[b], left, below);
            const double *from = u + b * CELLS;
            double *to = next + b * CELLS;
            const double cx = dt / cell_width(blocks[b].level) * velocity[0];
            const double cy = dt / cell_width(blocks[b].level) * velocity[1];
            for (int y = 0; y < EDGE; y++)
                for (int x = 0; x < EDGE; x++) {
                    const double here = from[y * EDGE + x];
                    const double west = x ? from[y * EDGE + x - 1] : left[y];
                    const double south = y ? from[(y - 1) * EDGE + x] : below[x];
                    to[y * EDGE + x] = here - cx * (here - west) - cy * (here - south);
                }
        }
    }
    swap_values();
}

// The wish of each block, by the largest jump between neighbouring cells.
static void look_at_blocks(void)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(dynamic)
        for (long b = 0; b < count; b++) {
            double left[EDGE], below[EDGE], jump = 0;
            ghosts(&blocks[b], left, below);
            const double *v = u + b * CELLS;
            for (int y = 0; y < EDGE; y++)
                for (int x = 0; x < EDGE; x++) {
                    jump = fmax(jump, fabs(v[y * EDGE + x] - (x ? v[y * EDGE + x - 1] : left[y])));
                    jump = fmax(jump, fabs(v[y * EDGE + x] - (y ? v[(y - 1) * EDGE + x] : below[x])));
                }
            blocks[b].change = jump > SPLIT_ABOVE && blocks[b].level < finest ? 1 : jump < MERGE_BELOW ? -1 : 0;
        }
    }
}

static bool four_brothers_merge(long b)
{
    const struct block *first = &blocks[b];
    if (b + 3 >= count || first->level == 0 || first->x % 2 || first->y % 2)
        return false;
    for (int i = 0; i < 4; i++)
        if (first[i].change != -1 || first[i].level != first->level)
            return false; // depth-first order: four of a level from an even corner are brothers
    return true;
}

// Lists the blocks of the next mesh; sequential, since it is short. Returns their number.
static long plan_mesh(bool *changed)
{
    long made = 0;
    *changed = false;
    for (long b = 0; b < count; b++) {
        const struct block old = blocks[b];
        if (old.change == 1) {
            for (int i = 0; i < 4; i++)
                fresh[made++] = (struct block){old.level + 1, 2 * old.x + i % 2, 2 * old.y + i / 2, b, 1};
            *changed = true;
        } else if (four_brothers_merge(b)) {
            fresh[made++] = (struct block){old.level - 1, old.x / 2, old.y / 2, b, -1};
            b += 3;
            *changed = true;
        } else {
            fresh[made++] = (struct block){old.level, old.x, old.y, b, 0};
        }
    }
    return made;
}

static void make_block(long b)
{
    const struct block *f = &fresh[b];
    const double *from = u + f->source * CELLS;
    double *to = next + b * CELLS;
    if (f->change == 0) {
        memcpy(to, from, CELLS * sizeof *to);
        return;
    }
    for (int y = 0; y < EDGE; y++)
        for (int x = 0; x < EDGE; x++) {
            if (f->change == 1) {
                const long sx = (f->x % 2 * EDGE + x) / 2, sy = (f->y % 2 * EDGE + y) / 2;
                to[y * EDGE + x] = from[sy * EDGE + sx];
            } else {
                const double *s = from + (y / (EDGE / 2) * 2 + x / (EDGE / 2)) * CELLS;
                s += 2 * y % EDGE * EDGE + 2 * x % EDGE;
                to[y * EDGE + x] = 0.25 * (s[0] + s[1] + s[EDGE] + s[EDGE + 1]);
            }
        }
}

static void index_blocks(bool present)
{
    for (long b = 0; b < count; b++)
        index_of[blocks[b].level][blocks[b].y * blocks_across(blocks[b].level) + blocks[b].x] = present ? (int)b : -1;
}

static bool adapt(void)
{
    bool changed;
    look_at_blocks();
    const long made = plan_mesh(&changed);
    if (!changed)
        return false;
    app.regions++; // the combined construct has no room for app_region()
#pragma omp parallel for schedule(dynamic)
    for (long b = 0; b < made; b++)
        make_block(b);
    index_blocks(false);
    struct block *swap = blocks;
    blocks = fresh, fresh = swap;
    count = made;
    index_blocks(true);
    swap_values();
    return true;
}

struct totals {
    double mass, error, out_of_range;
};

// Integrals over the mesh; with `set`, the values become the exact ones first.
static struct totals integrate(double time, bool set)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long b = 0; b < count; b++) {
            const double h = cell_width(blocks[b].level);
            double mass = 0, error = 0, beyond = 0;
            for (int c = 0; c < CELLS; c++) {
                double *v = &u[b * CELLS + c];
                const double x = h * ((double)(blocks[b].x * EDGE + c % EDGE) + 0.5);
                const double want = exact(x, h * ((double)(blocks[b].y * EDGE + c / EDGE) + 0.5), time);
                if (set)
                    *v = want;
                mass += *v;
                error += fabs(*v - want);
                beyond = fmax(beyond, fmax(-*v, *v - 1));
            }
            partial[b] = mass * h * h, partial2[b] = error * h * h, partial3[b] = beyond;
        }
    }
    struct totals t = {app_sum(partial, count), app_sum(partial2, count), 0};
    for (long b = 0; b < count; b++)
        t.out_of_range = app_worst(t.out_of_range, partial3[b]);
    return t;
}

// Returns the error; adds to *checksum and keeps the largest number of blocks.
static double episode(long which, bool corrupt, double *checksum, long *most_blocks)
{
    const double angle = (0.1 + 0.8 * app_uniform((uint64_t)(3 * which))) * app_pi / 2;
    velocity[0] = cos(angle), velocity[1] = sin(angle);
    for (int d = 0; d < 2; d++)
        centre[d] = app_uniform((uint64_t)(3 * which + 1 + d));
    index_blocks(false);
    for (count = 0; count < ROOTS * ROOTS; count++)
        blocks[count] = (struct block){.x = count % ROOTS, .y = count / ROOTS};
    index_blocks(true);
    integrate(0, true);
    for (int l = 0; l < finest && adapt(); l++)
        integrate(0, true);

    const double start = integrate(0, false).mass, dt = COURANT * cell_width(finest) / (velocity[0] + velocity[1]);
    for (int s = 0; s < STEPS; s++) {
        time_step(dt);
        if (corrupt && s == STEPS / 2)
            u[count / 2 * CELLS + CELLS / 2] += 0.5;
        if ((s + 1) % ADAPT_EVERY == 0)
            adapt();
        *most_blocks = count > *most_blocks ? count : *most_blocks;
    }
    const struct totals end = integrate(STEPS * dt, false);
    const double bound = 2 * app_pi * RADIUS * sqrt(STEPS) * cell_width(finest);
    app_check(fabs(end.mass / start - 1) <= 1e-11, "episode %ld: mass %.17g became %.17g", which, start, end.mass);
    app_check(end.out_of_range <= 1e-12, "episode %ld: a value is %g outside 0..1", which, end.out_of_range);
    app_check(end.error <= bound, "episode %ld: error %g, above %g", which, end.error, bound);
    *checksum += end.mass + end.error + (double)count;
    return end.error / bound;
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    while (cell_width(finest) > 1.0 / (double)app.n)
        finest++;
    const size_t most = (size_t)(app.n / EDGE * (app.n / EDGE)); // if all were fine; only what is used gets touched
    for (int l = 0; l <= finest; l++) {
        const size_t places = (size_t)(blocks_across(l) * blocks_across(l));
        index_of[l] = app_alloc(places, sizeof(int));
        memset(index_of[l], -1, places * sizeof(int));
    }
    blocks = app_alloc_aside(most, sizeof *blocks), fresh = app_alloc_aside(most, sizeof *fresh);
    u = app_alloc_aside(most * CELLS, sizeof *u), next = app_alloc_aside(most * CELLS, sizeof *next);
    partial = app_alloc_aside(most, sizeof *partial), partial2 = app_alloc_aside(most, sizeof *partial2);
    partial3 = app_alloc_aside(most, sizeof *partial3);

    app_start();
    double checksum = 0, worst = 0;
    long most_blocks = 0;
    for (long it = 0; it < app.iterations; it++)
        worst = app_worst(worst, episode(it, app_corrupt_now(it), &checksum, &most_blocks));
    app_stop();
    app.working_set_bytes += (size_t)most_blocks * (2 * CELLS * sizeof *u + 2 * sizeof *blocks + 3 * sizeof *partial);
    if (!app.json)
        printf("amr: at most %ld blocks, largest error %.2f of its bound\n", most_blocks, worst);
    return app_finish("%.17g", checksum);
}
