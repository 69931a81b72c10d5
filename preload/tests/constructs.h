/* Every way in which GCC starts a parallel region, each with a result that does not depend on the team's size.
 * Returns how many results were wrong. */
#ifndef COPLACE_TEST_CONSTRUCTS_H
#define COPLACE_TEST_CONSTRUCTS_H

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS 240L
#define ITEMS_SUM (ITEMS * (ITEMS - 1) / 2)
#define CANARY 0x5a5a5a5aL

static inline long loops(void)
{
    long bad = 0, sum;
#define LOOP(schedule_clause)                                                                              \
    sum = 0;                                                                                               \
    _Pragma(schedule_clause) for (long i = 0; i < ITEMS; i++)                                              \
    {                                                                                                      \
        _Pragma("omp atomic") sum += i;                                                                    \
    }                                                                                                      \
    bad += sum != ITEMS_SUM;
    LOOP("omp parallel for schedule(static)")
    LOOP("omp parallel for schedule(static, 7)")
    LOOP("omp parallel for schedule(dynamic)")
    LOOP("omp parallel for schedule(monotonic : dynamic, 3)")
    LOOP("omp parallel for schedule(nonmonotonic : dynamic, 3)")
    LOOP("omp parallel for schedule(guided)")
    LOOP("omp parallel for schedule(monotonic : guided, 2)")
    LOOP("omp parallel for schedule(runtime)")
    LOOP("omp parallel for schedule(monotonic : runtime)")
    LOOP("omp parallel for schedule(nonmonotonic : runtime)")
    LOOP("omp parallel for schedule(auto)")
    sum = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : sum)
    for (long i = 0; i < ITEMS; i++)
        sum += i;
    bad += sum != ITEMS_SUM;
    return bad;
}

static inline long sections_and_tasks(void)
{
    long bad = 0, a = 0, b = 0, c = 0;
#pragma omp parallel sections
    {
#pragma omp section
        a = 1;
#pragma omp section
        b = 2;
#pragma omp section
        c = 3;
    }
    bad += a + b + c != 6;

    long sum = 0;
#pragma omp parallel
#pragma omp single
    for (long i = 0; i < 40; i++) {
#pragma omp task firstprivate(i) shared(sum)
        {
#pragma omp atomic
            sum += i;
        }
    }
    bad += sum != 780;

    sum = 0;
#pragma omp parallel reduction(task, + : sum)
#pragma omp single
    for (long i = 0; i < 40; i++) {
#pragma omp task firstprivate(i) in_reduction(+ : sum)
        sum += i;
    }
    bad += sum != 780;
    return bad;
}

static inline long ordered_and_private(void)
{
    long bad = 0, order = 0, last = -1, told = 0;
#pragma omp parallel for ordered schedule(dynamic) lastprivate(last)
    for (long i = 0; i < 60; i++) {
#pragma omp ordered
        {
            bad += order != i;
            order++;
        }
        last = i;
    }
    bad += last != 59;
#pragma omp parallel reduction(+ : told)
    {
        long value;
#pragma omp single copyprivate(value)
        value = 11;
#pragma omp barrier
        told += value - 11 + (omp_get_thread_num() >= omp_get_num_threads());
    }
    return bad + (told != 0);
}

/* A buffer with one place a thread, sized by what the program was told, as so many programs do. */
static inline long buffer_by_max_threads(void)
{
    int places = omp_get_max_threads();
    long *buffer = malloc(sizeof *buffer * (size_t)(places + 8)), bad = 0, sum = 0;
    for (int i = 0; i < places + 8; i++)
        buffer[i] = i < places ? 0 : CANARY;
#pragma omp parallel
    {
        int me = omp_get_thread_num();
#pragma omp for
        for (long i = 0; i < ITEMS; i++)
            buffer[me] += i;
    }
    for (int i = 0; i < places; i++)
        sum += buffer[i];
    for (int i = places; i < places + 8; i++)
        bad += buffer[i] != CANARY;
    free(buffer);
    return bad + (sum != ITEMS_SUM);
}

static inline long check_constructs(long rounds)
{
    long bad = 0;
    for (long i = 0; i < rounds; i++)
        bad += loops() + sections_and_tasks() + ordered_and_private() + buffer_by_max_threads();
    return bad;
}

#endif
