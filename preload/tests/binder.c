/* Binds itself as it is told, a line each:
 *   get          the mask that the C library tells, as a number
 *   set MASK     for the calling thread; prints 0, or the number of the error
 *   back         to what `get` told last
 *   thread MASK  of another thread by its handle; prints the thread's id
 *   attr MASK    a thread that is made with it; prints the mask that it has
 *   fork MASK    in a child, which ends; prints 0, or the number of the error
 *   exec         the same program anew */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t other;

static cpu_set_t set_of(unsigned long mask)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    memcpy(&set, &mask, sizeof mask);
    return set;
}

static unsigned long number_of(const cpu_set_t *set)
{
    unsigned long mask;
    memcpy(&mask, set, sizeof mask);
    return mask;
}

static void *sleeper(void *unused)
{
    other = (pid_t)syscall(SYS_gettid);
    for (;;)
        pause();
    return unused;
}

static void *teller(void *to)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    *(unsigned long *)to = number_of(&set);
    return NULL;
}

int main(int argc, char **argv)
{
    char word[32];
    unsigned long mask;
    cpu_set_t told = set_of(0), set;
    (void)argc;
    setvbuf(stdin, NULL, _IONBF, 0);
    while (scanf("%31s", word) == 1) {
        if (strcmp(word, "get") == 0) {
            sched_getaffinity(0, sizeof told, &told);
            printf("%lu\n", number_of(&told));
        } else if (strcmp(word, "back") == 0) {
            printf("%d\n", sched_setaffinity(0, sizeof told, &told) == 0 ? 0 : errno);
        } else if (strcmp(word, "exec") == 0) {
            execv("/proc/self/exe", argv);
        } else if (scanf("%lu", &mask) == 1 && (set = set_of(mask), strcmp(word, "set") == 0)) {
            printf("%d\n", sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : errno);
        } else if (strcmp(word, "thread") == 0) {
            pthread_t thread;
            other = 0;
            if (pthread_create(&thread, NULL, sleeper, NULL) != 0)
                return 1;
            while (other == 0)
                usleep(100);
            printf("%d\n", pthread_setaffinity_np(thread, sizeof set, &set) == 0 ? (int)other : -1);
        } else if (strcmp(word, "attr") == 0) {
            pthread_attr_t attr;
            pthread_t thread;
            unsigned long has = 0;
            pthread_attr_init(&attr);
            pthread_attr_setaffinity_np(&attr, sizeof set, &set);
            if (pthread_create(&thread, &attr, teller, &has) != 0 || pthread_join(thread, NULL) != 0)
                return 1;
            printf("%lu\n", has);
        } else {
            pid_t child = fork();
            int status = 0;
            if (child == 0)
                _exit(sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : errno);
            waitpid(child, &status, 0);
            printf("%d\n", WEXITSTATUS(status));
        }
        fflush(stdout);
    }
    return 0;
}
