// SPDX-License-Identifier: GPL-2.0-or-later
//
// Fewer and wider writes to the guest's state. VEX loads a number into a vector register by zeroing the register in
// the state, writing the number into its low part, and reading the whole to compute with it: the processor cannot
// hand two narrow writes on to a wide read, which has to wait until they have left the store buffer. Here the zeros and
// the number become one write of the whole, and the block's later reads take its value. Vectors that nobody reads
// before the next write, and writes of what is there already, are left out, too.
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"

#include "tool.h"

enum { VECTOR_BYTES = 16 };

// What the block knows of the state from an offset on.
struct place {
    const IRExpr *value; // what was put there last, and is there still; NULL: not known
    Int bytes;
    Int unread;          // the statement that put it, while only later puts have happened to it...
    UInt reads;          // ... and `state.reads` was this
};

struct state {
    struct place *at;
    Int bytes;
    // Counted up where all of the state may be read.
    UInt reads;
};

static Bool is_zero_vector(const IRExpr *atom)
{
    return atom->tag == Iex_Const && atom->Iex.Const.con->tag == Ico_V128 && atom->Iex.Const.con->Ico.V128 == 0;
}

static Bool same_atom(const IRExpr *one, const IRExpr *other)
{
    if (one->tag != other->tag)
        return False;
    return one->tag == Iex_RdTmp ? one->Iex.RdTmp.tmp == other->Iex.RdTmp.tmp
                                 : eqIRConst(one->Iex.Const.con, other->Iex.Const.con);
}

// Calls `what` for each place that overlaps the bytes.
static void overlapping(struct state *s, Int offset, Int bytes, void (*what)(struct place *))
{
    const Int widest = 32, from = offset < widest ? 0 : offset - widest + 1;
    for (Int at = from; at < offset + bytes && at < s->bytes; at++)
        if (at + s->at[at].bytes > offset)
            what(&s->at[at]);
}

static void overwritten(struct place *place) { *place = (struct place){0}; }
static void read(struct place *place) { place->unread = -1; }

static IRExpr *assign(IRSB *out, IRType type, IRExpr *value)
{
    const IRTemp temp = newIRTemp(out->tyenv, type);
    addStmtToIRSB(out, IRStmt_WrTmp(temp, value));
    return IRExpr_RdTmp(temp);
}

// The number with zeros above it; NULL for a type that is none.
static IRExpr *widened(IRSB *out, IRExpr *number)
{
    switch (typeOfIRExpr(out->tyenv, number)) {
    case Ity_I32: return assign(out, Ity_V128, IRExpr_Unop(Iop_32UtoV128, number));
    case Ity_I64: return assign(out, Ity_V128, IRExpr_Unop(Iop_64UtoV128, number));
    case Ity_F64: return widened(out, assign(out, Ity_I64, IRExpr_Unop(Iop_ReinterpF64asI64, number)));
    default: return NULL;
    }
}

static void put(struct state *s, IRSB *out, IRStmt *statement)
{
    const Int offset = statement->Ist.Put.offset;
    IRExpr *data = statement->Ist.Put.data;
    struct place *place = &s->at[offset];
    if (place->value && same_atom(place->value, data))
        return;
    if (place->value && is_zero_vector(place->value)) {
        IRExpr *whole = widened(out, data);
        if (whole)
            statement = IRStmt_Put(offset, data = whole);
    }
    const IRType type = typeOfIRExpr(out->tyenv, data);
    if (type == Ity_V128 && place->bytes == VECTOR_BYTES && place->unread >= 0 && place->reads == s->reads)
        out->stmts[place->unread] = IRStmt_NoOp();
    overlapping(s, offset, sizeofIRType(type), overwritten);
    *place = (struct place){.value = data, .bytes = sizeofIRType(type), .unread = out->stmts_used, .reads = s->reads};
    addStmtToIRSB(out, statement);
}

static IRStmt *get(struct state *s, IRStmt *statement)
{
    const IRExpr *value = statement->Ist.WrTmp.data;
    const struct place *place = &s->at[value->Iex.Get.offset];
    if (value->Iex.Get.ty == Ity_V128 && place->value && place->bytes == VECTOR_BYTES && place->value->tag == Iex_RdTmp)
        return IRStmt_WrTmp(statement->Ist.WrTmp.tmp, IRExpr_RdTmp(place->value->Iex.RdTmp.tmp));
    overlapping(s, value->Iex.Get.offset, sizeofIRType(value->Iex.Get.ty), read);
    return statement;
}

IRSB *join_writes(IRSB *in, const VexGuestLayout *layout)
{
    IRSB *out = deepCopyIRSBExceptStmts(in);
    struct state s = {
        .at = VG_(calloc)("reuse.registers", layout->total_sizeB, sizeof *s.at),
        .bytes = layout->total_sizeB,
    };
    for (Int i = 0; i < in->stmts_used; i++) {
        IRStmt *statement = in->stmts[i];
        switch (statement->tag) {
        case Ist_Put:
            put(&s, out, statement);
            continue;
        case Ist_WrTmp:
            if (statement->Ist.WrTmp.data->tag == Iex_Get)
                statement = get(&s, statement);
            else if (statement->Ist.WrTmp.data->tag == Iex_GetI)
                s.reads++;
            break;
        case Ist_PutI:
        case Ist_Dirty:
            s.reads++;
            VG_(memset)(s.at, 0, (SizeT)s.bytes * sizeof *s.at);
            break;
        case Ist_Exit:
            s.reads++;
            break;
        default:
            break;
        }
        addStmtToIRSB(out, statement);
    }
    VG_(free)(s.at);
    return out;
}
