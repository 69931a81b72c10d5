// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// A program that cannot be resized: each region asks for its width with a num_threads clause,
// divides the work by the number it asked for, and its threads wait for each other by spinning.
// With fewer threads than that it would lose work or hang, so it checks in each region that it got
// what OpenMP owes it: exactly the number, unless OMP_DYNAMIC is set or the thread limit is lower;
// then it divides by the team that it got, as a conforming program must.
// Asked of the environment and not of omp_get_dynamic(), which a tool may answer differently.
// --no-dynamic calls omp_set_dynamic(0) at the start, the other way of being rigid.
// An iteration is one region of PHASES affine phases with a spin barrier after each. Exact.
#include "common/affine.h"
#include "common/spin.h"
#include <strings.h>

enum { PHASES = 4 };

static const struct app_spec spec = {
    .name = "rigid", .what = "regions with an explicit num_threads clause and spinning waits",
    .n_means = "elements of the array", .n_min = 16, .n_max = 100000000, .takes_threads = true,
    .classes = {{'T', 20480, 50}, {'S', 20480, 22000}, {'M', 20480, 88000}, {'L', 20480, 352000},
                {'X', 20480, 2600000}},
};

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    const long n = app.n;
    if (app.no_dynamic)
        omp_set_dynamic(0);
    const int width = app.threads ? app.threads : omp_get_max_threads();
    const char *dynamic = getenv("OMP_DYNAMIC");
    const bool exact = (app.no_dynamic || !dynamic || strcasecmp(dynamic, "true")) && width <= omp_get_thread_limit();

    uint64_t *buffers[2] = {app_alloc((size_t)n, sizeof(uint64_t)), app_alloc((size_t)n, sizeof(uint64_t))};
    affine_init(buffers[0], 0, n);
    struct spin_barrier *barrier = app_alloc(1, sizeof *barrier);
    memset(barrier, 0, sizeof *barrier);

    app_start();
    for (long it = 0; it < app.iterations && !app.why[0]; it++) {
#pragma omp parallel num_threads(width)
        {
            app_region();
            const int t = omp_get_thread_num(), team = omp_get_num_threads();
            if (!exact || team == width) { // otherwise a spin barrier of `width` would never open
                for (int phase = 0; phase < PHASES; phase++) {
                    affine_phase(buffers[(phase + 1) % 2], buffers[phase % 2], n * t / team, n * (t + 1) / team, n);
                    spin_barrier_wait(barrier, team);
                }
            } else if (t == 0) {
                app_check(false, "region %ld got %d threads where num_threads(%d) must be met", it, team, width);
            }
        }
        if (app_corrupt_now(it))
            buffers[0][n / 3] ^= 1u << 20;
    }
    app_stop();

    if (!app.why[0])
        affine_verify(buffers[0], n, (uint64_t)app.iterations * PHASES);
    return app_finish("%016llx", (unsigned long long)buffers[0][n / 2]);
}
