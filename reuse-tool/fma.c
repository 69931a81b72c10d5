// SPDX-License-Identifier: GPL-2.0-or-later
//
// Fused multiplications by the processor's own instruction. VEX calls a function for x * y + z of every number of a
// vector, which puts the result together from several roundings, in some 30 ns. Two things take its place: one call
// for a vector (join_fused), and by the linker (--wrap) these functions for single numbers; where the processor
// lacks the instruction they hand on to VEX's. All round to nearest.
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"

#include "tool.h"

static Bool has_fma;

void find_fma(void)
{
    has_fma = __builtin_cpu_supports("fma") != 0;
}

// In assembly, so that nothing around it needs the instruction's extension.
#define FUSED(NAME, TYPE, INSTRUCTION)                                          \
    void __real_##NAME(TYPE *result, TYPE *x, TYPE *y, TYPE *z);                \
    void __wrap_##NAME(TYPE *result, TYPE *x, TYPE *y, TYPE *z);                \
    void __wrap_##NAME(TYPE *result, TYPE *x, TYPE *y, TYPE *z)                 \
    {                                                                           \
        if (UNLIKELY(!has_fma)) {                                               \
            __real_##NAME(result, x, y, z);                                     \
            return;                                                             \
        }                                                                       \
        TYPE fused = *x;                                                        \
        __asm__(INSTRUCTION " %2, %1, %0" : "+x"(fused) : "x"(*y), "m"(*z));    \
        *result = fused;                                                        \
    }

FUSED(h_generic_calc_MAddF64, double, "vfmadd213sd")
FUSED(h_generic_calc_MAddF32, float, "vfmadd213ss")

// Vectors

enum { VECTOR_BYTES = 32, LANES_MOST = VECTOR_BYTES / sizeof(float), ROLES = 3 };

typedef UChar half __attribute__((vector_size(VECTOR_BYTES / 2), aligned(1)));

// The vector at `result` of the guest's state becomes x * y + z. These are there, too, but for the one in memory.
#define FUSED_VECTOR(NAME, INSTRUCTION, HALVES, IN_MEMORY)                                              \
    static void NAME(UChar *state, ULong x, ULong y, ULong z, ULong result)                             \
    {                                                                                                   \
        const half *const at_x = (const half *)((IN_MEMORY) == 0 ? (UChar *)x : state + x),             \
                   *const at_y = (const half *)((IN_MEMORY) == 1 ? (UChar *)y : state + y),             \
                   *const at_z = (const half *)((IN_MEMORY) == 2 ? (UChar *)z : state + z);             \
        half fused[HALVES];                                                                             \
        for (Int i = 0; i < (HALVES); i++) {                                                            \
            fused[i] = at_x[i];                                                                         \
            __asm__(INSTRUCTION " %2, %1, %0" : "+x"(fused[i]) : "x"(at_y[i]), "m"(at_z[i]));           \
        }                                                                                               \
        for (Int i = 0; i < (HALVES); i++)                                                              \
            ((half *)(state + result))[i] = fused[i];                                                   \
    }
#define FUSED_VECTORS(NAME, INSTRUCTION, HALVES)        \
    FUSED_VECTOR(NAME##_x, INSTRUCTION, HALVES, 0)      \
    FUSED_VECTOR(NAME##_y, INSTRUCTION, HALVES, 1)      \
    FUSED_VECTOR(NAME##_z, INSTRUCTION, HALVES, 2)      \
    FUSED_VECTOR(NAME##_none, INSTRUCTION, HALVES, 3)

FUSED_VECTORS(f64x2, "vfmadd213pd", 1)
FUSED_VECTORS(f64x4, "vfmadd213pd", 2)
FUSED_VECTORS(f32x4, "vfmadd213ps", 1)
FUSED_VECTORS(f32x8, "vfmadd213ps", 2)

typedef void vector_function(UChar *state, ULong x, ULong y, ULong z, ULong result);

// By the numbers' type (double, float), the halves, and which operand is in memory.
static vector_function *const VECTOR_FUNCTION[2][2][ROLES + 1] = {
    {{f64x2_x, f64x2_y, f64x2_z, f64x2_none}, {f64x4_x, f64x4_y, f64x4_z, f64x4_none}},
    {{f32x4_x, f32x4_y, f32x4_z, f32x4_none}, {f32x8_x, f32x8_y, f32x8_z, f32x8_none}},
};

// What is known of a block's temporaries at the statement at hand. Times are counted in statements, from 1.
struct known {
    struct origins origins;
    // Whose result of the vector at hand a temporary is, from 1; 0: none.
    UChar *lane_of;
    // Where in the guest's state the temporary's value was found or left, and when; 0: never.
    Int *place;
    UInt *placed;
    // For each byte of the state, when it was written.
    UInt *written;
    Int state_bytes;
    // Where in memory a temporary was loaded from, and when; what was loaded before `loads_from` does not count.
    IRExpr **address;
    UInt *loaded, loads_from;
};

// The statements [first, end) of one instruction that compute a vector of fused multiplications and put it into the
// guest's state.
struct group {
    Int first, last, end; // the first and last multiplication, and behind what is done with the results
    Int lanes, size;      // numbers, and bytes of each
    Int result;           // offset in the state
};

static Bool is_fused(const IRStmt *statement)
{
    return statement->tag == Ist_WrTmp && statement->Ist.WrTmp.data->tag == Iex_Qop &&
           (statement->Ist.WrTmp.data->Iex.Qop.details->op == Iop_MAddF64 ||
            statement->Ist.WrTmp.data->Iex.Qop.details->op == Iop_MAddF32);
}

static UChar lane(const struct known *k, const IRExpr *atom)
{
    return atom->tag == Iex_RdTmp ? k->lane_of[atom->Iex.RdTmp.tmp] : 0;
}

// What the statement does with results: a copy, or a put.
static Bool is_late(const struct known *k, const IRStmt *statement)
{
    return (statement->tag == Ist_WrTmp && lane(k, statement->Ist.WrTmp.data)) ||
           (statement->tag == Ist_Put && lane(k, statement->Ist.Put.data));
}

static void state_written(struct known *k, Int from, Int bytes, UInt now)
{
    for (Int at = from; at < from + bytes && at < k->state_bytes; at++)
        k->written[at] = now;
}

static void learn(struct known *k, const IRSB *in, Int at, const VexGuestLayout *layout)
{
    const IRStmt *statement = in->stmts[at];
    const UInt now = (UInt)at + 1;
    switch (statement->tag) {
    case Ist_WrTmp: {
        const IRTemp temp = statement->Ist.WrTmp.tmp;
        const IRExpr *value = statement->Ist.WrTmp.data;
        follow(&k->origins, temp, value, layout);
        if (value->tag == Iex_Get) {
            k->place[temp] = value->Iex.Get.offset;
            k->placed[temp] = now;
        } else if (value->tag == Iex_RdTmp) {
            k->place[temp] = k->place[value->Iex.RdTmp.tmp];
            k->placed[temp] = k->placed[value->Iex.RdTmp.tmp];
        } else if (value->tag == Iex_Load && value->Iex.Load.end == Iend_LE) {
            k->address[temp] = value->Iex.Load.addr;
            k->loaded[temp] = now;
        }
        break;
    }
    case Ist_Put:
        state_written(k, statement->Ist.Put.offset,
                      sizeofIRType(typeOfIRExpr(in->tyenv, statement->Ist.Put.data)), now);
        if (statement->Ist.Put.data->tag == Iex_RdTmp) {
            k->place[statement->Ist.Put.data->Iex.RdTmp.tmp] = statement->Ist.Put.offset;
            k->placed[statement->Ist.Put.data->Iex.RdTmp.tmp] = now;
        }
        break;
    case Ist_IMark:
        // What an earlier instruction loaded is its access, not this one's, too.
        k->loads_from = now;
        break;
    case Ist_NoOp:
    case Ist_AbiHint:
    case Ist_Exit:
        break;
    case Ist_Dirty:
    case Ist_PutI:
        state_written(k, 0, k->state_bytes, now);
        k->loads_from = now;
        break;
    default:
        k->loads_from = now;
        break;
    }
}

// Whether the statement can be moved before those that use the results.
static Bool is_independent(const struct known *k, const IRStmt *statement)
{
    if (statement->tag == Ist_NoOp)
        return True;
    if (statement->tag != Ist_WrTmp)
        return False;
    const IRExpr *value = statement->Ist.WrTmp.data;
    switch (value->tag) {
    case Iex_Const:
    case Iex_Get:
        return True;
    case Iex_RdTmp:
        return !lane(k, value);
    case Iex_Load:
        return !lane(k, value->Iex.Load.addr);
    case Iex_Unop:
        return !lane(k, value->Iex.Unop.arg);
    case Iex_Binop:
        return !lane(k, value->Iex.Binop.arg1) && !lane(k, value->Iex.Binop.arg2);
    case Iex_Qop:
        return is_fused(statement) && !lane(k, value->Iex.Qop.details->arg2) &&
               !lane(k, value->Iex.Qop.details->arg3) && !lane(k, value->Iex.Qop.details->arg4);
    default:
        return False;
    }
}

// A group in [from, to), whose results all go into neighbouring places of the state, in order, with nothing but the
// operands between, none of which is what a result was put into before. Fills `lane_of`.
static Bool find_group(struct known *k, const IRSB *in, Int from, Int to, struct group *found)
{
    *found = (struct group){.first = to};
    for (Int i = from; i < to; i++) {
        if (!is_fused(in->stmts[i]))
            continue;
        const IRTemp result = in->stmts[i]->Ist.WrTmp.tmp;
        const Int size = sizeofIRType(typeOfIRTemp(in->tyenv, result));
        if (!found->lanes)
            *found = (struct group){.first = i, .size = size};
        if (size != found->size || found->lanes == LANES_MOST)
            return False;
        found->last = i;
        k->lane_of[result] = (UChar)++found->lanes;
    }
    const Int bytes = found->lanes * found->size;
    if (bytes != VECTOR_BYTES && bytes != VECTOR_BYTES / 2)
        return False;

    Int puts = 0;
    for (found->end = found->first; found->end < to; found->end++) {
        const IRStmt *statement = in->stmts[found->end];
        if (statement->tag == Ist_Put && lane(k, statement->Ist.Put.data)) {
            if (!puts)
                found->result = statement->Ist.Put.offset;
            if (lane(k, statement->Ist.Put.data) != puts + 1 ||
                statement->Ist.Put.offset != found->result + puts * found->size)
                return False;
            puts++;
        } else if (statement->tag == Ist_WrTmp && lane(k, statement->Ist.WrTmp.data)) {
            k->lane_of[statement->Ist.WrTmp.tmp] = lane(k, statement->Ist.WrTmp.data);
        } else if (found->end > found->last) {
            break;
        } else if (!is_independent(k, statement)) {
            return False;
        } else if (statement->tag == Ist_WrTmp && statement->Ist.WrTmp.data->tag == Iex_Get) {
            const Int offset = statement->Ist.WrTmp.data->Iex.Get.offset;
            if (offset < found->result + puts * found->size &&
                found->result < offset + sizeofIRType(statement->Ist.WrTmp.data->Iex.Get.ty))
                return False;
        }
    }
    return puts == found->lanes;
}

// Operands

static const IRExpr *operand(const IRStmt *statement, Int role)
{
    const IRQop *fused = statement->Ist.WrTmp.data->Iex.Qop.details;
    return role == 0 ? fused->arg2 : role == 1 ? fused->arg3 : fused->arg4;
}

// The place in the state where all lanes of the operand still are; -1: none.
static Int state_of(const struct known *k, const IRSB *in, const struct group *group, Int role)
{
    Int start = -1, lanes = 0;
    for (Int i = group->first; i <= group->last; i++) {
        if (!is_fused(in->stmts[i]))
            continue;
        const IRExpr *number = operand(in->stmts[i], role);
        if (number->tag != Iex_RdTmp || !k->placed[number->Iex.RdTmp.tmp])
            return -1;
        const Int place = k->place[number->Iex.RdTmp.tmp];
        if (!lanes)
            start = place;
        if (place != start + lanes * group->size)
            return -1;
        for (Int at = place; at < place + group->size; at++)
            if (at >= k->state_bytes || k->written[at] > k->placed[number->Iex.RdTmp.tmp])
                return -1;
        lanes++;
    }
    return start;
}

// The address from which this instruction loaded all lanes of the operand; NULL: none.
static IRExpr *address_of(const struct known *k, const IRSB *in, const struct group *group, Int role)
{
    IRExpr *start = NULL;
    Int lanes = 0;
    for (Int i = group->first; i <= group->last; i++) {
        if (!is_fused(in->stmts[i]))
            continue;
        const IRExpr *number = operand(in->stmts[i], role);
        if (number->tag != Iex_RdTmp || k->loaded[number->Iex.RdTmp.tmp] <= k->loads_from)
            return NULL;
        IRExpr *address = k->address[number->Iex.RdTmp.tmp];
        if (!address || address->tag != Iex_RdTmp)
            return NULL;
        if (!lanes)
            start = address;
        const struct origins *of = &k->origins;
        if (of->base[address->Iex.RdTmp.tmp] != of->base[start->Iex.RdTmp.tmp] ||
            of->offset[address->Iex.RdTmp.tmp] != of->offset[start->Iex.RdTmp.tmp] + lanes * group->size)
            return NULL;
        lanes++;
    }
    return start;
}

static void declare(IRDirty *call, IREffect effect, Int offset, Int bytes)
{
    for (Int i = 0; i < call->nFxState; i++) {
        if (call->fxState[i].offset != offset)
            continue;
        if (call->fxState[i].fx != effect)
            call->fxState[i].fx = Ifx_Modify;
        return;
    }
    VG_(memset)(&call->fxState[call->nFxState], 0, sizeof call->fxState[0]);
    call->fxState[call->nFxState].fx = effect;
    call->fxState[call->nFxState].offset = (UShort)offset;
    call->fxState[call->nFxState++].size = (UShort)bytes;
}

// The call in the multiplications' place; NULL where an operand is neither in the state nor in memory.
static IRDirty *call_for(const struct known *k, const IRSB *in, const struct group *group)
{
    const Int bytes = group->lanes * group->size;
    Int in_memory = ROLES, offsets[ROLES];
    IRExpr *words[ROLES], *address = NULL;
    for (Int role = 0; role < ROLES; role++) {
        offsets[role] = state_of(k, in, group, role);
        words[role] = IRExpr_Const(IRConst_U64((ULong)offsets[role]));
        if (offsets[role] >= 0)
            continue;
        if (address || !(address = address_of(k, in, group, role)))
            return NULL;
        words[role] = address;
        in_memory = role;
    }
    vector_function *const function =
        VECTOR_FUNCTION[group->size == sizeof(float)][bytes == VECTOR_BYTES][in_memory];
    IRDirty *call = unsafeIRDirty_0_N(0, "fused", VG_(fnptr_to_fnentry)((void *)function),
                                      mkIRExprVec_5(IRExpr_GSPTR(), words[0], words[1], words[2],
                                                    IRExpr_Const(IRConst_U64((ULong)group->result))));
    if (address) {
        call->mFx = Ifx_Read;
        call->mAddr = address;
        call->mSize = bytes;
    }
    for (Int role = 0; role < ROLES; role++)
        if (role != in_memory)
            declare(call, Ifx_Read, offsets[role], bytes);
    declare(call, Ifx_Write, group->result, bytes);
    return call;
}

static void add_group(IRSB *out, const IRSB *in, const struct known *k, const struct group *group, IRDirty *call)
{
    for (Int i = group->first; i <= group->last; i++)
        if (!is_fused(in->stmts[i]) && !is_late(k, in->stmts[i]))
            addStmtToIRSB(out, in->stmts[i]);
    addStmtToIRSB(out, IRStmt_Dirty(call));
    // For whoever uses a number of the result; what nobody uses is left out in the end.
    for (Int i = group->first; i <= group->last; i++) {
        if (!is_fused(in->stmts[i]))
            continue;
        const IRTemp result = in->stmts[i]->Ist.WrTmp.tmp;
        addStmtToIRSB(out, IRStmt_WrTmp(result, IRExpr_Get(group->result + (k->lane_of[result] - 1) * group->size,
                                                           typeOfIRTemp(in->tyenv, result))));
    }
    for (Int i = group->first; i < group->end; i++)
        if (in->stmts[i]->tag == Ist_WrTmp && is_late(k, in->stmts[i]))
            addStmtToIRSB(out, in->stmts[i]);
}

IRSB *join_fused(IRSB *in, const VexGuestLayout *layout)
{
    Bool any = False;
    for (Int i = 0; i < in->stmts_used && has_fma && !any; i++)
        any = is_fused(in->stmts[i]);
    if (!any)
        return in;
    IRSB *out = deepCopyIRSBExceptStmts(in);
    const SizeT temps = (SizeT)in->tyenv->types_used + 1;
    struct known k = {
        .origins = origins_new(in->tyenv),
        .lane_of = VG_(calloc)("reuse.lane_of", temps, sizeof *k.lane_of),
        .place = VG_(calloc)("reuse.place", temps, sizeof *k.place),
        .placed = VG_(calloc)("reuse.placed", temps, sizeof *k.placed),
        .written = VG_(calloc)("reuse.written", layout->total_sizeB, sizeof *k.written),
        .state_bytes = layout->total_sizeB,
        .address = VG_(calloc)("reuse.address", temps, sizeof *k.address),
        .loaded = VG_(calloc)("reuse.loaded", temps, sizeof *k.loaded),
    };
    for (Int from = 0, to; from < in->stmts_used; from = to) {
        for (to = from + 1; to < in->stmts_used && in->stmts[to]->tag != Ist_IMark; to++) {}
        struct group group;
        IRDirty *call = NULL;
        if (!find_group(&k, in, from, to, &group))
            group = (struct group){.first = to, .last = to, .end = to};
        for (Int i = from; i < group.first; i++) {
            addStmtToIRSB(out, in->stmts[i]);
            learn(&k, in, i, layout);
        }
        // The operands are known before the results are put anywhere.
        for (Int i = group.first; i < group.end; i++)
            if (!is_late(&k, in->stmts[i]))
                learn(&k, in, i, layout);
        if (group.lanes && (call = call_for(&k, in, &group)))
            add_group(out, in, &k, &group, call);
        for (Int i = group.first; i < to; i++) {
            if (!call || i >= group.end)
                addStmtToIRSB(out, in->stmts[i]);
            if (i >= group.end || is_late(&k, in->stmts[i]))
                learn(&k, in, i, layout);
        }
        VG_(memset)(k.lane_of, 0, temps);
    }
    origins_free(&k.origins);
    void *all[] = {k.lane_of, k.place, k.placed, k.written, k.address, k.loaded};
    for (UInt i = 0; i < sizeof all / sizeof *all; i++)
        VG_(free)(all[i]);
    return out;
}
