// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The triad of STREAM (McCalpin 1995), a = b + s*c: as much memory traffic as loads and stores can
// ask for. The arrays change roles after each pass, and s = -1 makes the recurrence
// x(k+1) = x(k) - x(k-1), whose six values repeat: small whole numbers, exact in floating point, so
// every element of the result is compared exactly. An iteration is one pass, one region.
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

static const struct app_spec spec = {
    .name = "triad", .what = "STREAM triad, bound by memory bandwidth", .n_means = "elements of each of three arrays",
    .n_min = 64, .n_max = 1000000000,
    .classes = {{'T', 1L << 16, 200}, {'S', 1L << 22, 300}, {'M', 1L << 22, 1200}, {'L', 1L << 23, 2400},
                {'X', 1L << 24, 10000}},
};

static double initial(long i, int which) { return (double)(app_mix((uint64_t)(2 * i + which)) % 1000) - 500; }

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    const long n = app.n;
    double *array[3];
    for (int i = 0; i < 3; i++)
        array[i] = app_alloc((size_t)n, sizeof(double));
    volatile double s_hidden = -1; // a compiler that knew s would drop the multiplication
    const double s = s_hidden;

#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) {
            array[0][i] = initial(i, 0);
            array[1][i] = initial(i, 1);
            array[2][i] = 0;
        }
    }

    app_start();
    for (long it = 0; it < app.iterations; it++) {
        const double *restrict c = array[it % 3], *restrict b = array[(it + 1) % 3];
        double *restrict a = array[(it + 2) % 3];
#pragma omp parallel
        {
            app_region();
#pragma omp for schedule(static)
            for (long i = 0; i < n; i++)
                a[i] = b[i] + s * c[i];
        }
        if (app_corrupt_now(it))
            a[n / 3] += 1;
    }
    app_stop();

    // The last two passes: an error travels as d, d, 0, -d, -d, 0, so one pass alone may miss it.
    const double *last = array[(app.iterations + 1) % 3], *before = array[app.iterations % 3];
    const int phase = (int)(app.iterations % 6);
    double sum = 0; // of whole numbers far below 2^53: exact in any order
    for (long i = 0; i < n; i++) {
        double want_before = initial(i, 0), want = initial(i, 1);
        for (int k = 0; k < phase; k++) {
            const double next = want - want_before;
            want_before = want, want = next;
        }
        sum += last[i];
        if (!app_check(last[i] == want && before[i] == want_before, "element %ld is %g and was %g, not %g and %g", i,
                       last[i], before[i], want, want_before))
            break;
    }
    return app_finish("%.0f", sum);
}
