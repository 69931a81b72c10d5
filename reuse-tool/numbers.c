// SPDX-License-Identifier: GPL-2.0-or-later
//
// Numbers as numbers. An instruction such as mulsd computes with the lower half of a vector register and leaves the
// upper one alone. VEX makes it an operation of whole vectors, and for what it loads from memory a vector, by a push, a
// load and an addition to the stack pointer. Here the number alone is loaded, computed with by the same instruction
// of the processor, and put into the lower half, where the upper one is to stay as it is.
//
// That is done where a block does not need a result as a whole vector, so that nothing is computed twice and no number
// is loaded twice.
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"

#include "tool.h"

enum { HALF_BYTES = 8, VECTOR_BYTES = 16 };

enum kind {
    OTHER,
    REGISTER, // read from a register as a whole
    LOADED,   // a number from memory, with zeros above it
    COMPUTED, // from the number in a register
};

// What is known of a temporary that is a vector.
struct vector {
    enum kind kind;
    // The register whose upper half its upper half is, as of a time.
    Int home;
    UInt upper_since;
    Bool whole; // somebody reads more of it than the number: then it is neither LOADED nor COMPUTED
    Bool lower; // somebody reads the number; of a load: it is loaded as a number
    IRTemp number; // once it is there
};

struct block {
    const IRSB *in;
    Bool *lower_put; // for each statement: it is a put that can put the number alone, as the upper half is there
    struct uses *uses;
    const IRExpr **defined; // by what, for each temporary
    struct vector *vectors;
    UInt *upper_since; // for each offset of the state: when the upper half of a register there was last changed
    Int state_bytes;
    UInt now;
    Bool again;
};

// The operation on numbers that does to the lower half what this one on vectors does.
static IROp on_numbers(const IRExpr *value)
{
    if (value->tag != Iex_Binop || value->Iex.Binop.arg1->tag != Iex_RdTmp || value->Iex.Binop.arg2->tag != Iex_RdTmp)
        return Iop_INVALID;
    switch (value->Iex.Binop.op) {
    case Iop_Add64F0x2: return Iop_AddF64;
    case Iop_Sub64F0x2: return Iop_SubF64;
    case Iop_Mul64F0x2: return Iop_MulF64;
    case Iop_Div64F0x2: return Iop_DivF64;
    default: return Iop_INVALID;
    }
}

// What can stay a number

static void needs_whole(IRTemp temp, void *block)
{
    struct block *b = block;
    struct vector *vector = &b->vectors[temp];
    if ((vector->kind == LOADED || vector->kind == COMPUTED) && !vector->whole)
        b->again = True;
    vector->whole = True;
}

static void upper_changed(struct block *b, Int offset, Int bytes)
{
    const Int from = offset - VECTOR_BYTES + 1, to = offset + bytes - HALF_BYTES;
    for (Int at = from < 0 ? 0 : from; at < to && at < b->state_bytes; at++)
        b->upper_since[at] = b->now;
}

static const struct vector *vector_of(const struct block *b, const IRExpr *atom)
{
    return &b->vectors[atom->Iex.RdTmp.tmp];
}

static void look_at_value(struct block *b, IRTemp temp, const IRExpr *value)
{
    struct vector *vector = &b->vectors[temp];
    vector->kind = OTHER;
    vector->lower = False;
    if (value->tag == Iex_Get && value->Iex.Get.ty == Ity_V128) {
        vector->kind = REGISTER;
        vector->home = value->Iex.Get.offset;
        vector->upper_since = b->upper_since[vector->home];
    } else if (value->tag == Iex_Unop && value->Iex.Unop.op == Iop_64UtoV128 && value->Iex.Unop.arg->tag == Iex_RdTmp) {
        const IRTemp from = value->Iex.Unop.arg->Iex.RdTmp.tmp;
        const IRExpr *load = b->defined[from];
        if (!vector->whole && b->uses[from].all == 1 && load && load->tag == Iex_Load && load->Iex.Load.end == Iend_LE) {
            vector->kind = LOADED;
            b->vectors[from].lower = True;
        }
    } else if (on_numbers(value) != Iop_INVALID && !vector->whole) {
        const struct vector *left = vector_of(b, value->Iex.Binop.arg1), *right = vector_of(b, value->Iex.Binop.arg2);
        if ((left->kind == REGISTER || left->kind == COMPUTED) && right->kind != OTHER) {
            vector->kind = COMPUTED;
            vector->home = left->home;
            vector->upper_since = left->upper_since;
            b->vectors[value->Iex.Binop.arg1->Iex.RdTmp.tmp].lower = True;
            b->vectors[value->Iex.Binop.arg2->Iex.RdTmp.tmp].lower = True;
            return;
        }
    }
    if (vector->kind != LOADED)
        uses_of_value(value, needs_whole, b);
}

static Bool upper_is_there(const struct block *b, const IRStmt *put)
{
    const IRExpr *data = put->Ist.Put.data;
    if (data->tag != Iex_RdTmp)
        return False;
    const struct vector *vector = vector_of(b, data);
    return vector->kind == COMPUTED && !vector->whole && vector->home == put->Ist.Put.offset &&
           vector->upper_since == b->upper_since[vector->home];
}

static void look_at(struct block *b, Int at)
{
    const IRStmt *statement = b->in->stmts[at];
    b->now++;
    switch (statement->tag) {
    case Ist_WrTmp:
        look_at_value(b, statement->Ist.WrTmp.tmp, statement->Ist.WrTmp.data);
        break;
    case Ist_Put:
        b->lower_put[at] = upper_is_there(b, statement);
        if (b->lower_put[at])
            break;
        uses_of_statement(statement, needs_whole, b);
        upper_changed(b, statement->Ist.Put.offset, sizeofIRType(typeOfIRExpr(b->in->tyenv, statement->Ist.Put.data)));
        break;
    case Ist_PutI:
    case Ist_Dirty:
        uses_of_statement(statement, needs_whole, b);
        upper_changed(b, 0, b->state_bytes + VECTOR_BYTES);
        break;
    default:
        uses_of_statement(statement, needs_whole, b);
        break;
    }
}

// Until nothing that is kept as a number is read as a whole.
static void find_numbers(struct block *b)
{
    do {
        b->again = False;
        for (Int i = 0; i < b->in->stmts_used; i++)
            look_at(b, i);
        uses_of_value(b->in->next, needs_whole, b);
    } while (b->again);
}

// The new block

static IRTemp assign_number(IRSB *out, IRExpr *number) { return assign(out, Ity_F64, number)->Iex.RdTmp.tmp; }

static IRExpr *number_of(const struct block *b, const IRExpr *atom)
{
    return IRExpr_RdTmp(vector_of(b, atom)->number);
}

static void rewrite_value(struct block *b, IRSB *out, IRStmt *statement)
{
    const IRExpr *value = statement->Ist.WrTmp.data;
    struct vector *vector = &b->vectors[statement->Ist.WrTmp.tmp];
    switch (vector->kind) {
    case OTHER:
        if (vector->lower)
            vector->number = assign_number(out, IRExpr_Load(Iend_LE, Ity_F64, value->Iex.Load.addr));
        else
            addStmtToIRSB(out, statement);
        break;
    case REGISTER:
        if (vector->whole)
            addStmtToIRSB(out, statement);
        if (vector->lower)
            vector->number = assign_number(out, IRExpr_Get(value->Iex.Get.offset, Ity_F64));
        break;
    case LOADED:
        vector->number = vector_of(b, value->Iex.Unop.arg)->number;
        break;
    case COMPUTED:
        // It is rounded as the processor is set, by operations on numbers as by those on vectors.
        vector->number = assign_number(out, IRExpr_Triop(on_numbers(value), IRExpr_Const(IRConst_U32(Irrm_NEAREST)),
                                                  number_of(b, value->Iex.Binop.arg1),
                                                  number_of(b, value->Iex.Binop.arg2)));
        break;
    }
}

IRSB *keep_numbers(IRSB *in, const VexGuestLayout *layout)
{
    Bool any = False;
    for (Int i = 0; i < in->stmts_used && !any; i++)
        any = in->stmts[i]->tag == Ist_WrTmp && on_numbers(in->stmts[i]->Ist.WrTmp.data) != Iop_INVALID;
    if (!any)
        return in;
    const SizeT temps = (SizeT)in->tyenv->types_used + 1;
    struct block b = {
        .in = in,
        .lower_put = VG_(calloc)("reuse.lower_put", (SizeT)in->stmts_used + 1, sizeof *b.lower_put),
        .uses = uses_count(in),
        .defined = VG_(calloc)("reuse.defined", temps, sizeof *b.defined),
        .vectors = VG_(calloc)("reuse.vectors", temps, sizeof *b.vectors),
        .upper_since = VG_(calloc)("reuse.upper_since", layout->total_sizeB, sizeof *b.upper_since),
        .state_bytes = layout->total_sizeB,
    };
    for (Int i = 0; i < in->stmts_used; i++)
        if (in->stmts[i]->tag == Ist_WrTmp)
            b.defined[in->stmts[i]->Ist.WrTmp.tmp] = in->stmts[i]->Ist.WrTmp.data;
    find_numbers(&b);

    IRSB *out = deepCopyIRSBExceptStmts(in);
    for (Int i = 0; i < in->stmts_used; i++) {
        IRStmt *statement = in->stmts[i];
        if (statement->tag == Ist_WrTmp)
            rewrite_value(&b, out, statement);
        else if (b.lower_put[i])
            addStmtToIRSB(out, IRStmt_Put(statement->Ist.Put.offset, number_of(&b, statement->Ist.Put.data)));
        else
            addStmtToIRSB(out, statement);
    }
    void *all[] = {b.lower_put, b.uses, b.defined, b.vectors, b.upper_since};
    for (UInt i = 0; i < sizeof all / sizeof *all; i++)
        VG_(free)(all[i]);
    return out;
}
