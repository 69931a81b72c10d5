/* Random numbers from a fixed seed, and a hash of a result's bytes. */
#ifndef HASH_H
#define HASH_H

#include <stdint.h>
#include <stdio.h>

static inline void random_numbers(double *into, size_t count)
{
	uint64_t state = 88172645463325252u;

	for (size_t i = 0; i < count; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		into[i] = (double)(state >> 11) / 9007199254740992.0 - 0.5;
	}
}

static inline void print_hash(const void *bytes, size_t count)
{
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
	printf("%016llx\n", (unsigned long long)hash);
}

#endif
