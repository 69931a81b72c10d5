// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: while a program with pure loops runs, its file is replaced by another one.
// Seen in: rebuilds during a long run; here the program itself puts a longer copy in its place.
// expect: gcc=rigid clang=rigid
#include <sys/stat.h>
#include <unistd.h>

#include "teams.h"

enum { N = 20000 };
static uint64_t x[N];

static int replace(void)
{
    char path[4096], fresh[4160], buffer[65536];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        return 1;
    path[length] = 0;
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    FILE *from = fopen("/proc/self/exe", "rb"), *to = fopen(fresh, "wb");
    if (!from || !to)
        return 1;
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, from)) > 0;)
        fwrite(buffer, 1, n, to);
    fputs("longer than before\n", to);
    fclose(from);
    return fclose(to) || chmod(fresh, 0755) || rename(fresh, path);
}

int main(int argc, char **argv)
{
    if (replace()) {
        perror("replaced");
        return 2;
    }
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++)
            x[i] = next(x[i], (uint64_t)r);
    }
    return tell("replaced", x, sizeof x);
}
