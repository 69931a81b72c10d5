// Matrix product in AVX2 with FMA, in two ways: by blocks in registers, what a numerical library does, in little;
// and row by row, what a compiler makes of three loops.
// usage: matmul blocks|rows N TIMES  (N a multiple of 64). Prints VERIFIED if the product is right.
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 };

static void by_blocks(const double *a, const double *b, double *c, int n)
{
    for (int kb = 0; kb < n; kb += BLOCK)
        for (int jb = 0; jb < n; jb += BLOCK)
            for (int i = 0; i < n; i += 4)
                for (int j = jb; j < jb + BLOCK; j += 8) {
                    __m256d sum[4][2];
                    for (int r = 0; r < 4; r++)
                        for (int s = 0; s < 2; s++)
                            sum[r][s] = _mm256_load_pd(&c[(long)(i + r) * n + j + 4 * s]);
                    for (int k = kb; k < kb + BLOCK; k++) {
                        const __m256d b0 = _mm256_load_pd(&b[(long)k * n + j]);
                        const __m256d b1 = _mm256_load_pd(&b[(long)k * n + j + 4]);
                        for (int r = 0; r < 4; r++) {
                            const __m256d factor = _mm256_broadcast_sd(&a[(long)(i + r) * n + k]);
                            sum[r][0] = _mm256_fmadd_pd(factor, b0, sum[r][0]);
                            sum[r][1] = _mm256_fmadd_pd(factor, b1, sum[r][1]);
                        }
                    }
                    for (int r = 0; r < 4; r++)
                        for (int s = 0; s < 2; s++)
                            _mm256_store_pd(&c[(long)(i + r) * n + j + 4 * s], sum[r][s]);
                }
}

static void by_rows(const double *a, const double *b, double *c, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            const __m256d factor = _mm256_broadcast_sd(&a[(long)i * n + k]);
            for (int j = 0; j < n; j += 4) {
                double *to = &c[(long)i * n + j];
                _mm256_store_pd(to, _mm256_fmadd_pd(factor, _mm256_load_pd(&b[(long)k * n + j]), _mm256_load_pd(to)));
            }
        }
}

int main(int argc, char **argv)
{
    const int rows = argc == 4 && !strcmp(argv[1], "rows");
    if (argc != 4 || !(rows || !strcmp(argv[1], "blocks")) || atoi(argv[2]) <= 0 || atoi(argv[2]) % BLOCK) {
        fprintf(stderr, "usage: matmul blocks|rows N TIMES (N a multiple of %d)\n", BLOCK);
        return 2;
    }
    const int n = atoi(argv[2]), times = atoi(argv[3]);
    const size_t bytes = sizeof(double) * (size_t)n * (size_t)n;
    double *a = aligned_alloc(64, bytes), *b = aligned_alloc(64, bytes), *c = aligned_alloc(64, bytes);
    if (!a || !b || !c)
        return 1;
    for (long i = 0; i < (long)n * n; i++)
        a[i] = (double)(i % 7), b[i] = (double)(i % 5), c[i] = 0;
    for (int t = 0; t < times; t++)
        (rows ? by_rows : by_blocks)(a, b, c, n);
    // Whole numbers: exact, in whatever order.
    for (int probe = 0; probe < 16; probe++) {
        const int i = probe * 31 % n, j = probe * 53 % n;
        double want = 0;
        for (int k = 0; k < n; k++)
            want += a[(long)i * n + k] * b[(long)k * n + j];
        if (c[(long)i * n + j] != want * times) {
            printf("FAILED: element %d, %d\n", i, j);
            return 1;
        }
    }
    printf("VERIFIED\n");
    return 0;
}
