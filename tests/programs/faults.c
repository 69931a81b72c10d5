// Writes to pages that it has protected, of which a handler takes the protection as they are written to: an instruction
// that faults is begun twice, and what comes before it once.
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGES = 64, PAGE = 4096 };
static volatile long writes, faults;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    faults++;
    mprotect((void *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

__attribute__((noinline)) static void write_to(volatile char *at)
{
    writes++;
    *at = 1;
}

int main(void)
{
    volatile char *area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // Code that ran before there was a handler.
    for (long i = 0; i < PAGES; i++)
        write_to(area + i * PAGE);
    mprotect((void *)area, PAGES * PAGE, PROT_READ);
    const struct sigaction handler = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &handler, NULL);
    for (long i = 0; i < PAGES; i++)
        write_to(area + i * PAGE);
    printf("faults %ld writes %ld\n", faults, writes);
    return faults != PAGES || writes != 2 * PAGES;
}
