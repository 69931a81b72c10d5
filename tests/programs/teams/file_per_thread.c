// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way: each thread appends what it finds to a file of its own; the files of all threads that there may be are
// read at the end.
// Seen in: trinityrnaseq/trinityrnaseq issue 9: files of threads that were not there stay empty.
// expect: gcc=rigid clang=rigid
#include "teams.h"

enum { N = 2000, MOST = 256 };
static FILE *files[MOST];

int main(int argc, char **argv)
{
    const int threads = omp_get_max_threads() < MOST ? omp_get_max_threads() : MOST;
    for (int t = 0; t < threads; t++)
        if (!(files[t] = tmpfile()))
            return 2;
    for (long r = rounds_of(argc, argv, 20000); r > 0; r--) {
#pragma omp parallel num_threads(threads)
        {
            const int me = omp_get_thread_num();
            uint64_t found = 0;
#pragma omp for schedule(static)
            for (long i = 0; i < N; i++)
                found += next(word((uint64_t)i), (uint64_t)r);
            fwrite(&found, sizeof found, 1, files[me]);
        }
    }
    uint64_t results[2] = {0, 0}, value;
    for (int t = 0; t < threads; t++) {
        rewind(files[t]);
        while (fread(&value, sizeof value, 1, files[t]) == 1)
            results[0] += value, results[1] = next(results[1], value);
        fclose(files[t]);
    }
    return tell("file_per_thread", results, sizeof results);
}
