// SPDX-License-Identifier: GPL-2.0-or-later
//
// What the tool's parts share.
#ifndef REUSE_TOOL_H
#define REUSE_TOOL_H

#include <stdint.h>

#include "pub_tool_basics.h"
#include "pub_tool_tooliface.h"

// Entries of the buffer into which instrumented code writes: an address, or with the highest bit set
// a line of instructions and how many were fetched from it. 0 is an access that did not happen.
// Small, so that it stays in a first-level cache beside the program's data.
enum { BUFFER = 512, BLOCK_MOST = 512 };
#define FETCH (1ull << 63)
#define FETCH_COUNT_SHIFT 48
#define LINE_SHIFT 6

extern uint64_t buffer_entries[BUFFER + 2 * BLOCK_MOST];
// Where the next entry goes.
extern uint64_t *buffer_next;
// The area of the running thread's stack.
extern uint64_t stack_low, stack_bytes;

// Whether the program has had a handler for what a load or a store may raise: it goes on where the handler came in.
extern Bool handles_faults;

// Options
extern Bool opt_stack, opt_fetches;

// Empties the buffer; called from instrumented code.
void buffer_flush(void);

// Writes the lines of the addresses among `count` entries; returns how many. There is room for `count`.
uint32_t all_lines(const uint64_t *entries, uint32_t count, uint64_t *lines);
// Writes those that are in the sample, and counts all of them; returns how many it wrote. There is room for
// LINES_AT_ONCE more than `count`.
enum { LINES_AT_ONCE = 8 };
uint32_t sample_lines(const uint64_t *entries, uint32_t count, uint64_t threshold, uint64_t *lines, uint32_t *all);

// For each temporary of a block: what it is an offset from, and whether that comes from the stack pointer.
struct origins {
    IRTemp *base;
    Long *offset;
    Bool *from_stack;
};
struct origins origins_new(const IRTypeEnv *types);
void origins_free(struct origins *of);
// What `temp` is made of.
void follow(struct origins *of, IRTemp temp, const IRExpr *value, const VexGuestLayout *layout);

// For each temporary of a block: how many times its statements use it (uses.c), and how many of these store it to
// memory. VG_(free) it.
struct uses {
    UInt all, stored;
};
struct uses *uses_count(const IRSB *in);
// Calls `each` for every temporary that is used.
void uses_of_value(const IRExpr *value, void (*each)(IRTemp, void *), void *with);
void uses_of_statement(const IRStmt *statement, void (*each)(IRTemp, void *), void *with);

// The value as a new temporary of the block.
IRExpr *assign(IRSB *out, IRType type, IRExpr *value);

#ifdef VGA_amd64
// The block whose loop is asked once whether it ends within the block (loops.c).
IRSB *look_ahead(IRSB *in, const VexGuestLayout *layout);

// Fused multiplications by the processor (fma.c). Whether it has them; before any code is translated.
void find_fma(void);
// The block with one call for each vector of them.
IRSB *join_fused(IRSB *in, const VexGuestLayout *layout);

// The block in which numbers in vector registers are computed with as such (numbers.c).
IRSB *keep_numbers(IRSB *in, const VexGuestLayout *layout);

// The block in which a number and the zeros around it are put into a vector register at once (registers.c).
IRSB *join_writes(IRSB *in, const VexGuestLayout *layout);
#endif

IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout, const VexGuestExtents *extents,
                 const VexArchInfo *arch, IRType guest_word, IRType host_word);

#endif
