/* The names that programs built by clang (and Intel's compilers) find here instead of in LLVM's OpenMP runtime.
 *
 * A region is `push_num_threads` if it asks for a number, then `fork_call` with the function and its captured
 * variables behind it. A number pushed holds for the next fork only and leaves every setting of the program as it
 * is, so it is also how we ask for fewer. Work sharing, tasks, sections and cancellation go by the team that there
 * is and never come through here. A region that is serial by its `if` clause does not either. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdarg.h>

/* What the program has pushed for this thread's next fork. */
static __thread int32_t pushed_threads __attribute__((tls_model("initial-exec")));
static __thread int32_t pushed_teams __attribute__((tls_model("initial-exec")));

typedef void fork_fn(void *, int32_t, micro_fn, ...);

/* A call with as many arguments as there are is beyond C. Behind the three that all have, the rest of the
 * registers is filled whether there are as many or not, hence the room at `captured`. */
#if defined(__x86_64__)
#define IN_REGISTERS 3
__asm__(".text\n"
        ".p2align 4\n"
        ".type call_with, @function\n"
        "call_with:\n"
        ".cfi_startproc\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbp, -16\n"
        "mov %rsp, %rbp\n"
        ".cfi_def_cfa_register %rbp\n"
        "mov %rdi, %r10\n"
        "mov %r8, %r11\n"
        "movslq %edx, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %edx, %esi\n"
        "mov %rcx, %rdx\n"
        "sub $3, %rax\n"
        "jle 2f\n"
        "test $1, %al\n" /* the stack is kept at a multiple of 16 */
        "jz 1f\n"
        "sub $8, %rsp\n"
        "1: push 16(%r11,%rax,8)\n"
        "dec %rax\n"
        "jnz 1b\n"
        "2: mov (%r11), %rcx\n"
        "mov 8(%r11), %r8\n"
        "mov 16(%r11), %r9\n"
        "xor %eax, %eax\n"
        "call *%r10\n"
        "leave\n"
        ".cfi_def_cfa %rsp, 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_with, . - call_with\n");
#elif defined(__aarch64__)
#define IN_REGISTERS 5
__asm__(".text\n"
        ".p2align 4\n"
        ".type call_with, %function\n"
        "call_with:\n"
        ".cfi_startproc\n"
        "stp x29, x30, [sp, #-16]!\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset x29, -16\n"
        ".cfi_offset x30, -8\n"
        "mov x29, sp\n"
        ".cfi_def_cfa_register x29\n"
        "mov x9, x0\n"
        "mov x10, x4\n"
        "sxtw x11, w2\n"
        "mov x0, x1\n"
        "mov w1, w2\n"
        "mov x2, x3\n"
        "subs x11, x11, #5\n"
        "b.le 2f\n"
        "add x12, x11, #1\n" /* the stack is kept at a multiple of 16 */
        "and x12, x12, #-2\n"
        "sub sp, sp, x12, lsl #3\n"
        "add x12, x10, #40\n"
        "1: sub x11, x11, #1\n"
        "ldr x13, [x12, x11, lsl #3]\n"
        "str x13, [sp, x11, lsl #3]\n"
        "cbnz x11, 1b\n"
        "2: ldp x3, x4, [x10]\n"
        "ldp x5, x6, [x10, #16]\n"
        "ldr x7, [x10, #32]\n"
        "blr x9\n"
        "mov sp, x29\n"
        ".cfi_def_cfa_register sp\n"
        "ldp x29, x30, [sp], #16\n"
        ".cfi_restore x29\n"
        ".cfi_restore x30\n"
        ".cfi_def_cfa_offset 0\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size call_with, . - call_with\n");
#else
#error "call a function with any number of arguments here, by this machine's ABI"
#endif

void call_with(fork_fn *fork, void *where, int32_t count, micro_fn micro, void *const *captured)
    __attribute__((visibility("hidden")));

/* Calls on with all captured variables, each as large as a pointer. */
static void fork_on(fork_fn *fork, void *where, int32_t count, micro_fn micro, va_list list)
{
    void *captured[count > IN_REGISTERS ? count : IN_REGISTERS];
    for (int32_t i = 0; i < IN_REGISTERS; i++)
        captured[i] = NULL;
    for (int32_t i = 0; i < count; i++)
        captured[i] = va_arg(list, void *);
    call_with(fork, where, count, micro, captured);
}

SEEN void __kmpc_fork_call(void *where, int32_t count, micro_fn micro, ...)
{
    const struct runtime *rt = RUNTIME_WITH(__kmpc_fork_call, FROM(micro), FAMILY_LLVM);
    if (UNLIKELY(!rt))
        no_runtime("__kmpc_fork_call");
    unsigned asked = pushed_threads > 0 ? (unsigned)pushed_threads : 0;
    pushed_threads = 0;
    struct region region;
    unsigned n = region_enter(&region, rt, asked, FROM(micro));
    if (n != asked)
        rt->__kmpc_push_num_threads(where, rt->__kmpc_global_thread_num(where), (int32_t)n);
    va_list list;
    va_start(list, micro);
    fork_on(rt->__kmpc_fork_call, where, count, micro, list);
    va_end(list);
    region_leave(&region);
}

SEEN void __kmpc_push_num_threads(void *where, int32_t thread, int32_t n)
{
    const struct runtime *rt = RUNTIME_WITH(__kmpc_push_num_threads, CALLER, FAMILY_LLVM);
    pushed_threads = n;
    if (LIKELY(rt != NULL))
        rt->__kmpc_push_num_threads(where, thread, n);
}

static void counts_on_its_number(void)
{
    if (page_get())
        page_rigid(page_get(), COPLACE_RIGID_EXPLICIT_NUM_THREADS);
}

/* OpenMP 6.0: the program ends, or says so, if it gets another number. */
SEEN void __kmpc_push_num_threads_strict(void *where, int32_t thread, int32_t n, int severity, const char *message)
{
    const struct runtime *rt = RUNTIME_WITH(__kmpc_push_num_threads_strict, CALLER, FAMILY_LLVM);
    counts_on_its_number();
    if (LIKELY(rt != NULL))
        rt->__kmpc_push_num_threads_strict(where, thread, n, severity, message);
}

/* A league of several teams runs a thread for each, beside the regions that those start; its number is the
 * program's own. One team (the default) is its parallel regions and no more. */
static void push_teams(int32_t n)
{
    pushed_teams = n;
    if (n > 1)
        counts_on_its_number();
}

SEEN void __kmpc_push_num_teams(void *where, int32_t thread, int32_t teams, int32_t threads)
{
    const struct runtime *rt = RUNTIME_WITH(__kmpc_push_num_teams, CALLER, FAMILY_LLVM);
    push_teams(teams);
    if (LIKELY(rt != NULL))
        rt->__kmpc_push_num_teams(where, thread, teams, threads);
}

SEEN void __kmpc_push_num_teams_51(void *where, int32_t thread, int32_t fewest, int32_t most, int32_t threads)
{
    const struct runtime *rt = RUNTIME_WITH(__kmpc_push_num_teams_51, CALLER, FAMILY_LLVM);
    push_teams(most);
    if (LIKELY(rt != NULL))
        rt->__kmpc_push_num_teams_51(where, thread, fewest, most, threads);
}

SEEN void __kmpc_fork_teams(void *where, int32_t count, micro_fn micro, ...)
{
    const struct runtime *rt = RUNTIME_WITH(__kmpc_fork_teams, FROM(micro), FAMILY_LLVM);
    if (UNLIKELY(!rt))
        no_runtime("__kmpc_fork_teams");
    struct coplace_page *page = page_get();
    uint32_t epoch = page_epoch, beside = pushed_teams > 1 ? (uint32_t)pushed_teams - 1 : 0;
    pushed_teams = 0;
    if (page && beside)
        __atomic_fetch_add(&page->nested, beside, __ATOMIC_SEQ_CST);
    va_list list;
    va_start(list, micro);
    fork_on(rt->__kmpc_fork_teams, where, count, micro, list);
    va_end(list);
    if (page && beside && epoch == page_epoch)
        __atomic_fetch_sub(&page->nested, beside, __ATOMIC_SEQ_CST);
}
