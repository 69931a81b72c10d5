/* Calls the runtime as GCC's code does, and answers with the number of threads that arrived there. Linked
 * with a fake runtime, or with none at all (then nothing but the preload library defines GOMP_parallel). */
#include <stdio.h>

extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);
extern int omp_get_dynamic(void);
extern int fake_last_asked __attribute__((weak));

static void run(void *data) { ++*(int *)data; }

int main(void)
{
    char line[64];
    int runs = 0;
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        GOMP_parallel(run, &runs, 0, 0);
        printf("%d %d %d\n", runs, &fake_last_asked ? fake_last_asked : -2, omp_get_dynamic());
        fflush(stdout);
    }
    return 0;
}
