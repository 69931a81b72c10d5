/* A program of a batch: parallel regions for so many milliseconds, each with a sum that is known. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    enum { N = 20000 };
    double until = now_ms() + (argc > 1 ? atof(argv[1]) : 50);
    do {
        long sum = 0;
#pragma omp parallel for reduction(+ : sum)
        for (long i = 0; i < N; i++)
            sum += i;
        if (sum != (long)N * (N - 1) / 2)
            return puts("FAILED"), 1;
    } while (now_ms() < until);
    puts("VERIFIED");
    return 0;
}
