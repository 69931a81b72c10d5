// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A great many very short parallel regions: each applies one affine phase to a small array and
// sums it. The program that suffers most when the threads of its team do not run at the same time.
// An iteration is one region. Verified exactly: elements and the sum of all sums in closed form.
#include "common/affine.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

static const struct app_spec spec = {
    .name = "regions", .what = "many very short parallel regions", .n_means = "elements of the array",
    .n_min = 16, .n_max = 100000000,
    .classes = {{'T', 20480, 500}, {'S', 20480, 70000}, {'M', 20480, 280000}, {'L', 20480, 1120000},
                {'X', 20480, 8400000}},
};

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    const long n = app.n;
    uint64_t *from = app_alloc((size_t)n, sizeof *from), *to = app_alloc((size_t)n, sizeof *to);
    affine_init(from, 0, n);
    uint64_t first_sum = 0, sums = 0;
    for (long i = 0; i < n; i++)
        first_sum += from[i];

    app_start();
    for (long it = 0; it < app.iterations; it++) {
        uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
        {
            app_region();
            const int t = omp_get_thread_num(), threads = omp_get_num_threads();
            sum += affine_phase(to, from, n * t / threads, n * (t + 1) / threads, n);
        }
        sums += sum;
        uint64_t *swap = from;
        from = to, to = swap;
        if (app_corrupt_now(it))
            from[n / 3] ^= 1u << 20;
    }
    app_stop();

    affine_verify(from, n, (uint64_t)app.iterations);
    uint64_t want = 0, sum = first_sum;
    for (long it = 0; it < app.iterations; it++) {
        sum = affine_a * sum + (uint64_t)n * affine_c;
        want += sum;
    }
    app_check(sums == want, "the sum of all regions is %llx, not %llx", (unsigned long long)sums,
              (unsigned long long)want);
    return app_finish("%016llx", (unsigned long long)sums);
}
