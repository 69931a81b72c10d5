/* Calls the runtime as GCC's code does, and answers with the number of threads that arrived there. Linked
 * with a fake runtime, or with none at all (then nothing but the preload library defines GOMP_parallel).
 * `capture` calls it as clang's code does, with ever more captured variables, and answers how many arrived. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
extern int omp_get_dynamic(void);
extern int fake_last_asked __attribute__((weak));

extern void __kmpc_fork_call(void *, int32_t, void (*)(int32_t *, int32_t *, ...), ...) __attribute__((weak));

static void run(void *data) { ++*(int *)data; }

static void arrive(int32_t *count, int32_t *same, ...)
{
    (void)same;
    printf("%d ", *count);
}

#define ONE(n) (uintptr_t)1000 + (n)
#define TEN(n) ONE(n), ONE(n + 1), ONE(n + 2), ONE(n + 3), ONE(n + 4), ONE(n + 5), ONE(n + 6), ONE(n + 7), ONE(n + 8), ONE(n + 9)
#define HUNDRED(n) TEN(n), TEN(n + 10), TEN(n + 20), TEN(n + 30), TEN(n + 40), TEN(n + 50), TEN(n + 60), TEN(n + 70), TEN(n + 80), TEN(n + 90)
#define THOUSAND(n) HUNDRED(n), HUNDRED(n + 100), HUNDRED(n + 200), HUNDRED(n + 300), HUNDRED(n + 400), \
    HUNDRED(n + 500), HUNDRED(n + 600), HUNDRED(n + 700), HUNDRED(n + 800), HUNDRED(n + 900)
#define CAPTURE(count, ...) __kmpc_fork_call(&(int32_t){count}, count, arrive __VA_OPT__(, ) __VA_ARGS__)

static void capture(void)
{
    CAPTURE(0);
    CAPTURE(1, ONE(0));
    CAPTURE(2, ONE(0), ONE(1));
    CAPTURE(3, ONE(0), ONE(1), ONE(2));
    CAPTURE(4, ONE(0), ONE(1), ONE(2), ONE(3));
    CAPTURE(5, ONE(0), ONE(1), ONE(2), ONE(3), ONE(4));
    CAPTURE(6, ONE(0), ONE(1), ONE(2), ONE(3), ONE(4), ONE(5));
    CAPTURE(10, TEN(0));
    CAPTURE(11, TEN(0), ONE(10));
    CAPTURE(3001, THOUSAND(0), THOUSAND(1000), THOUSAND(2000), ONE(3000));
    CAPTURE(3002, THOUSAND(0), THOUSAND(1000), THOUSAND(2000), ONE(3000), ONE(3001));
    printf("\n");
}

int main(void)
{
    char line[64];
    int runs = 0;
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (!strcmp(line, "capture\n")) {
            capture();
            fflush(stdout);
            continue;
        }
        GOMP_parallel(run, &runs, 0, 0);
        printf("%d %d %d\n", runs, &fake_last_asked ? fake_last_asked : -2, omp_get_dynamic());
        fflush(stdout);
    }
    return 0;
}
