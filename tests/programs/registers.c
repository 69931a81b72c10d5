// Numbers put into parts of vector registers and computed with there, and reads of the whole after them, with jumps
// between: prints a hash of what the registers and the memory hold in the end.
#include <stdint.h>
#include <stdio.h>

#include "hash.h"

typedef uint64_t pair __attribute__((vector_size(16)));

// Of the sequence: two registers with what was in them before, numbers in memory, and one that is 0 or not.
#define SEQUENCE(NAME, CODE)                                                                            \
    static void NAME(pair *a, pair *b, uint64_t *numbers, uint64_t flag)                                \
    {                                                                                                   \
        __asm__ volatile(CODE : "+x"(*a), "+x"(*b), "+r"(flag) : "r"(numbers) : "cc", "memory", "xmm7"); \
    }

// A number with zeros above it, read as a whole.
SEQUENCE(load_double, "movsd (%3), %0\n paddq %0, %1\n")
SEQUENCE(load_single, "movss (%3), %0\n paddq %0, %1\n")
SEQUENCE(load_quad, "movq (%3), %0\n paddq %0, %1\n movd 8(%3), %0\n paddq %0, %1\n")
SEQUENCE(convert_double, "pxor %0, %0\n cvtsi2sdq (%3), %0\n paddq %0, %1\n")
SEQUENCE(convert_single, "pxor %0, %0\n cvtsi2ssq (%3), %0\n paddq %0, %1\n")
SEQUENCE(convert_memory, "xorps %0, %0\n cvtsi2sdl 4(%3), %0\n movaps %0, %1\n")
// Parts of what is zero, of what is not, and of what is half.
SEQUENCE(halves, "pxor %0, %0\n movlpd (%3), %0\n paddq %0, %1\n movhpd 8(%3), %0\n paddq %0, %1\n")
SEQUENCE(high_first, "pxor %0, %0\n movhpd 8(%3), %0\n paddq %0, %1\n movlpd (%3), %0\n paddq %0, %1\n")
SEQUENCE(low_of_full, "movlpd (%3), %0\n paddq %0, %1\n movsd %1, %0\n paddq %0, %1\n")
SEQUENCE(word, "pxor %0, %0\n pinsrw $1, (%3), %0\n paddq %0, %1\n pinsrw $5, 8(%3), %0\n paddq %0, %1\n")
SEQUENCE(single_in_double, "movsd (%3), %0\n movss 8(%3), %%xmm7\n movss %%xmm7, %0\n paddq %0, %1\n")
// Writes over writes, and the same again.
SEQUENCE(twice, "movsd (%3), %0\n movsd 8(%3), %0\n paddq %0, %1\n movsd 8(%3), %0\n paddq %0, %1\n")
SEQUENCE(zero_twice, "pxor %0, %0\n paddq %0, %1\n pxor %0, %0\n movlpd (%3), %0\n pxor %0, %0\n paddq %0, %1\n")
SEQUENCE(zero_is_read, "pxor %0, %0\n movaps %0, %%xmm7\n movlpd (%3), %0\n paddq %0, %1\n pshufd $0xe4, %%xmm7, %0\n")
SEQUENCE(part_is_read, "movsd (%3), %0\n movq %0, %2\n addsd 8(%3), %0\n movsd %0, %1\n movq %2, %%xmm7\n por %%xmm7, %1\n")
SEQUENCE(back_again, "movaps %0, %%xmm7\n movsd (%3), %0\n paddq %0, %1\n movaps %%xmm7, %0\n")
// What a jump leaves behind is seen on the other side.
SEQUENCE(jump_after_zero, "pxor %0, %0\n test %2, %2\n jz 1f\n movlpd (%3), %0\n 1: paddq %0, %1\n")
SEQUENCE(jump_after_load, "movsd (%3), %0\n test %2, %2\n jz 1f\n movsd 8(%3), %0\n 1: paddq %0, %1\n")
SEQUENCE(jump_after_half, "movsd (%3), %0\n test %2, %2\n jz 1f\n movhpd 8(%3), %0\n 1: paddq %0, %1\n")
// A loop that is unrolled, with a register that stays and one that changes.
SEQUENCE(loop, "and $15, %2\n 1: movsd (%3), %0\n paddq %0, %1\n addsd 8(%3), %0\n paddq %0, %1\n sub $1, %2\n jns 1b\n")
SEQUENCE(loop_with_jump,
         "and $15, %2\n 1: pxor %0, %0\n test $3, %2\n jz 2f\n movlpd (%3), %0\n 2: paddq %0, %1\n sub $1, %2\n jns 1b\n")
// Numbers computed with in the lower half, what is above them staying as it was or being changed in between.
SEQUENCE(from_memory, "addsd 8(%3), %0\n mulsd (%3), %0\n subsd 8(%3), %1\n divsd (%3), %1\n")
SEQUENCE(from_registers, "mulsd %1, %0\n subsd %0, %1\n addsd %1, %1\n divsd %0, %1\n")
SEQUENCE(sum_is_whole, "addsd (%3), %0\n paddq %0, %1\n addsd 8(%3), %1\n paddq %1, %0\n")
SEQUENCE(sum_is_copied, "addsd (%3), %0\n movapd %0, %%xmm7\n mulsd 8(%3), %%xmm7\n subsd %%xmm7, %1\n paddq %%xmm7, %0\n")
SEQUENCE(sum_moves, "movapd %1, %%xmm7\n addsd %0, %%xmm7\n movapd %%xmm7, %1\n unpcklpd %0, %1\n")
SEQUENCE(upper_changes, "addsd (%3), %0\n movhpd 8(%3), %0\n mulsd (%3), %0\n unpckhpd %1, %0\n addsd %0, %1\n")
SEQUENCE(lower_changes, "addsd (%3), %0\n movlpd 8(%3), %0\n mulsd (%3), %0\n cvtsi2sdl %k2, %0\n addsd %0, %1\n")
SEQUENCE(loaded, "movsd (%3), %0\n mulsd 8(%3), %0\n addsd %0, %1\n movsd 8(%3), %0\n subsd %0, %1\n")
SEQUENCE(loaded_whole, "movsd (%3), %0\n mulsd 8(%3), %0\n movhpd (%3), %0\n movsd 8(%3), %%xmm7\n addpd %%xmm7, %1\n")
SEQUENCE(zeroed, "pxor %0, %0\n addsd (%3), %0\n pxor %%xmm7, %%xmm7\n cvtsi2sdl %k2, %%xmm7\n addsd %%xmm7, %0\n paddq %0, %1\n")
SEQUENCE(stored, "movsd (%3), %0\n addsd 8(%3), %0\n movsd %0, (%3)\n movsd %1, 8(%3)\n addsd (%3), %1\n movlpd %1, (%3)\n")
SEQUENCE(stored_over, "movsd (%3), %0\n movsd %0, 8(%3)\n addsd 8(%3), %0\n movhpd %0, (%3)\n movsd %0, 8(%3)\n addsd 8(%3), %1\n")
SEQUENCE(others, "addsd (%3), %0\n maxsd 8(%3), %0\n mulsd %0, %1\n sqrtsd %0, %%xmm7\n andpd %%xmm7, %0\n minsd %0, %1\n addss %0, %1\n")
SEQUENCE(compared, "addsd (%3), %0\n ucomisd %0, %1\n ja 1f\n subsd 8(%3), %1\n 1: cmpltsd %1, %0\n cvttsd2si %1, %2\n movq %2, %%xmm7\n paddq %%xmm7, %1\n")
SEQUENCE(jump_between, "movsd (%3), %0\n test %2, %2\n jz 1f\n addsd 8(%3), %0\n test $2, %2\n jz 1f\n mulsd %1, %0\n 1: paddq %0, %1\n")
SEQUENCE(product, "and $31, %2\n 1: movsd (%3), %0\n mulsd 8(%3), %0\n addsd %0, %1\n sub $1, %2\n jns 1b\n")
SEQUENCE(product_kept, "and $31, %2\n 1: movsd (%3), %0\n mulsd 8(%3), %0\n addsd %0, %1\n test $5, %2\n jz 2f\n sub $1, %2\n jns 1b\n 2: paddq %0, %1\n")
SEQUENCE(scaled, "and $31, %2\n 1: movsd (%3), %0\n mulsd %1, %0\n addsd 8(%3), %0\n movsd %0, (%3)\n sub $1, %2\n jns 1b\n")

typedef void sequence(pair *, pair *, uint64_t *, uint64_t);
static sequence *const ALL[] = {
    load_double, load_single, load_quad, convert_double, convert_single, convert_memory, halves, high_first,
    low_of_full, word, single_in_double, twice, zero_twice, zero_is_read, part_is_read, back_again,
    jump_after_zero, jump_after_load, jump_after_half, loop, loop_with_jump,
    from_memory, from_registers, sum_is_whole, sum_is_copied, sum_moves, upper_changes, lower_changes, loaded,
    loaded_whole, zeroed, stored, stored_over, others, compared, jump_between, product, product_kept, scaled,
};

int main(void)
{
    for (int round = 0; round < 2000; round++) {
        for (unsigned i = 0; i < sizeof ALL / sizeof *ALL; i++) {
            // No NaNs, of which sums may make others: exponents in the middle.
            uint64_t numbers[2] = {random_bits() >> 3 | 1ull << 61, random_bits() >> 3 | 1ull << 61};
            pair a = {random_bits(), random_bits()}, b = {random_bits(), random_bits()};
            ALL[i](&a, &b, numbers, round % 3 ? random_bits() : 0);
            add(a[0]), add(a[1]), add(b[0]), add(b[1]), add(numbers[0]), add(numbers[1]);
        }
    }
    printf("registers %016llx\n", (unsigned long long)hash);
    return 0;
}
