// SPDX-License-Identifier: GPL-2.0-or-later
//
// Which temporaries a block's statements use; and new ones.
#include "pub_tool_libcbase.h"
#include "pub_tool_mallocfree.h"

#include "tool.h"

static void use(const IRExpr *atom, void (*each)(IRTemp, void *), void *with)
{
    if (atom && atom->tag == Iex_RdTmp)
        each(atom->Iex.RdTmp.tmp, with);
}

void uses_of_value(const IRExpr *value, void (*each)(IRTemp, void *), void *with)
{
    switch (value->tag) {
    case Iex_GetI: use(value->Iex.GetI.ix, each, with); break;
    case Iex_RdTmp: use(value, each, with); break;
    case Iex_Load: use(value->Iex.Load.addr, each, with); break;
    case Iex_Unop: use(value->Iex.Unop.arg, each, with); break;
    case Iex_Binop:
        use(value->Iex.Binop.arg1, each, with);
        use(value->Iex.Binop.arg2, each, with);
        break;
    case Iex_Triop:
        use(value->Iex.Triop.details->arg1, each, with);
        use(value->Iex.Triop.details->arg2, each, with);
        use(value->Iex.Triop.details->arg3, each, with);
        break;
    case Iex_Qop:
        use(value->Iex.Qop.details->arg1, each, with);
        use(value->Iex.Qop.details->arg2, each, with);
        use(value->Iex.Qop.details->arg3, each, with);
        use(value->Iex.Qop.details->arg4, each, with);
        break;
    case Iex_ITE:
        use(value->Iex.ITE.cond, each, with);
        use(value->Iex.ITE.iftrue, each, with);
        use(value->Iex.ITE.iffalse, each, with);
        break;
    case Iex_CCall:
        for (IRExpr **argument = value->Iex.CCall.args; *argument; argument++)
            use(*argument, each, with);
        break;
    default: break;
    }
}

void uses_of_statement(const IRStmt *statement, void (*each)(IRTemp, void *), void *with)
{
    switch (statement->tag) {
    case Ist_AbiHint:
        use(statement->Ist.AbiHint.base, each, with);
        use(statement->Ist.AbiHint.nia, each, with);
        break;
    case Ist_Put: use(statement->Ist.Put.data, each, with); break;
    case Ist_PutI:
        use(statement->Ist.PutI.details->ix, each, with);
        use(statement->Ist.PutI.details->data, each, with);
        break;
    case Ist_WrTmp: uses_of_value(statement->Ist.WrTmp.data, each, with); break;
    case Ist_Store:
        use(statement->Ist.Store.addr, each, with);
        use(statement->Ist.Store.data, each, with);
        break;
    case Ist_StoreG:
        use(statement->Ist.StoreG.details->addr, each, with);
        use(statement->Ist.StoreG.details->data, each, with);
        use(statement->Ist.StoreG.details->guard, each, with);
        break;
    case Ist_LoadG:
        use(statement->Ist.LoadG.details->addr, each, with);
        use(statement->Ist.LoadG.details->alt, each, with);
        use(statement->Ist.LoadG.details->guard, each, with);
        break;
    case Ist_CAS:
        use(statement->Ist.CAS.details->addr, each, with);
        use(statement->Ist.CAS.details->expdHi, each, with);
        use(statement->Ist.CAS.details->expdLo, each, with);
        use(statement->Ist.CAS.details->dataHi, each, with);
        use(statement->Ist.CAS.details->dataLo, each, with);
        break;
    case Ist_LLSC:
        use(statement->Ist.LLSC.addr, each, with);
        use(statement->Ist.LLSC.storedata, each, with);
        break;
    case Ist_Dirty: {
        const IRDirty *dirty = statement->Ist.Dirty.details;
        use(dirty->guard, each, with);
        use(dirty->mAddr, each, with);
        for (IRExpr **argument = dirty->args; *argument; argument++)
            use(*argument, each, with);
        break;
    }
    case Ist_Exit: use(statement->Ist.Exit.guard, each, with); break;
    default: break;
    }
}

static void count(IRTemp temp, void *uses) { ((struct uses *)uses)[temp].all++; }

struct uses *uses_count(const IRSB *in)
{
    struct uses *uses = VG_(calloc)("reuse.uses", (SizeT)in->tyenv->types_used + 1, sizeof *uses);
    for (Int i = 0; i < in->stmts_used; i++) {
        const IRStmt *statement = in->stmts[i];
        uses_of_statement(statement, count, uses);
        if (statement->tag == Ist_Store && statement->Ist.Store.data->tag == Iex_RdTmp)
            uses[statement->Ist.Store.data->Iex.RdTmp.tmp].stored++;
    }
    use(in->next, count, uses);
    return uses;
}

IRExpr *assign(IRSB *out, IRType type, IRExpr *value)
{
    const IRTemp temp = newIRTemp(out->tyenv, type);
    addStmtToIRSB(out, IRStmt_WrTmp(temp, value));
    return IRExpr_RdTmp(temp);
}
