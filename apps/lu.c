// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Symmetric successive over-relaxation with a pipelined wavefront: in each sweep a thread owns a
// band of rows of every plane, and starts on a plane as soon as the thread before it has done its
// band there. It waits for that by spinning on the neighbour's flag, as NPB's LU does: a team
// whose threads do not run at the same time burns whole time slices at every plane.
//
// Implicit Euler steps of the heat equation in a cube, (1 + tau*L) u_new = u_old + source, zero at
// the boundary. The source is chosen so that the exact discrete solution is g(step) times an
// eigenvector. An iteration is one time step: SWEEPS forward and SWEEPS backward half sweeps, a
// region each, plus a region before and one after.
//
// Verified: (1) max |u - known| ≤ 1e-6 at all points after every step: a pair of half sweeps
// reduces the error of the linear system by about 4, and the time stepping damps what is left;
// (2) the last step is repeated by one thread in plain order and must agree in every bit, which it
// does only if the wavefront kept its order.
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;
#include "common/spin.h"

enum { SWEEPS = 10 };
static const double COUPLING = 0.25, OMEGA = 1.1, TOLERANCE = 1e-6; // coupling: tau / h^2

static const struct app_spec spec = {
    .name = "lu", .what = "SSOR with a pipelined wavefront, waits by spinning", .n_means = "interior points an edge",
    .n_min = 4, .n_max = 1000,
    .classes = {{'T', 12, 3}, {'S', 48, 125}, {'M', 64, 210}, {'L', 96, 250}, {'X', 128, 800}},
};

static long n;
static double *u, *rhs, *phi, *partial, *partial2;
static struct spin_flag *done;
static int flags;

static size_t at(long i, long j, long k) { return (size_t)((i * (n + 2) + j) * (n + 2) + k); }

static double amplitude(long step) { return 2 + cos(0.05 * (double)step); }
static double known(long i, long j, long k) { return phi[i] * phi[j] * phi[k]; }

static inline void relax(long i, long j, long k)
{
    const long dj = n + 2, di = (n + 2) * (n + 2);
    double *c = u + at(i, j, k);
    const double sum = c[-di] + c[di] + c[-dj] + c[dj] + c[-1] + c[1];
    *c += OMEGA * ((rhs[at(i, j, k)] + COUPLING * sum) * (1 / (1 + 6 * COUPLING)) - *c);
}

// Rows low ≤ j < high of plane i, in ascending or descending order of everything.
static void relax_band(long i, long low, long high, bool forward)
{
    if (forward) {
        for (long j = low; j < high; j++)
            for (long k = 1; k <= n; k++)
                relax(i, j, k);
    } else {
        for (long j = high - 1; j >= low; j--)
            for (long k = n; k >= 1; k--)
                relax(i, j, k);
    }
}

static void half_sweep(bool forward)
{
    for (int t = 0; t < flags; t++)
        done[t].value = 0;
#pragma omp parallel
    {
        app_region();
        int team = omp_get_num_threads();
        if (team > flags)
            team = flags; // no more threads than rows, or than were ever announced
        const int t = omp_get_thread_num(), turn = forward ? t : team - 1 - t;
        if (t < team) {
            const long low = 1 + n * t / team, high = 1 + n * (t + 1) / team;
            for (long plane = 1; plane <= n; plane++) {
                if (turn > 0)
                    spin_until_at_least(&done[turn - 1], plane);
                relax_band(forward ? plane : n + 1 - plane, low, high, forward);
                spin_set(&done[turn], plane);
            }
        }
    }
}

static void set_rhs(double source)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static) collapse(2)
        for (long i = 1; i <= n; i++)
            for (long j = 1; j <= n; j++)
                for (long k = 1; k <= n; k++)
                    rhs[at(i, j, k)] = u[at(i, j, k)] + source * known(i, j, k);
    }
}

static double check_step(double now, double *checksum)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long i = 1; i <= n; i++) {
            double worst = 0, sum = 0;
            for (long j = 1; j <= n; j++)
                for (long k = 1; k <= n; k++) {
                    const double value = u[at(i, j, k)], error = fabs(value - now * known(i, j, k));
                    sum += value;
                    worst = app_worst(worst, error);
                }
            partial[i - 1] = worst, partial2[i - 1] = sum;
        }
    }
    double worst = 0;
    for (long i = 0; i < n; i++)
        worst = app_worst(worst, partial[i]);
    *checksum = app_sum(partial2, n);
    return worst;
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    n = app.n;
    const size_t points = (size_t)((n + 2) * (n + 2) * (n + 2));
    u = app_alloc(points, sizeof *u);
    rhs = app_alloc(points, sizeof *rhs);
    phi = app_alloc((size_t)n + 2, sizeof *phi);
    partial = app_alloc((size_t)n, sizeof *partial);
    partial2 = app_alloc((size_t)n, sizeof *partial2);
    flags = omp_get_max_threads() < n ? omp_get_max_threads() : (int)n;
    done = app_alloc((size_t)flags, sizeof *done);
    double *before = app_alloc_aside(points, sizeof *before);
    for (long i = 0; i < n + 2; i++)
        phi[i] = sin(app_pi * (double)i / (double)(n + 1));
    const double half = sin(app_pi / (double)(2 * (n + 1)));
    const double damping = 1 + COUPLING * 3 * 4 * half * half; // eigenvalue of 1 + tau*L

#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long i = 0; i < n + 2; i++)
            for (long j = 0; j < n + 2; j++)
                for (long k = 0; k < n + 2; k++) {
                    const bool inside = i >= 1 && i <= n && j >= 1 && j <= n && k >= 1 && k <= n;
                    u[at(i, j, k)] = inside ? amplitude(0) * known(i, j, k) : 0;
                    rhs[at(i, j, k)] = 0;
                }
    }

    app_start();
    double checksum = 0, largest = 0;
    for (long step = 1; step <= app.iterations; step++) {
        if (step == app.iterations)
            memcpy(before, u, points * sizeof *u);
        if (app_corrupt_now(step))
            u[at(n / 2, n / 2, n / 2)] += 0.1;
        set_rhs(damping * amplitude(step) - amplitude(step - 1));
        for (int s = 0; s < SWEEPS; s++) {
            half_sweep(true);
            half_sweep(false);
        }
        const double error = check_step(amplitude(step), &checksum);
        app_check(error <= TOLERANCE, "step %ld has an error of %g, above %g", step, error, TOLERANCE);
        largest = app_worst(largest, error);
    }
    app_stop();

    double *parallel = u; // `rhs` is still that of the last step
    u = before;
    for (int s = 0; s < SWEEPS; s++)
        for (int forward = 1; forward >= 0; forward--)
            for (long plane = 1; plane <= n; plane++)
                relax_band(forward ? plane : n + 1 - plane, 1, n + 1, forward);
    app_check(!memcmp(parallel, before, points * sizeof *u), "the wavefront differs from the sequential sweep");
    if (!app.json)
        printf("lu: largest error of a step %.2e\n", largest);
    return app_finish("%.17g", checksum);
}
