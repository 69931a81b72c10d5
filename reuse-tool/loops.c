// SPDX-License-Identifier: GPL-2.0-or-later
//
// Short loops, of which VEX puts several rounds into a block, with a way out after each. At each way out all of the
// program's registers have to be where others look for them, though the next round writes most of them anew.
//
// Where the ways out of some rounds can be foretold before them, from what is in registers then, all of them are asked
// there at once. If none will be taken the rounds run through without them, and what only they would have read need not
// be written (registers.c). If one will, the block is begun again for the rounds that are left, of which its first has
// its own way out. As a program that handles faults would see less of its registers, its loops stay as they are.
//
// What later rounds compute anew from a counter is what the first round computed plus a number.
#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"

#include "tool.h"

// More would cost more than the ways out.
enum { FORETOLD_MOST = 64, ROUNDS_MOST = 16 };

static IRExpr *number(ULong value) { return IRExpr_Const(IRConst_U64(value)); }

// What is another number plus a constant

// A number is `root` + `offset`.
struct sum {
    IRTemp root;
    ULong offset;
};

// An operation on roots, whose result a temporary is but for the offsets that its operands had.
struct known {
    IROp op;
    IRTemp left, right; // of Shl64: the bits
    struct sum result;
};

struct sums {
    struct origins of; // each temporary of the block
    struct known *known;
    UInt count;
};

static struct sum sum_of(const struct sums *s, IRTemp temp)
{
    return (struct sum){s->of.base[temp], (ULong)s->of.offset[temp]};
}

static Bool constant(const IRExpr *atom, ULong *value)
{
    if (atom->tag != Iex_Const)
        return False;
    const IRConst *is = atom->Iex.Const.con;
    *value = is->tag == Ico_U64 ? is->Ico.U64 : is->tag == Ico_U8 ? is->Ico.U8 : 0;
    return is->tag == Ico_U64 || is->tag == Ico_U8;
}

// The temporary is what was computed by the operation before, moved by `offset`; or is known from now on.
static void is_result(struct sums *s, IROp op, IRTemp left, IRTemp right, ULong offset, IRTemp temp)
{
    for (UInt i = 0; i < s->count; i++) {
        const struct known *known = &s->known[i];
        if (known->op == op && known->left == left && known->right == right) {
            s->of.base[temp] = known->result.root;
            s->of.offset[temp] = (Long)(known->result.offset + offset);
            return;
        }
    }
    s->known[s->count++] = (struct known){op, left, right, {temp, -offset}};
}

static void follow_operation(struct sums *s, IRTemp temp, const IRExpr *value)
{
    if (value->tag != Iex_Binop || value->Iex.Binop.arg1->tag != Iex_RdTmp)
        return;
    const IRExpr *right = value->Iex.Binop.arg2;
    const struct sum one = sum_of(s, value->Iex.Binop.arg1->Iex.RdTmp.tmp);
    ULong bits;
    if (value->Iex.Binop.op == Iop_Shl64 && constant(right, &bits) && bits < 64) {
        is_result(s, Iop_Shl64, one.root, (IRTemp)bits, one.offset << bits, temp);
    } else if (value->Iex.Binop.op == Iop_Add64 && right->tag == Iex_RdTmp) {
        const struct sum other = sum_of(s, right->Iex.RdTmp.tmp);
        const Bool turn = one.root > other.root;
        is_result(s, Iop_Add64, turn ? other.root : one.root, turn ? one.root : other.root, one.offset + other.offset,
                  temp);
    }
}

static struct sums find_sums(const IRSB *in, const VexGuestLayout *layout)
{
    struct sums s = {
        .of = origins_new(in->tyenv),
        .known = VG_(calloc)("reuse.known", (SizeT)in->stmts_used + 1, sizeof *s.known),
    };
    for (Int i = 0; i < in->stmts_used; i++) {
        const IRStmt *statement = in->stmts[i];
        if (statement->tag != Ist_WrTmp)
            continue;
        follow(&s.of, statement->Ist.WrTmp.tmp, statement->Ist.WrTmp.data, layout);
        follow_operation(&s, statement->Ist.WrTmp.tmp, statement->Ist.WrTmp.data);
    }
    return s;
}

static IRExpr *add(IRSB *out, struct sum sum)
{
    return sum.offset ? assign(out, Ity_I64, IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(sum.root), number(sum.offset)))
                      : IRExpr_RdTmp(sum.root);
}

// The rounds

struct loop {
    const IRSB *in;
    Int begins[ROUNDS_MOST + 1]; // where rounds begin, and the end
    Int rounds;
    Int from, last; // the rounds at hand: where the first and the last of them begin
    Int *defined;   // for each temporary: the statement that defines it
    struct sums sums;
    IRTemp *copy; // for each temporary: what stands for it before `from`; IRTemp_INVALID: nothing yet
    UInt copied;
};

static Bool begins_round(const IRStmt *statement, const IRSB *in)
{
    return statement->tag == Ist_IMark && in->next->tag == Iex_Const && in->next->Iex.Const.con->tag == Ico_U64 &&
           statement->Ist.IMark.addr + statement->Ist.IMark.delta == in->next->Iex.Const.con->Ico.U64;
}

// Finds where rounds begin; whether all registers are written before each but the first.
static Bool find_rounds(struct loop *loop, const VexGuestLayout *layout)
{
    const IRSB *in = loop->in;
    Int before = -1;
    for (Int i = 0; i < in->stmts_used; i++) {
        const IRStmt *statement = in->stmts[i];
        if (begins_round(statement, in)) {
            if (loop->rounds == ROUNDS_MOST || (loop->rounds && in->stmts[before]->tag != Ist_Exit))
                return False;
            loop->begins[loop->rounds++] = i;
        }
        const Bool place = statement->tag == Ist_Put && statement->Ist.Put.offset == layout->offset_IP;
        if (statement->tag != Ist_NoOp && statement->tag != Ist_AbiHint && !place)
            before = i;
    }
    loop->begins[loop->rounds] = in->stmts_used;
    return loop->rounds > 2 && in->jumpkind == Ijk_Boring;
}

static void find_definitions(const IRSB *in, Int *by)
{
    for (Int i = 0; i < in->stmts_used; i++) {
        const IRStmt *statement = in->stmts[i];
        IRTemp temps[2] = {IRTemp_INVALID, IRTemp_INVALID};
        switch (statement->tag) {
        case Ist_WrTmp: temps[0] = statement->Ist.WrTmp.tmp; break;
        case Ist_LoadG: temps[0] = statement->Ist.LoadG.details->dst; break;
        case Ist_Dirty: temps[0] = statement->Ist.Dirty.details->tmp; break;
        case Ist_LLSC: temps[0] = statement->Ist.LLSC.result; break;
        case Ist_CAS:
            temps[0] = statement->Ist.CAS.details->oldLo;
            temps[1] = statement->Ist.CAS.details->oldHi;
            break;
        default: break;
        }
        for (UInt j = 0; j < 2; j++)
            if (temps[j] != IRTemp_INVALID)
                by[temps[j]] = i;
    }
}

// Whether computing it early does nothing else, whatever the operands are.
static Bool harmless(IROp op)
{
    switch (op) {
    case Iop_Add8 ... Iop_ExpCmpNE64: // in one row, as VEX says
    case Iop_CmpLT32S: case Iop_CmpLT64S: case Iop_CmpLE32S: case Iop_CmpLE64S:
    case Iop_CmpLT32U: case Iop_CmpLT64U: case Iop_CmpLE32U: case Iop_CmpLE64U:
    case Iop_CmpNEZ8: case Iop_CmpNEZ16: case Iop_CmpNEZ32: case Iop_CmpNEZ64:
    case Iop_Not1: case Iop_And1: case Iop_Or1:
    case Iop_8Uto32: case Iop_8Uto64: case Iop_16Uto32: case Iop_16Uto64: case Iop_32Uto64:
    case Iop_8Sto32: case Iop_8Sto64: case Iop_16Sto32: case Iop_16Sto64: case Iop_32Sto64:
    case Iop_64to8: case Iop_32to8: case Iop_64to16: case Iop_32to16: case Iop_64to32: case Iop_64HIto32:
    case Iop_32to1: case Iop_64to1: case Iop_1Uto8: case Iop_1Uto32: case Iop_1Uto64:
        return True;
    default: return False;
    }
}

static IRExpr *foretell(struct loop *loop, IRSB *out, const IRExpr *atom);

// The value, computed before the rounds at hand; NULL where it cannot be.
static IRExpr *foretell_value(struct loop *loop, IRSB *out, const IRExpr *value)
{
    IRExpr *operands[2];
    switch (value->tag) {
    case Iex_RdTmp: return foretell(loop, out, value);
    case Iex_Unop:
        if (!harmless(value->Iex.Unop.op) || !(operands[0] = foretell(loop, out, value->Iex.Unop.arg)))
            return NULL;
        return IRExpr_Unop(value->Iex.Unop.op, operands[0]);
    case Iex_Binop:
        if (!harmless(value->Iex.Binop.op) || !(operands[0] = foretell(loop, out, value->Iex.Binop.arg1)) ||
            !(operands[1] = foretell(loop, out, value->Iex.Binop.arg2)))
            return NULL;
        return IRExpr_Binop(value->Iex.Binop.op, operands[0], operands[1]);
    default: return NULL;
    }
}

static IRExpr *foretell(struct loop *loop, IRSB *out, const IRExpr *atom)
{
    if (atom->tag == Iex_Const)
        return IRExpr_Const(deepCopyIRConst(atom->Iex.Const.con));
    const IRTemp temp = atom->Iex.RdTmp.tmp;
    if (loop->defined[temp] < loop->from)
        return IRExpr_RdTmp(temp);
    if (loop->copy[temp] == IRTemp_INVALID) {
        const IRStmt *by = loop->in->stmts[loop->defined[temp]];
        if (by->tag != Ist_WrTmp || loop->copied++ == FORETOLD_MOST)
            return NULL;
        const struct sum sum = sum_of(&loop->sums, temp);
        IRExpr *value = sum.root != temp && loop->defined[sum.root] < loop->from
                            ? add(out, sum)
                            : foretell_value(loop, out, by->Ist.WrTmp.data);
        if (!value)
            return NULL;
        loop->copy[temp] = assign(out, typeOfIRTemp(out->tyenv, temp), value)->Iex.RdTmp.tmp;
    }
    return IRExpr_RdTmp(loop->copy[temp]);
}

// The comparison that decides a way out, which VEX may have widened and narrowed again; NULL for what is none.
static const IRExpr *deciding(const struct loop *loop, const IRExpr *guard)
{
    while (guard->tag == Iex_RdTmp) {
        const IRStmt *by = loop->in->stmts[loop->defined[guard->Iex.RdTmp.tmp]];
        if (by->tag != Ist_WrTmp)
            return NULL;
        guard = by->Ist.WrTmp.data;
        if (guard->tag == Iex_Unop && (guard->Iex.Unop.op == Iop_64to1 || guard->Iex.Unop.op == Iop_1Uto64))
            guard = guard->Iex.Unop.arg;
    }
    return guard->tag == Iex_Binop ? guard : NULL;
}

// A constant has no root.
static Bool sum_before(const struct loop *loop, const IRExpr *atom, struct sum *sum)
{
    *sum = (struct sum){IRTemp_INVALID, 0};
    if (atom->tag == Iex_Const)
        return constant(atom, &sum->offset);
    *sum = sum_of(&loop->sums, atom->Iex.RdTmp.tmp);
    return loop->defined[sum->root] < loop->from;
}

static IRExpr *root(struct sum sum)
{
    return sum.root == IRTemp_INVALID ? number(0) : IRExpr_RdTmp(sum.root);
}

// Of loops that end when a counter has come to a value: whether it may come to it in the rounds at hand but the last.
// That takes one comparison. NULL for other loops.
static IRExpr *counter_arrives(const struct loop *loop, IRSB *out)
{
    Bool any = False;
    struct sum counter = {0}, end = {0};
    // By how much the end's root is more than the counter's if a round ends the loop: least and most of these rounds.
    Long least = 0, most = 0;
    for (Int i = loop->from; i < loop->last; i++) {
        if (loop->in->stmts[i]->tag != Ist_Exit)
            continue;
        const IRExpr *test = deciding(loop, loop->in->stmts[i]->Ist.Exit.guard);
        struct sum now, to;
        if (!test || test->Iex.Binop.op != Iop_CmpEQ64 ||
            !sum_before(loop, test->Iex.Binop.arg1, &now) || !sum_before(loop, test->Iex.Binop.arg2, &to))
            return NULL;
        if (any && (now.root != counter.root || to.root != end.root))
            return NULL;
        const Long more = (Long)(now.offset - to.offset);
        least = !any || more < least ? more : least;
        most = !any || more > most ? more : most;
        counter = now, end = to, any = True;
    }
    if (!any)
        return NULL;
    IRExpr *more = assign(out, Ity_I64, IRExpr_Binop(Iop_Sub64, root(end), root(counter)));
    IRExpr *left = assign(out, Ity_I64, IRExpr_Binop(Iop_Sub64, more, number((ULong)least)));
    return assign(out, Ity_I1, IRExpr_Binop(Iop_CmpLE64U, left, number((ULong)most - (ULong)least)));
}

// Whether any way out of the rounds at hand but the last will be taken; NULL where that is not known yet.
static IRExpr *any_exit(struct loop *loop, IRSB *out)
{
    IRExpr *any = counter_arrives(loop, out);
    if (any)
        return any;
    for (Int i = loop->from; i < loop->last; i++) {
        if (loop->in->stmts[i]->tag != Ist_Exit)
            continue;
        IRExpr *guard = foretell(loop, out, loop->in->stmts[i]->Ist.Exit.guard);
        if (!guard)
            return NULL;
        guard = assign(out, Ity_I64, IRExpr_Unop(Iop_1Uto64, guard));
        any = any ? assign(out, Ity_I64, IRExpr_Binop(Iop_Or64, any, guard)) : guard;
    }
    return any ? assign(out, Ity_I1, IRExpr_Binop(Iop_CmpNE64, any, number(0))) : NULL;
}

static void copy_statements(const struct loop *loop, IRSB *out, Int from, Int to, Bool exits)
{
    for (Int i = from; i < to; i++) {
        IRStmt *statement = loop->in->stmts[i];
        if (statement->tag == Ist_Exit && !exits)
            continue;
        if (statement->tag == Ist_WrTmp && statement->Ist.WrTmp.data->tag == Iex_Binop) {
            const IRTemp temp = statement->Ist.WrTmp.tmp;
            const struct sum sum = sum_of(&loop->sums, temp);
            if (sum.root != temp)
                statement = IRStmt_WrTmp(temp, sum.offset ? IRExpr_Binop(Iop_Add64, IRExpr_RdTmp(sum.root),
                                                                         number(sum.offset))
                                                          : IRExpr_RdTmp(sum.root));
        }
        addStmtToIRSB(out, statement);
    }
}

// The round after those that are asked together, which begin with `round`. The first one is alone; all others at once
// would make loops that end after a few rounds begin the block as often.
static Int asked_until(const struct loop *loop, Int round)
{
    const Int first = 4;
    return round < first && first < loop->rounds ? first : loop->rounds;
}

IRSB *look_ahead(IRSB *in, const VexGuestLayout *layout)
{
    struct loop loop = {.in = in};
    if (handles_faults || !find_rounds(&loop, layout))
        return in;
    const SizeT temps = (SizeT)in->tyenv->types_used + 1;
    loop.sums = find_sums(in, layout);
    loop.defined = VG_(calloc)("reuse.defined", temps, sizeof *loop.defined);
    loop.copy = VG_(malloc)("reuse.copy", temps * sizeof *loop.copy);
    for (SizeT temp = 0; temp < temps; temp++)
        loop.copy[temp] = IRTemp_INVALID;
    find_definitions(in, loop.defined);

    IRSB *out = deepCopyIRSBExceptStmts(in);
    copy_statements(&loop, out, 0, loop.begins[1], True);
    for (Int round = 1, next; round < loop.rounds; round = next) {
        next = asked_until(&loop, round);
        loop.from = loop.begins[round];
        loop.last = loop.begins[next - 1];
        IRExpr *exit = any_exit(&loop, out);
        if (exit) {
            IRConst *again = deepCopyIRConst(in->next->Iex.Const.con);
            addStmtToIRSB(out, IRStmt_Exit(exit, Ijk_Boring, again, layout->offset_IP));
        }
        copy_statements(&loop, out, loop.from, loop.last, !exit);
        copy_statements(&loop, out, loop.last, loop.begins[next], True);
    }
    origins_free(&loop.sums.of);
    void *all[] = {loop.sums.known, loop.defined, loop.copy};
    for (UInt i = 0; i < sizeof all / sizeof *all; i++)
        VG_(free)(all[i]);
    return out;
}
