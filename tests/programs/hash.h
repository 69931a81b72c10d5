// For programs that compute with random bits and print a hash of what came out.
#include <stdint.h>

static uint64_t state = 1, hash;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void add(uint64_t bits) { hash = (hash ^ bits) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29; }
