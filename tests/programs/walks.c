// Walks LINES lines of 64 bytes ROUNDS times, one read each. usage: walks LINES ROUNDS
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: walks LINES ROUNDS\n");
        return 2;
    }
    const long lines = atol(argv[1]), rounds = atol(argv[2]);
    volatile char *memory = aligned_alloc(64, (size_t)lines * 64);
    if (!memory)
        return 1;
    for (long round = 0; round < rounds; round++)
        for (long line = 0; line < lines; line++)
            (void)memory[line * 64];
    return 0;
}
