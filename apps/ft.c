// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Three-dimensional FFT: the heat equation in a periodic cube, solved in Fourier space. Large
// strided passes over two complex arrays.
//
// At the start the field is transformed once; an iteration damps the spectrum to a time and
// transforms it back: five regions (damp, three directions, check). One-dimensional transforms are
// Stockham's radix-2 form, over TILE columns at once in the strided directions.
//
// Verified each iteration: (1) Parseval, the energy in space equals that of the spectrum to a
// relative 1e-11: both are sums of N terms with rounding errors about 1e-15 each; (2) along the
// diagonal, the field equals the sum of its damped plane waves to 1e-11 for values up to 4.
// A corrupted point changes the energy by far more.
#include "common/app.h"
#include <coplace/resizable.h>

COPLACE_RESIZABLE;

enum { TILE = 8, WAVES = 4 };
static const double TOLERANCE = 1e-11, DIFFUSION = 1e-5;

static const struct app_spec spec = {
    .name = "ft", .what = "3D fast Fourier transforms", .n_means = "points an edge", .n_min = 8, .n_max = 1024,
    .n_power_of_two = true,
    .classes = {{'T', 16, 10}, {'S', 64, 450}, {'M', 128, 160}, {'L', 128, 640}, {'X', 256, 500}},
};

struct complex {
    double re, im;
};

static const struct wave {
    int k[3]; // wave numbers
    double amplitude;
} waves[WAVES] = {{{1, 0, 0}, 1.0}, {{2, -1, 3}, 0.75}, {{0, 3, -2}, 1.25}, {{-3, -3, 1}, 0.5}};

static long n;
static struct complex *spectrum, *field, *root; // root[j] = exp(-2 pi i j / n)
static double *damping, *partial, *partial2;

static size_t at(long z, long y, long x) { return (size_t)((z * n + y) * n + x); }

// `batch` interleaved transforms of length n, in place with `work` as scratch of the same size.
static void fft(struct complex *data, struct complex *work, long batch, bool inverse)
{
    struct complex *from = data, *to = work;
    long m = 1;
    for (long l = n / 2; l >= 1; l /= 2, m *= 2) {
        const long width = m * batch;
        for (long j = 0; j < l; j++) {
            const struct complex w = {root[j * m].re, inverse ? -root[j * m].im : root[j * m].im};
            const struct complex *a = from + j * width, *b = a + l * width;
            struct complex *even = to + 2 * j * width, *odd = even + width;
            for (long k = 0; k < width; k++) {
                const double re = a[k].re - b[k].re, im = a[k].im - b[k].im;
                even[k] = (struct complex){a[k].re + b[k].re, a[k].im + b[k].im};
                odd[k] = (struct complex){w.re * re - w.im * im, w.re * im + w.im * re};
            }
        }
        struct complex *swap = from;
        from = to, to = swap;
    }
    if (from != data)
        memcpy(data, from, (size_t)(n * batch) * sizeof *data);
}

// All lines of one direction: 0 along x (contiguous), 1 along y, 2 along z.
static void transform(struct complex *data, int direction, bool inverse)
{
    const long batch = direction == 0 ? 1 : TILE, tiles = n / batch;
    const long stride = direction == 1 ? n : n * n;
#pragma omp parallel
    {
        app_region();
        struct complex tile[n * batch], work[n * batch]; // at most 256 KiB for n = 1024
#pragma omp for schedule(static) collapse(2)
        for (long outer = 0; outer < n; outer++)
            for (long t = 0; t < tiles; t++) {
                if (direction == 0) {
                    fft(data + at(outer, t, 0), work, 1, inverse);
                } else {
                    struct complex *line = data + (direction == 1 ? at(outer, 0, t * TILE) : at(0, outer, t * TILE));
                    for (long i = 0; i < n; i++)
                        memcpy(tile + i * TILE, line + i * stride, TILE * sizeof *tile);
                    fft(tile, work, TILE, inverse);
                    for (long i = 0; i < n; i++)
                        memcpy(line + i * stride, tile + i * TILE, TILE * sizeof *tile);
                }
            }
    }
}

// field = spectrum damped to `time`, divided by the number of points; returns its energy.
static double damp(double time)
{
    for (long i = 0; i < n; i++) {
        const long k = i <= n / 2 ? i : i - n;
        damping[i] = exp(-DIFFUSION * 4 * app_pi * app_pi * (double)(k * k) * time);
    }
    const double scale = 1 / (double)(n * n * n);
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long z = 0; z < n; z++) {
            double sum = 0;
            for (long y = 0; y < n; y++) {
                const double factor = scale * damping[z] * damping[y];
                for (long x = 0; x < n; x++) {
                    const struct complex s = spectrum[at(z, y, x)];
                    const double f = factor * damping[x];
                    field[at(z, y, x)] = (struct complex){f * s.re, f * s.im};
                    sum += f * f * (s.re * s.re + s.im * s.im);
                }
            }
            partial[z] = sum;
        }
    }
    return app_sum(partial, n);
}

static struct complex plane_waves(long z, long y, long x, double time)
{
    struct complex sum = {0, 0};
    for (int w = 0; w < WAVES; w++) {
        const int *k = waves[w].k;
        const double k2 = k[0] * k[0] + k[1] * k[1] + k[2] * k[2];
        const double a = waves[w].amplitude * exp(-DIFFUSION * 4 * app_pi * app_pi * k2 * time);
        const long turn = (k[0] * x + k[1] * y + k[2] * z) % n;
        const struct complex e = root[turn < 0 ? turn + n : turn];
        sum.re += a * e.re, sum.im -= a * e.im;
    }
    return sum;
}

static double energy(void)
{
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long z = 0; z < n; z++) {
            double sum = 0;
            for (size_t i = at(z, 0, 0); i < at(z + 1, 0, 0); i++)
                sum += field[i].re * field[i].re + field[i].im * field[i].im;
            partial2[z] = sum;
        }
    }
    return app_sum(partial2, n) / (double)(n * n * n);
}

int main(int argc, char **argv)
{
    app_begin(&spec, argc, argv);
    n = app.n;
    spectrum = app_alloc((size_t)(n * n * n), sizeof *spectrum);
    field = app_alloc((size_t)(n * n * n), sizeof *field);
    root = app_alloc((size_t)n, sizeof *root);
    damping = app_alloc((size_t)n, sizeof *damping);
    partial = app_alloc((size_t)n, sizeof *partial);
    partial2 = app_alloc((size_t)n, sizeof *partial2);
    for (long j = 0; j < n; j++) {
        const double angle = 2 * app_pi * (double)j / (double)n;
        root[j] = (struct complex){cos(angle), -sin(angle)};
    }
#pragma omp parallel
    {
        app_region();
#pragma omp for schedule(static)
        for (long z = 0; z < n; z++)
            for (long y = 0; y < n; y++)
                for (long x = 0; x < n; x++)
                    spectrum[at(z, y, x)] = plane_waves(z, y, x, 0);
    }
    for (int direction = 0; direction < 3; direction++)
        transform(spectrum, direction, false);

    app_start();
    double energies = 0, largest = 0;
    for (long it = 0; it < app.iterations; it++) {
        const double time = (double)(it % 16 + 1), in_spectrum = damp(time);
        for (int direction = 2; direction >= 0; direction--) {
            transform(field, direction, true);
            if (direction == 1 && app_corrupt_now(it))
                field[at(n / 2, n / 3, n / 2)].re += 0.1;
        }
        const double in_space = energy(), mismatch = fabs(in_space / in_spectrum - 1);
        app_check(mismatch <= TOLERANCE, "iteration %ld: energy in space and spectrum differ by %g", it, mismatch);
        for (long i = 0; i < n; i++) {
            const struct complex want = plane_waves(i, i, i, time), got = field[at(i, i, i)];
            const double error = hypot(got.re - want.re, got.im - want.im);
            app_check(error <= TOLERANCE, "iteration %ld: point %ld is off by %g", it, i, error);
            largest = app_worst(largest, error);
        }
        energies += in_space;
    }
    app_stop();
    if (!app.json)
        printf("ft: largest error on the diagonal %.2e\n", largest);
    return app_finish("%.17g", energies);
}
