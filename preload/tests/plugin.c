/* An extension module as Python wheels have them: OpenMP inside, its own runtime in a local scope. */
#include <omp.h>

#include "constructs.h"
#include "ten.h"

int plugin_team(void)
{
    int n = 0;
#pragma omp parallel
#pragma omp single
    n = omp_get_level() == 1 ? omp_get_num_threads() : -1;
    return n;
}

static int hits;

static void hit(void)
{
#pragma omp atomic
    hits++;
}

/* No shared data, nothing behind it: GCC makes the call of the runtime a jump, so the return address is not
 * in this object. */
void plugin_team_by_tail_call(void)
{
#pragma omp parallel
    hit();
}

int plugin_hits(void) { return hits; }

int plugin_explicit(int threads)
{
    int n = 0;
#pragma omp parallel num_threads(threads)
#pragma omp single
    n = omp_get_num_threads();
    return n;
}

unsigned long long plugin_ten(const char *name, long rounds) { return ten_digest(name, rounds); }

long plugin_constructs(long rounds) { return check_constructs(rounds); }

int plugin_max_threads_by_tail_call(void) { return omp_get_max_threads(); }

void plugin_set_threads(int n) { omp_set_num_threads(n); }

int plugin_dynamic_by_tail_call(void) { return omp_get_dynamic(); }

void plugin_set_dynamic_by_tail_call(int on) { omp_set_dynamic(on); }
