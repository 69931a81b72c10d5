// Reads an array on the stack and one on the heap by turns, one read a line, in the first thread and then in a second
// one. Without what lies on stacks the heap's lines are all that is between two reads of one.
// usage: stack STACK_LINES HEAP_LINES ROUNDS
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE = 64, MOST = 2048 };
static long stack_lines, heap_lines, rounds;
static volatile char *heap;

// Says what it read: Valgrind leaves out reads whose result nothing uses.
static void *walk(void *unused)
{
    (void)unused;
    long sum = 0;
    volatile char stack[MOST * LINE];
    for (long line = 0; line < stack_lines; line++)
        stack[line * LINE] = 1;
    for (long round = 0; round < rounds; round++) {
        for (long line = 0; line < stack_lines; line++)
            sum += stack[line * LINE];
        for (long line = 0; line < heap_lines; line++)
            sum += heap[line * LINE];
    }
    return (void *)sum;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: stack STACK_LINES HEAP_LINES ROUNDS\n");
        return 2;
    }
    stack_lines = atol(argv[1]), heap_lines = atol(argv[2]), rounds = atol(argv[3]);
    heap = aligned_alloc(LINE, (size_t)heap_lines * LINE);
    if (stack_lines > MOST || !heap)
        return 1;
    void *first = walk(NULL), *second;
    pthread_t thread;
    if (pthread_create(&thread, NULL, walk, NULL) || pthread_join(thread, &second))
        return 1;
    return first != second;
}
