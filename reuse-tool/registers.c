// SPDX-License-Identifier: GPL-2.0-or-later
//
// Fewer and wider writes to the guest's state.
//
// VEX loads a number into a vector register by zeroing the register in the state and writing the number into its low
// part. If the whole is read next, the processor cannot hand two narrow writes on to a wide read, which has to wait until
// they have left the store buffer: then the zeros and the number become one write of the whole. If the number is, the
// zeros are written above it alone, as long as they are not there already. Either way the block's later reads take the
// value that was written. Vectors and numbers that nobody reads before the next write are left out; so are writes of
// what is there already.
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"

#include "tool.h"

enum { VECTOR_BYTES = 16, HALF_BYTES = 8 };

// What the block knows of the state from an offset on.
struct place {
    const IRExpr *value; // what was put there last, and is there still; NULL: not known
    Int bytes;
    Int unread;          // the statement that put it, while only later puts have happened to it...
    UInt reads;          // ... and `state.reads` was this
    Bool zeros_above;    // of a zero vector: its upper half had been zero before
};

struct state {
    const IRSB *in;
    struct place *at;
    Int bytes, offset_SP;
    // Counted up where all of the state may be read.
    UInt reads;
    const struct uses *uses;
    // For each temporary of `in`: the statement of the new block that loads it, from 1; 0: none.
    Int *loaded;
    // The number that stands for a temporary which is only stored; NULL: none does.
    IRExpr **number;
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

// Whether the next to read the register after the statement reads more than the number in its lower half.
static Bool whole_is_next(const IRSB *in, Int at, Int offset)
{
    for (Int i = at + 1; i < in->stmts_used; i++) {
        const IRStmt *statement = in->stmts[i];
        if (statement->tag == Ist_Dirty || statement->tag == Ist_PutI)
            return True;
        if (statement->tag == Ist_Put && statement->Ist.Put.offset == offset)
            return False;
        if (statement->tag != Ist_WrTmp)
            continue;
        const IRExpr *value = statement->Ist.WrTmp.data;
        if (value->tag == Iex_GetI)
            return True;
        if (value->tag != Iex_Get)
            continue;
        const Int from = value->Iex.Get.offset, bytes = sizeofIRType(value->Iex.Get.ty);
        if (from < offset + HALF_BYTES && offset < from + bytes)
            return from != offset || bytes > HALF_BYTES;
    }
    return False;
}

// The number as one: what was loaded only to be put is loaded as one.
static IRExpr *as_number(struct state *s, IRSB *out, IRExpr *data)
{
    if (data->tag != Iex_RdTmp || typeOfIRExpr(out->tyenv, data) != Ity_I64)
        return data;
    const IRTemp temp = data->Iex.RdTmp.tmp;
    if (!s->loaded[temp] || s->uses[temp].all != 1)
        return data;
    IRStmt **load = &out->stmts[s->loaded[temp] - 1];
    const IRTemp number = newIRTemp(out->tyenv, Ity_F64);
    *load = IRStmt_WrTmp(number, IRExpr_Load(Iend_LE, Ity_F64, (*load)->Ist.WrTmp.data->Iex.Load.addr));
    return IRExpr_RdTmp(number);
}

static Bool is_unread(const struct state *s, const struct place *place)
{
    return place->bytes && place->unread >= 0 && place->reads == s->reads;
}

// Whether somebody looks at the register when a load or a store faults: who handles it, or Valgrind, that may have to
// grow the stack. (Of vectors and numbers VEX, too, writes only the last before a way out.)
static Bool is_seen(const struct state *s, IRType type, Int offset)
{
    return type != Ity_V128 && type != Ity_F64 && (handles_faults || offset == s->offset_SP);
}

static Bool is_zero_half(const struct place *place)
{
    return place->value && place->bytes == HALF_BYTES && place->value->tag == Iex_Const &&
           place->value->Iex.Const.con->tag == Ico_U64 && place->value->Iex.Const.con->Ico.U64 == 0;
}

// The data are at the offset from now on, by the statement; by none: negative.
static void is_there(struct state *s, IRType type, Int offset, const IRExpr *data, Int statement)
{
    const Bool zeros = offset + HALF_BYTES < s->bytes && is_zero_half(&s->at[offset + HALF_BYTES]);
    overlapping(s, offset, sizeofIRType(type), overwritten);
    s->at[offset] = (struct place){.value = data, .bytes = sizeofIRType(type), .unread = statement,
                                   .reads = s->reads, .zeros_above = zeros};
}

// Zeros in the upper half of the register instead of the zero vector in it.
static void narrow_zeros(struct state *s, IRSB *out, Int offset)
{
    const struct place was = s->at[offset];
    IRExpr *zeros = IRExpr_Const(IRConst_U64(0));
    is_there(s, Ity_I64, offset + HALF_BYTES, zeros, -1);
    if (!is_unread(s, &was))
        return;
    out->stmts[was.unread] = IRStmt_NoOp();
    if (!was.zeros_above)
        addStmtToIRSB(out, IRStmt_Put(offset + HALF_BYTES, zeros));
}

static void put(struct state *s, IRSB *out, Int at)
{
    IRStmt *statement = s->in->stmts[at];
    const Int offset = statement->Ist.Put.offset;
    IRExpr *data = statement->Ist.Put.data;
    struct place *place = &s->at[offset];
    if (place->value && same_atom(place->value, data))
        return;
    if (place->value && is_zero_vector(place->value)) {
        const IRType type = typeOfIRExpr(out->tyenv, data);
        IRExpr *whole;
        if ((type == Ity_I64 || type == Ity_F64) && !whole_is_next(s->in, at, offset)) {
            narrow_zeros(s, out, offset);
            statement = IRStmt_Put(offset, data = as_number(s, out, data));
        } else if ((whole = widened(out, data))) {
            statement = IRStmt_Put(offset, data = whole);
        }
    }
    const IRType type = typeOfIRExpr(out->tyenv, data);
    if (!is_seen(s, type, offset) && place->bytes <= sizeofIRType(type) && is_unread(s, place))
        out->stmts[place->unread] = IRStmt_NoOp();
    is_there(s, type, offset, data, out->stmts_used);
    addStmtToIRSB(out, statement);
}

static void get(struct state *s, IRSB *out, IRStmt *statement)
{
    const IRTemp temp = statement->Ist.WrTmp.tmp;
    const Int offset = statement->Ist.WrTmp.data->Iex.Get.offset;
    const IRType type = statement->Ist.WrTmp.data->Iex.Get.ty;
    const struct place *place = &s->at[offset];
    if (place->value && place->value->tag == Iex_RdTmp) {
        IRExpr *value = IRExpr_RdTmp(place->value->Iex.RdTmp.tmp);
        const IRType of = typeOfIRExpr(out->tyenv, value);
        if (of == type && (type == Ity_V128 || type == Ity_F64)) {
            addStmtToIRSB(out, IRStmt_WrTmp(temp, value));
            return;
        }
        if (of == Ity_F64 && type == Ity_I64 && s->uses[temp].all == s->uses[temp].stored) {
            s->number[temp] = value;
            return;
        }
    }
    overlapping(s, offset, sizeofIRType(type), read);
    addStmtToIRSB(out, statement);
}

IRSB *join_writes(IRSB *in, const VexGuestLayout *layout)
{
    IRSB *out = deepCopyIRSBExceptStmts(in);
    const SizeT temps = (SizeT)in->tyenv->types_used + 1;
    struct state s = {
        .in = in,
        .at = VG_(calloc)("reuse.registers", layout->total_sizeB, sizeof *s.at),
        .bytes = layout->total_sizeB,
        .offset_SP = layout->offset_SP,
        .uses = uses_count(in),
        .loaded = VG_(calloc)("reuse.loaded", temps, sizeof *s.loaded),
        .number = VG_(calloc)("reuse.number", temps, sizeof *s.number),
    };
    for (Int i = 0; i < in->stmts_used; i++) {
        IRStmt *statement = in->stmts[i];
        switch (statement->tag) {
        case Ist_Put:
            put(&s, out, i);
            continue;
        case Ist_WrTmp: {
            const IRExpr *value = statement->Ist.WrTmp.data;
            if (value->tag == Iex_Get) {
                get(&s, out, statement);
                continue;
            }
            if (value->tag == Iex_GetI)
                s.reads++;
            else if (value->tag == Iex_Load && value->Iex.Load.end == Iend_LE)
                s.loaded[statement->Ist.WrTmp.tmp] = out->stmts_used + 1;
            break;
        }
        case Ist_Store:
            if (statement->Ist.Store.data->tag == Iex_RdTmp && s.number[statement->Ist.Store.data->Iex.RdTmp.tmp])
                statement = IRStmt_Store(statement->Ist.Store.end, statement->Ist.Store.addr,
                                         s.number[statement->Ist.Store.data->Iex.RdTmp.tmp]);
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
    void *all[] = {s.at, (void *)s.uses, s.loaded, s.number};
    for (UInt i = 0; i < sizeof all / sizeof *all; i++)
        VG_(free)(all[i]);
    return out;
}
