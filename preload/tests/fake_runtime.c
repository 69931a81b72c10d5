/* Runtimes that are not on this machine. With FAKE_KMP a library that has LLVM's entry point beside the GOMP
 * names; without, a libgomp from before GCC 9, which had no omp_pause_resource_all. It tells the program what
 * number it was called with. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

int fake_last_asked = -1;
static int threads_var = 4;
static bool dynamic;

#ifdef FAKE_KMP
/* Calls the region with what it makes of the captured variables: their number if each is there, else a negative. */
void __kmpc_fork_call(void *where, int32_t count, void (*region)(int32_t *, int32_t *, ...), ...)
{
    int32_t mark = *(int32_t *)where == count ? count : -1;
    va_list list;
    va_start(list, region);
    for (int32_t i = 0; i < count; i++)
        if (va_arg(list, uintptr_t) != 1000 + (uintptr_t)i)
            mark = -2 - i;
    va_end(list);
    region(&mark, &mark);
}
#endif

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags)
{
    (void)flags;
    fake_last_asked = (int)threads;
    fn(data);
}
int omp_get_max_threads(void) { return threads_var; }
void omp_set_num_threads(int n) { threads_var = n; }
int omp_get_dynamic(void) { return dynamic; }
void omp_set_dynamic(int on) { dynamic = on; }
int omp_get_num_procs(void) { return 4; }
int omp_get_level(void) { return 0; }
int omp_get_active_level(void) { return 0; }
int omp_get_max_active_levels(void) { return 1; }
int omp_get_nested(void) { return 0; }
int omp_get_team_size(int level) { return level == 0 ? 1 : -1; }
int omp_get_thread_limit(void) { return 0x7fffffff; }
