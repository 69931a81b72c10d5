// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Multigrid for the Poisson equation in a cube: V-cycles over grids of n, n/2, … 2 cells an edge.
// Large streaming regions on the fine grids and a great many tiny ones on the coarse grids.
//
// Zero at the boundary; red-black Gauss-Seidel (its result does not depend on the order within a
// colour, hence not on threads), full weighting, trilinear interpolation. An iteration is one
// solve of CYCLES V-cycles from zero. The right-hand side is a product of sines, which is an
// eigenvector of the seven-point operator, so the discrete solution is known in closed form.
//
// Verified: max |u - known| ≤ 1e-6 for values up to 1, at all points, each solve. A cycle divides
// the error by about 5, so CYCLES of them leave about 1e-8; a corrupted right-hand side moves the
// solution for good.
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

enum { CYCLES = 12, MAX_LEVELS = 12 };
static const double TOLERANCE = 1e-6;

static const struct app_spec spec = {
    .name = "mg", .what = "multigrid V-cycles for Poisson's equation in 3D", .n_means = "cells an edge", .n_min = 4,
    .n_max = 1024, .n_power_of_two = true,
    .classes = {{'T', 16, 2}, {'S', 64, 80}, {'M', 128, 32}, {'L', 128, 128}, {'X', 256, 110}},
};

struct grid {
    long n;
    double h2; // square of the mesh width
    double *u, *f, *r;
};

static struct grid grids[MAX_LEVELS];
static int levels;
static double *sine[3], *partial, *partial2;

static size_t at(long n, long i, long j, long k) { return (size_t)((i * (n + 1) + j) * (n + 1) + k); }

static void smooth(struct grid *g)
{
    const long n = g->n, dj = n + 1, di = (n + 1) * (n + 1);
#pragma omp parallel
    {
        app_region();
        for (int colour = 0; colour < 2; colour++) {
#pragma omp for schedule(static) collapse(2)
            for (long i = 1; i < n; i++)
                for (long j = 1; j < n; j++)
                    for (long k = 1 + ((i + j + colour) & 1); k < n; k += 2) {
                        double *c = g->u + at(n, i, j, k);
                        *c = (g->h2 * g->f[at(n, i, j, k)] + c[-di] + c[di] + c[-dj] + c[dj] + c[-1] + c[1]) *
                             (1.0 / 6);
                    }
        }
    }
}

// The residual of `fine`, weighted onto the right-hand side of `coarse`, whose solution starts at 0.
static void restrict_residual(struct grid *fine, struct grid *coarse)
{
    const long n = fine->n, dj = n + 1, di = (n + 1) * (n + 1), m = coarse->n;
    const double over_h2 = 1 / fine->h2;
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static) collapse(2)
        for (long i = 1; i < n; i++)
            for (long j = 1; j < n; j++)
                for (long k = 1; k < n; k++) {
                    const size_t a = at(n, i, j, k);
                    const double *c = fine->u + a;
                    fine->r[a] =
                        fine->f[a] - over_h2 * (6 * c[0] - c[-di] - c[di] - c[-dj] - c[dj] - c[-1] - c[1]);
                }
#pragma omp for schedule(static) collapse(2)
        for (long i = 1; i < m; i++)
            for (long j = 1; j < m; j++)
                for (long k = 1; k < m; k++) {
                    double sum = 0;
                    for (long a = -1; a <= 1; a++)
                        for (long b = -1; b <= 1; b++) {
                            const double *c = fine->r + at(n, 2 * i + a, 2 * j + b, 2 * k);
                            sum += (double)((2 - labs(a)) * (2 - labs(b))) * (c[-1] + 2 * c[0] + c[1]);
                        }
                    coarse->f[at(m, i, j, k)] = sum * (1.0 / 64);
                    coarse->u[at(m, i, j, k)] = 0;
                }
    }
}

// Adds the coarse correction: each fine point takes the mean of the coarse points around it.
static void interpolate(struct grid *coarse, struct grid *fine)
{
    const long n = fine->n, m = coarse->n;
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static) collapse(2)
        for (long i = 1; i < n; i++)
            for (long j = 1; j < n; j++) {
                const double *c00 = coarse->u + at(m, i / 2, j / 2, 0);
                const double *c01 = coarse->u + at(m, i / 2, (j + 1) / 2, 0);
                const double *c10 = coarse->u + at(m, (i + 1) / 2, j / 2, 0);
                const double *c11 = coarse->u + at(m, (i + 1) / 2, (j + 1) / 2, 0);
                double *u = fine->u + at(n, i, j, 0);
                for (long k = 1; k < n; k++) {
                    const long a = k / 2, b = (k + 1) / 2;
                    u[k] += 0.125 * (c00[a] + c00[b] + c01[a] + c01[b] + c10[a] + c10[b] + c11[a] + c11[b]);
                }
            }
    }
}

static void v_cycle(int level)
{
    smooth(&grids[level]);
    if (level == levels - 1)
        return; // one interior point: a single pass of Gauss-Seidel solves it
    restrict_residual(&grids[level], &grids[level + 1]);
    v_cycle(level + 1);
    interpolate(&grids[level + 1], &grids[level]);
    smooth(&grids[level]);
}

static double known(long i, long j, long k) { return sine[0][i] * sine[1][j] * sine[2][k]; }

static void start_solve(long solve)
{
    struct grid *g = &grids[0];
    const long n = g->n;
    double eigenvalue = 0;
    for (int d = 0; d < 3; d++) {
        const long mode = 1 + (solve + d * (1 + solve / 3)) % 3;
        for (long i = 0; i <= n; i++)
            sine[d][i] = sin(app_pi * (double)(mode * i) / (double)n);
        const double s = sin(app_pi * (double)mode / (double)(2 * n));
        eigenvalue += 4 / g->h2 * s * s;
    }
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static) collapse(2)
        for (long i = 1; i < n; i++)
            for (long j = 1; j < n; j++)
                for (long k = 1; k < n; k++) {
                    g->u[at(n, i, j, k)] = 0;
                    g->f[at(n, i, j, k)] = eigenvalue * known(i, j, k);
                }
    }
}

static double check_solve(double *checksum)
{
    const struct grid *g = &grids[0];
    const long n = g->n;
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long i = 1; i < n; i++) { // a plane is the block of the sums
            double worst = 0, sum = 0;
            for (long j = 1; j < n; j++)
                for (long k = 1; k < n; k++) {
                    const double u = g->u[at(n, i, j, k)], error = fabs(u - known(i, j, k));
                    sum += u * u;
                    worst = app_worst(worst, error);
                }
            partial[i] = worst, partial2[i] = sum;
        }
    }
    double worst = 0;
    for (long i = 1; i < n; i++) {
        worst = app_worst(worst, partial[i]);
        *checksum += partial2[i] / (double)(n * n * n);
    }
    return worst;
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    for (long n = app.n; n >= 2; n /= 2) {
        struct grid *g = &grids[levels++];
        const size_t points = (size_t)((n + 1) * (n + 1) * (n + 1));
        *g = (struct grid){.n = n, .h2 = 1.0 / (double)(n * n)};
        double **arrays[] = {&g->u, &g->f, &g->r};
        for (int a = 0; a < 3; a++) {
            double *v = *arrays[a] = app_alloc(points, sizeof(double));
#pragma omp parallel
            {
                app_region();
#pragma omp for schedule(static)
                for (size_t i = 0; i < points; i++)
                    v[i] = 0; // also the boundary, which stays so
            }
        }
    }
    for (int d = 0; d < 3; d++)
        sine[d] = app_alloc((size_t)app.n + 1, sizeof(double));
    partial = app_alloc((size_t)app.n, sizeof(double));
    partial2 = app_alloc((size_t)app.n, sizeof(double));

    app_start();
    double checksum = 0, worst = 0;
    for (long solve = 0; solve < app.iterations; solve++) {
        start_solve(solve);
        const bool corrupt = app_corrupt_now(solve);
        for (int cycle = 0; cycle < CYCLES; cycle++) {
            v_cycle(0);
            if (corrupt && cycle == CYCLES / 2)
                grids[0].f[at(app.n, app.n / 2, app.n / 2, app.n / 2)] += 1 / grids[0].h2;
        }
        const double error = check_solve(&checksum);
        app_check(error <= TOLERANCE, "solve %ld has an error of %g, above %g", solve, error, TOLERANCE);
        worst = app_worst(worst, error);
    }
    app_stop();
    if (!app.json)
        printf("mg: largest error of a solve %.2e\n", worst);
    return app_finish("%.17g", checksum);
}
