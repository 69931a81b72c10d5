// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Conjugate gradients on a random sparse matrix: indirect access through the whole vector, and
// three short regions a step.
//
// The matrix is the Laplacian of a random graph with DEGREE edges made at each vertex, random
// weights in [0.5, 1.5], plus SHIFT on the diagonal: symmetric, positive definite, and, as random
// graphs expand well, of small condition number, so that STEPS steps from zero reduce the error
// below the tolerance for every n and seed. An iteration is one solve with a right-hand side made
// from a known solution.
//
// Verified: max |x - known| ≤ 1e-9 for values up to 1, each solve. A step halves the error about,
// so STEPS of them leave 1e-12, and rounding adds about 1e-14; a corrupted element of the residual
// leaves an error of the size of the corruption.
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

enum { DEGREE = 8, STEPS = 40 };
static const double SHIFT = 1, TOLERANCE = 1e-9;

static const struct app_spec spec = {
    .name = "cg", .what = "conjugate gradients on a random sparse matrix", .n_means = "rows of the matrix",
    .n_min = 64, .n_max = 100000000,
    .classes = {{'T', 2000, 10}, {'S', 40000, 55}, {'M', 100000, 80}, {'L', 200000, 140}, {'X', 400000, 500}},
};

static long n;
static long *row_start;
static int *column;
static double *value, *x, *r, *p, *q, *partial, *partial2;

static double known(long i, long solve) { return 2 * app_uniform((uint64_t)(solve * n + i)) - 1; }

// Edge e = DEGREE*i + k joins i with a random vertex. Two passes over the edges, sequential: the
// order of the entries in a row must not depend on the number of threads.
static void edge(long e, long *i, long *j, double *weight)
{
    *i = e / DEGREE;
    *j = (long)(app_mix(0x1000000000u + (uint64_t)e) % (uint64_t)(n - 1));
    *j += *j >= *i; // never a loop
    *weight = 0.5 + app_uniform(0x2000000000u + (uint64_t)e);
}

static void build_matrix(void)
{
    const long edges = n * DEGREE, entries = n + 2 * edges;
    row_start = app_alloc((size_t)n + 1, sizeof *row_start);
    column = app_alloc((size_t)entries, sizeof *column);
    value = app_alloc((size_t)entries, sizeof *value);
    long *next = app_alloc_aside((size_t)n, sizeof *next), i, j;
    double weight;
    for (i = 0; i < n; i++)
        next[i] = 1;
    for (long e = 0; e < edges; e++) {
        edge(e, &i, &j, &weight);
        next[i]++, next[j]++;
    }
    row_start[0] = 0;
    for (i = 0; i < n; i++) {
        row_start[i + 1] = row_start[i] + next[i];
        next[i] = row_start[i];
        column[next[i]] = (int)i;
        value[next[i]++] = SHIFT;
    }
    for (long e = 0; e < edges; e++) {
        edge(e, &i, &j, &weight);
        column[next[i]] = (int)j, value[next[i]++] = -weight;
        column[next[j]] = (int)i, value[next[j]++] = -weight;
        value[row_start[i]] += weight, value[row_start[j]] += weight;
    }
    free(next);
}

static double row_times(long i, const double *v)
{
    double sum = 0;
    for (long k = row_start[i]; k < row_start[i + 1]; k++)
        sum += value[k] * v[column[k]];
    return sum;
}

// x = 0, r = p = A * known; returns r·r. Uses q for the known solution.
static double start_solve(long solve)
{
    const long blocks = app_blocks(n);
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++)
            q[i] = known(i, solve);
#pragma omp for schedule(static)
        for (long b = 0; b < blocks; b++) {
            double sum = 0;
            for (long i = b * APP_BLOCK; i < app_block_end(b, n); i++) {
                x[i] = 0;
                r[i] = p[i] = row_times(i, q);
                sum += r[i] * r[i];
            }
            partial[b] = sum;
        }
    }
    return app_sum(partial, blocks);
}

static double step(double rr)
{
    const long blocks = app_blocks(n);
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long b = 0; b < blocks; b++) {
            double sum = 0;
            for (long i = b * APP_BLOCK; i < app_block_end(b, n); i++) {
                q[i] = row_times(i, p);
                sum += p[i] * q[i];
            }
            partial[b] = sum;
        }
    }
    const double alpha = rr / app_sum(partial, blocks);
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long b = 0; b < blocks; b++) {
            double sum = 0;
            for (long i = b * APP_BLOCK; i < app_block_end(b, n); i++) {
                x[i] += alpha * p[i];
                r[i] -= alpha * q[i];
                sum += r[i] * r[i];
            }
            partial[b] = sum;
        }
    }
    const double next_rr = app_sum(partial, blocks), beta = next_rr / rr;
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++)
            p[i] = r[i] + beta * p[i];
    }
    return next_rr;
}

// Returns the largest error of x; adds the sum of x to *checksum.
static double check_solve(long solve, double *checksum)
{
    const long blocks = app_blocks(n);
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long b = 0; b < blocks; b++) {
            double sum = 0, worst = 0;
            for (long i = b * APP_BLOCK; i < app_block_end(b, n); i++) {
                const double error = fabs(x[i] - known(i, solve));
                sum += x[i];
                worst = app_worst(worst, error);
            }
            partial[b] = sum, partial2[b] = worst;
        }
    }
    *checksum += app_sum(partial, blocks);
    double worst = 0;
    for (long b = 0; b < blocks; b++)
        worst = app_worst(worst, partial2[b]);
    return worst;
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    n = app.n;
    build_matrix();
    double **vectors[] = {&x, &r, &p, &q};
    for (int i = 0; i < 4; i++)
        *vectors[i] = app_alloc((size_t)n, sizeof(double));
    partial = app_alloc((size_t)app_blocks(n), sizeof(double));
    partial2 = app_alloc((size_t)app_blocks(n), sizeof(double));

    app_start();
    double checksum = 0, worst = 0;
    for (long solve = 0; solve < app.iterations; solve++) {
        double rr = start_solve(solve);
        if (app_corrupt_now(solve))
            r[n / 3] += 0.1;
        for (int s = 0; s < STEPS; s++)
            rr = step(rr);
        const double error = check_solve(solve, &checksum);
        app_check(error <= TOLERANCE, "solve %ld has an error of %g, above %g", solve, error, TOLERANCE);
        worst = app_worst(worst, error);
    }
    app_stop();
    if (!app.json)
        printf("cg: largest error of a solve %.2e\n", worst);
    return app_finish("%.17g", checksum);
}
