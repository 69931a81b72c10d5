// SPDX-License-Identifier: GPL-2.0-or-later
//
// What is added to the program's code: every access appends its address to a buffer. No access branches or
// has registers saved.
//
// An instruction's accesses to neighbouring bytes are one: wide vectors are taken apart by the front
// end and put together again here, and a read-modify-write touches its line once. An access counts for
// the line of its first byte.
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"

#include "tool.h"

// Below the stack pointer there is what leaf functions keep, and what the instruction at hand just popped.
enum { PENDING = 64, LINE_BYTES = 64, RED_ZONE = 128 };

// An access of the instruction at hand: [offset, offset + size) from `base`, whose atom is `address`.
struct access {
    IRExpr *address, *guard;
    IRTemp base;
    Long offset;
    Int size;
};

struct block {
    IRSB *out;
    IRTemp start;  // the buffer's next entry when the room was looked at, or later
    UInt appended; // entries since then
    UInt room;     // entries for which there was room then
    struct access pending[PENDING];
    UInt pending_count;
    Addr run_line; // instructions fetched from one line
    UInt run_count;
    struct origins origins;
    Int offset_SP;
};

static IRExpr *number(ULong value) { return IRExpr_Const(IRConst_U64(value)); }
static IRExpr *cell(const void *variable) { return number((ULong)(Addr)variable); }

static IRExpr *load(struct block *b, const void *variable)
{
    return assign(b->out, Ity_I64, IRExpr_Load(Iend_LE, Ity_I64, cell(variable)));
}

static void store(struct block *b, const void *variable, IRExpr *value)
{
    addStmtToIRSB(b->out, IRStmt_Store(Iend_LE, cell(variable), value));
}

static IRExpr *binary(struct block *b, IROp op, IRExpr *left, IRExpr *right)
{
    return assign(b->out, Ity_I64, IRExpr_Binop(op, left, right));
}

// Room in the buffer for BLOCK_MOST entries.
static void make_room(struct block *b)
{
    IRDirty *flush = unsafeIRDirty_0_N(0, "buffer_flush", VG_(fnptr_to_fnentry)(&buffer_flush), mkIRExprVec_0());
    flush->guard =
        assign(b->out, Ity_I1, IRExpr_Binop(Iop_CmpLT64U, cell(&buffer_entries[BUFFER]), load(b, &buffer_next)));
    addStmtToIRSB(b->out, IRStmt_Dirty(flush));
    b->start = newIRTemp(b->out->tyenv, Ity_I64);
    addStmtToIRSB(b->out, IRStmt_WrTmp(b->start, IRExpr_Load(Iend_LE, Ity_I64, cell(&buffer_next))));
    b->appended = 0;
    b->room = BLOCK_MOST;
}

static IRExpr *position(struct block *b)
{
    return binary(b, Iop_Add64, IRExpr_RdTmp(b->start), number(8ull * b->appended));
}

// What was appended becomes visible: before each way out of the block.
static void commit(struct block *b)
{
    if (!b->appended)
        return;
    IRExpr *next = position(b);
    store(b, &buffer_next, next);
    // VEX computes what is used twice by one instruction instead of two.
    b->start = next->Iex.RdTmp.tmp;
    b->room -= b->appended;
    b->appended = 0;
}

static void append(struct block *b, IRExpr *entry)
{
    if (b->appended == b->room) {
        commit(b);
        make_room(b);
    }
    addStmtToIRSB(b->out, IRStmt_Store(Iend_LE, position(b), entry));
    b->appended++;
}

// 0 for an address in the running thread's stack, however the code came by it: through a frame pointer, an index, a
// pointer. Both bounds are looked at, as the stack pointer may be elsewhere (coroutines), and a stack may lie in an
// area with other things.
static IRExpr *outside_stack(struct block *b, IRExpr *address)
{
    IRExpr *within = binary(b, Iop_Sub64, address, load(b, &stack_low));
    IRExpr *in_area = assign(b->out, Ity_I1, IRExpr_Binop(Iop_CmpLT64U, within, load(b, &stack_bytes)));
    IRExpr *sp = assign(b->out, Ity_I64, IRExpr_Get(b->offset_SP, Ity_I64));
    IRExpr *lowest = binary(b, Iop_Sub64, sp, number(RED_ZONE));
    IRExpr *below = assign(b->out, Ity_I1, IRExpr_Binop(Iop_CmpLT64U, address, lowest));
    IRExpr *outside = assign(b->out, Ity_I64, IRExpr_ITE(in_area, number(0), address));
    return assign(b->out, Ity_I64, IRExpr_ITE(below, address, outside));
}

// The line of what is `more` bytes into the access.
static void append_access(struct block *b, const struct access *access, Int more)
{
    IRExpr *address = access->address;
    if (more)
        address = binary(b, Iop_Add64, address, number((ULong)more));
    if (access->guard)
        address = assign(b->out, Ity_I64, IRExpr_ITE(access->guard, address, number(0)));
    if (!opt_stack && access->base != IRTemp_INVALID)
        address = outside_stack(b, address);
    append(b, address);
}

// Instructions

static void end_run(struct block *b)
{
    if (!b->run_count)
        return;
    const ULong entry = FETCH | (ULong)b->run_count << FETCH_COUNT_SHIFT | b->run_line;
    b->run_count = 0;
    append(b, number(entry));
}

static void fetch(struct block *b, Addr address, UInt length)
{
    for (Addr line = address >> LINE_SHIFT; line <= (address + length - 1) >> LINE_SHIFT; line++) {
        if (b->run_count && b->run_line != line)
            end_run(b);
        b->run_line = line;
        b->run_count++;
    }
}

static void end_instruction(struct block *b)
{
    for (UInt i = 0; i < b->pending_count; i++) {
        // What is wider than a line are areas that a helper reads or writes.
        for (Int more = 0; more == 0 || more < b->pending[i].size; more += LINE_BYTES)
            append_access(b, &b->pending[i], more);
    }
    b->pending_count = 0;
}

// Accesses

static void add_access(struct block *b, IRExpr *address, Int size, IRExpr *guard)
{
    struct access new = {.address = address, .guard = guard, .base = IRTemp_INVALID, .size = size};
    if (address->tag == Iex_RdTmp) {
        const IRTemp temp = address->Iex.RdTmp.tmp;
        new.base = b->origins.base[temp];
        new.offset = b->origins.offset[temp];
        if (!opt_stack && b->origins.from_stack[new.base])
            return;
    } else {
        tl_assert(address->tag == Iex_Const);
        new.offset = (Long)address->Iex.Const.con->Ico.U64;
    }
    for (UInt i = 0; i < b->pending_count; i++) {
        struct access *old = &b->pending[i];
        const Bool touch = new.offset <= old->offset + old->size && old->offset <= new.offset + new.size;
        if (old->base != new.base || old->guard || guard || !touch)
            continue;
        const Long end = new.offset + new.size > old->offset + old->size ? new.offset + new.size
                                                                         : old->offset + old->size;
        if (new.offset < old->offset) {
            old->address = new.address;
            old->offset = new.offset;
        }
        old->size = (Int)(end - old->offset);
        return;
    }
    if (b->pending_count == PENDING)
        end_instruction(b);
    b->pending[b->pending_count++] = new;
}

struct origins origins_new(const IRTypeEnv *types)
{
    const Int temps = types->types_used;
    struct origins of = {
        .base = VG_(malloc)("reuse.base", (temps + 1) * sizeof *of.base),
        .offset = VG_(calloc)("reuse.offset", temps + 1, sizeof *of.offset),
        .from_stack = VG_(calloc)("reuse.from_stack", temps + 1, sizeof *of.from_stack),
    };
    for (Int temp = 0; temp < temps; temp++)
        of.base[temp] = (IRTemp)temp;
    return of;
}

void origins_free(struct origins *of)
{
    VG_(free)(of->base);
    VG_(free)(of->offset);
    VG_(free)(of->from_stack);
}

void follow(struct origins *of, IRTemp temp, const IRExpr *value, const VexGuestLayout *layout)
{
    if (value->tag == Iex_Get) {
        of->from_stack[temp] = value->Iex.Get.offset == layout->offset_SP;
    } else if (value->tag == Iex_RdTmp) {
        of->base[temp] = of->base[value->Iex.RdTmp.tmp];
        of->offset[temp] = of->offset[value->Iex.RdTmp.tmp];
    } else if (value->tag == Iex_Binop && value->Iex.Binop.arg1->tag == Iex_RdTmp &&
               value->Iex.Binop.arg2->tag == Iex_Const && value->Iex.Binop.arg2->Iex.Const.con->tag == Ico_U64) {
        const IRTemp from = value->Iex.Binop.arg1->Iex.RdTmp.tmp;
        const Long by = (Long)value->Iex.Binop.arg2->Iex.Const.con->Ico.U64;
        const IROp op = value->Iex.Binop.op;
        if (op == Iop_Add64 || op == Iop_Sub64) {
            of->base[temp] = of->base[from];
            of->offset[temp] = of->offset[from] + (op == Iop_Add64 ? by : -by);
        } else if (op == Iop_And64) {
            of->from_stack[temp] = of->from_stack[of->base[from]];
        }
    }
}

static void look_at(struct block *b, const IRTypeEnv *types, const IRStmt *statement, const VexGuestLayout *layout)
{
    switch (statement->tag) {
    case Ist_WrTmp: {
        const IRExpr *value = statement->Ist.WrTmp.data;
        follow(&b->origins, statement->Ist.WrTmp.tmp, value, layout);
        if (value->tag == Iex_Load)
            add_access(b, value->Iex.Load.addr, sizeofIRType(value->Iex.Load.ty), NULL);
        break;
    }
    case Ist_Store:
        add_access(b, statement->Ist.Store.addr, sizeofIRType(typeOfIRExpr(types, statement->Ist.Store.data)), NULL);
        break;
    case Ist_StoreG: {
        const IRStoreG *store = statement->Ist.StoreG.details;
        add_access(b, store->addr, sizeofIRType(typeOfIRExpr(types, store->data)), store->guard);
        break;
    }
    case Ist_LoadG: {
        const IRLoadG *load = statement->Ist.LoadG.details;
        IRType wide = Ity_INVALID, narrow = Ity_INVALID;
        typeOfIRLoadGOp(load->cvt, &wide, &narrow);
        add_access(b, load->addr, sizeofIRType(narrow), load->guard);
        break;
    }
    case Ist_CAS: {
        const IRCAS *cas = statement->Ist.CAS.details;
        const Int size = sizeofIRType(typeOfIRExpr(types, cas->dataLo));
        add_access(b, cas->addr, cas->dataHi ? 2 * size : size, NULL);
        break;
    }
    case Ist_LLSC: {
        const IRExpr *data = statement->Ist.LLSC.storedata;
        const IRType type = data ? typeOfIRExpr(types, data) : typeOfIRTemp(types, statement->Ist.LLSC.result);
        add_access(b, statement->Ist.LLSC.addr, sizeofIRType(type), NULL);
        break;
    }
    case Ist_Dirty: {
        const IRDirty *dirty = statement->Ist.Dirty.details;
        const Bool always = dirty->guard->tag == Iex_Const;
        if (dirty->mFx != Ifx_None)
            add_access(b, dirty->mAddr, dirty->mSize, always ? NULL : dirty->guard);
        break;
    }
    default:
        break;
    }
}

static Bool is_place(const IRStmt *statement, const VexGuestLayout *layout)
{
    return statement->tag == Ist_Put && statement->Ist.Put.offset == layout->offset_IP;
}

// Whether it may read any of the program's registers.
static Bool asks_for_state(const IRStmt *statement)
{
    if (statement->tag != Ist_WrTmp)
        return statement->tag == Ist_Dirty;
    const IRExprTag tag = statement->Ist.WrTmp.data->tag;
    return tag == Iex_Get || tag == Iex_GetI;
}

IRSB *instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout, const VexGuestExtents *extents,
                 const VexArchInfo *arch, IRType guest_word, IRType host_word)
{
    (void)closure, (void)extents, (void)arch;
    if (guest_word != host_word || guest_word != Ity_I64)
        VG_(tool_panic)("only 64-bit programs on 64-bit machines");
#ifdef VGA_amd64
    in = join_writes(keep_numbers(join_fused(look_ahead(in, layout), layout), layout), layout);
#endif
    struct block b = {.out = deepCopyIRSBExceptStmts(in), .origins = origins_new(in->tyenv),
                      .offset_SP = layout->offset_SP};

    Int at = 0;
    for (; at < in->stmts_used && in->stmts[at]->tag != Ist_IMark; at++)
        addStmtToIRSB(b.out, in->stmts[at]);
    make_room(&b);
    IRStmt *place = NULL;
    for (; at < in->stmts_used; at++) {
        IRStmt *statement = in->stmts[at];
        if (!statement || statement->tag == Ist_NoOp)
            continue;
        // Where the program is, is known at every way out. Before each access it matters only to who handles its faults.
        if (is_place(statement, layout) && !handles_faults) {
            place = statement;
            continue;
        }
        if (place && asks_for_state(statement)) {
            addStmtToIRSB(b.out, place);
            place = NULL;
        }
        if (statement->tag == Ist_IMark) {
            end_instruction(&b);
            if (opt_fetches)
                fetch(&b, statement->Ist.IMark.addr, statement->Ist.IMark.len);
        } else if (statement->tag == Ist_Exit) {
            end_instruction(&b);
            end_run(&b);
            // What a block did before an instruction that faults is not counted, whether an exit says so or not.
            if (statement->Ist.Exit.jk != Ijk_SigSEGV)
                commit(&b);
        }
        look_at(&b, in->tyenv, statement, layout);
        addStmtToIRSB(b.out, statement);
    }
    end_instruction(&b);
    end_run(&b);
    commit(&b);
    origins_free(&b.origins);
    return b.out;
}
