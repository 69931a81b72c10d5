/* The shared page between one OpenMP program and the coplace node.
 *
 * (Programs with threads in bubbles use it, too: libcoplace_bubbles counts a run as one region in lane 1, whose
 * threads are the processors in use, and makes the page where the preload library is not in the process.)
 *
 * The preload library (libcoplace_preload.so) makes one file of exactly 4096 bytes per process,
 * `$COPLACE_PAGES/<pid>` (mode 0600, pid as getpid() tells it inside the program's pid namespace, and in any
 * but the first of these `<pid>-<number of the namespace>`), and maps it shared. The node maps the same file. All numbers are in the byte order of the machine.
 *
 * Life of a page
 *  - Ready when `magic` is COPLACE_PAGE_MAGIC (load it with acquire, before anything else); the
 *    library stores it last, with release. A file that is shorter than 4096 bytes, or whose magic is
 *    0, is being made: look again later and write nothing into it.
 *  - It belongs to the process with `pid` AND `start_time` (field 22 of /proc/<pid>/stat); a page
 *    whose start time is not that of the living process is a leftover of an earlier one.
 *  - exec keeps the file and the mapping: `magic` goes to 0 for a moment, the program's fields start
 *    anew, `generation` rises by one, and the node's own fields (target, target_seq) stay. What was read
 *    belongs together if `magic` and `generation` are the same before and after.
 *  - fork: the child makes its own page, with the target of `default` if there is one, never with its
 *    parent's. A child of a program in which no OpenMP runtime was found yet makes none until one is
 *    found or it calls exec.
 *  - The library removes its file only when a program in which no OpenMP runtime was ever found leaves by
 *    exit(). All others stay (COPLACE_STATE_EXITED is set if the program left by exit()) so that the last
 *    figures can be read, also those of programs that a signal or _exit() ended, most shells among them;
 *    the node removes the files of processes that are gone.
 *
 * `$COPLACE_PAGES/cpus` is the library's own: the CPU mask under which the program's first process started, as a
 * cpu_set_t. A runtime that is loaded later is told of it rather than of the partition of that moment.
 *
 * `$COPLACE_PAGES/default`, if present, is a page with valid magic and version of which only three things
 * are read, at load: `target`, the bit COPLACE_RIGID_DECLARED of `rigid`, and COPLACE_RESIZABLE_BY_WORD.
 *
 * Who writes what: the node writes `target`, `target_seq` and `resizable` only, the program everything else.
 *
 * No region gets fewer threads than the program asks for unless the node has found that its result does not depend on
 * the size of its teams. It finds that for what is loaded: `loads` counts how often the program has loaded or
 * unloaded objects, and `resizable` names the count for which it was found, or says that the user vouches for the
 * program. Where the two differ the program has loaded something since, and its regions have all their threads
 * until the node has looked at that, too.
 *
 * What the node may rely on (the order is that of a store followed by a load on both sides, with a
 * full barrier between them): after the node has stored `target` and executed a full barrier, a lane
 * whose `now` it then reads as "no region running" starts its next region under the new target.
 * So a node that reads coplace_page_running() <= target after its barrier may take the CPUs beyond target
 * away, as long as `rigid` is 0 and `resizable` holds for `loads` and `generation`. (With several masters, `masters` > 1, each team is at most `target`, and
 * together they come down to it as each of them enters its next region.) Where COPLACE_STATE_SPINS_LONG is
 * set it should wait for coplace_page_team() <= target instead: the idle threads of a larger last team spin
 * beside the program until its next region ends them.
 */
#ifndef COPLACE_PAGE_H
#define COPLACE_PAGE_H

#include <stdint.h>

#define COPLACE_PAGE_BYTES 4096u
#define COPLACE_PAGE_VERSION 2u
#define COPLACE_PAGE_MAGIC UINT64_C(0x316563616c706f63) /* the bytes "coplace1" on a little-endian machine */

/* Bits of `state`. */
#define COPLACE_STATE_LOADED (1u << 0)              /* the library is in the process and works */
#define COPLACE_STATE_RUNTIME_INITIALISED (1u << 1) /* a runtime is there and has read its CPU mask */
#define COPLACE_STATE_BINDS_THREADS (1u << 2)       /* the runtime pins its threads (OMP_PROC_BIND, OMP_PLACES) */
#define COPLACE_STATE_SPINS_LONG (1u << 3)          /* waiting threads spin far longer than by default */
#define COPLACE_STATE_RUNTIME_DYNAMIC (1u << 4)     /* the user set OMP_DYNAMIC=true: the runtime sizes teams by load too,
                                                       and `now`/`team` figures are upper bounds */
#define COPLACE_STATE_EXITED (1u << 5)              /* the program has run its exit handlers */
#define COPLACE_STATE_SET_OWN_MASK (1u << 6)        /* the program, or who started it, chose its CPUs itself
                                                       (sched_setaffinity, taskset); kept by exec */
#define COPLACE_STATE_FOLLOWS_PLACE (1u << 7)       /* it binds its threads to CPUs of the place that it is given,
                                                       and anew when that changes: no choice of CPUs */

#define COPLACE_CHOSE_CPUS 48u /* threads of which it is kept that they chose their CPUs */

/* Bits of `rigid`: why the library passes every call unchanged, whatever `resizable` says. They are never cleared. */
#define COPLACE_RIGID_SET_DYNAMIC_0 (1u << 0)        /* the program called omp_set_dynamic(0) */
#define COPLACE_RIGID_EXPLICIT_NUM_THREADS (1u << 1) /* the program counts on a number that it asked for. Where
                                                        its user vouches for it as a whole: a region asked for
                                                        more than one, and he has not named its code among what
                                                        tolerates fewer. Whether he does or not (LLVM's runtime):
                                                        a strict num_threads, or a league of several teams */
#define COPLACE_RIGID_DECLARED (1u << 2)             /* COPLACE_RIGID=1, or the default page says so */
#define COPLACE_RIGID_RUNTIME_UNKNOWN (1u << 3)      /* a runtime that we do not handle, or none found */
#define COPLACE_RIGID_SPINS_IN_DOCK (1u << 4)        /* active waiting, and a runtime that cannot end its spinning
                                                        idle threads: LLVM's, or a libgomp older than GCC 9 */
#define COPLACE_RIGID_GENERATED_CODE (1u << 5)       /* a region whose code lies in no object: nobody can look at it */
#define COPLACE_RIGID_FLOATING_POINT (1u << 6)       /* rounding, exceptions or flushing to zero of a thread that starts
                                                        regions are not what they were at the first region: threads
                                                        that were made before and after compute differently */

#define COPLACE_RIGID_BINDS_THREADS (1u << 16)       /* the runtime binds each thread to one of the places that it
                                                        worked out at its start (OMP_PROC_BIND, OMP_PLACES, ...) */

/* In `resizable`: the program's user says that it computes the same with fewer threads, whatever it loads. */
#define COPLACE_RESIZABLE_BY_WORD UINT64_MAX

#define COPLACE_SIZES 111u /* team sizes counted one by one; index 111 holds all larger ones */

/* Regions that ran with one team size. Times are wall-clock time between entry and exit. */
struct coplace_size {
    uint64_t regions;
    uint64_t ns;
};

/* Figures of outermost parallel regions. Lane 0 belongs to the first thread that ever started one and
 * is written with plain stores; lane 1 is shared, by atomic addition, by all further such threads.
 * A figure of the process is the sum over both lanes. */
struct coplace_lane {
    uint64_t now;        /* high half: regions running now; low half: their threads, or, when none runs,
                            lane 0: the size of its last team, lane 1: 0 */
    uint64_t entered_ns; /* CLOCK_MONOTONIC at the latest entry (within 0.1%, later within ppm, of the
                            time since load: from the cycle counter where that is invariant) */
    uint64_t left_ns;    /* the same at the latest exit; 0 = never */
    uint64_t regions;    /* regions entered */
    uint64_t shrunk;     /* of these: given fewer threads than the program would have got */
    uint64_t resizes;    /* of these: given, by the library's doing, another size than the one before */
    uint64_t reserved[2];
    struct coplace_size size[COPLACE_SIZES + 1]; /* regions left; size n at n - 1; the last holds all larger */
};

struct coplace_page {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes; /* 4096 */
    int32_t pid;
    uint32_t generation;  /* times that exec started this page anew */
    uint64_t start_time;  /* of the process: /proc/<pid>/stat field 22, clock ticks since boot; 0 = unknown */
    uint32_t state;       /* COPLACE_STATE_* */
    uint32_t rigid;       /* COPLACE_RIGID_* */
    uint32_t max_team;    /* greatest number that omp_get_max_threads() answered, or would have, when the runtime
                             was found and at the start of every region; 0 = no runtime found yet */
    uint32_t requested;   /* team that the latest outermost region would have got without coplace */
    uint32_t nested;      /* threads running now in nested teams, beyond those counted in the lanes */
    uint32_t applied_seq; /* target_seq under which the latest outermost region was sized */
    uint32_t runtimes;    /* distinct OpenMP runtimes found in the process */
    uint32_t masters;     /* threads that ever started an outermost region */
    uint64_t loaded_ns;   /* CLOCK_MONOTONIC when this page was made */
    uint32_t procs;       /* omp_get_num_procs() when the runtime was found; 0 = none yet */
    uint32_t loads;       /* objects loaded and unloaded so far, as the dynamic loader counts them; looked at
                             when the page is made and, where regions run, every millisecond */
    uint32_t reserved_program[12];

    /* The node's line. target: team size wished for the whole process, 0 = no wish. Preferably both are stored
     * at once, as one 64-bit word (target in the low half on little-endian machines). */
    uint32_t target __attribute__((aligned(64)));
    uint32_t target_seq; /* raised by the node with every change */
    /* 0: not known to be resizable. Otherwise the `loads` for which it was found in the low half, `generation` + 1
     * in the high half; or COPLACE_RESIZABLE_BY_WORD. */
    uint64_t resizable;
    uint32_t reserved_node[12];

    /* Ids of threads whose CPUs the program chose itself by a call, 0 = free. Kept by exec. */
    uint32_t chose_cpus[COPLACE_CHOSE_CPUS];

    struct coplace_lane lane[2];
};

#ifdef __cplusplus
#define COPLACE_ASSERT static_assert
#else
#define COPLACE_ASSERT _Static_assert
#endif
COPLACE_ASSERT(sizeof(struct coplace_lane) == 1856, "lane layout");
COPLACE_ASSERT(__builtin_offsetof(struct coplace_page, target) == 128, "node's line");
COPLACE_ASSERT(__builtin_offsetof(struct coplace_page, lane) == 384, "lanes");
COPLACE_ASSERT(sizeof(struct coplace_page) == COPLACE_PAGE_BYTES, "page layout");
#undef COPLACE_ASSERT

/* Whether regions of it may get fewer threads than they ask for, as far as the node's word goes. */
static inline int coplace_page_may_resize(const struct coplace_page *page)
{
    uint64_t word = __atomic_load_n(&page->resizable, __ATOMIC_ACQUIRE);
    return word == COPLACE_RESIZABLE_BY_WORD ||
           word == ((uint64_t)(__atomic_load_n(&page->generation, __ATOMIC_RELAXED) + 1) << 32 |
                    __atomic_load_n(&page->loads, __ATOMIC_RELAXED));
}

/* Is an outermost region running now? */
static inline int coplace_page_in_region(const struct coplace_page *page)
{
    return (__atomic_load_n(&page->lane[0].now, __ATOMIC_ACQUIRE) |
            __atomic_load_n(&page->lane[1].now, __ATOMIC_ACQUIRE)) >> 32 != 0;
}

/* Threads that run in parallel regions now, nested ones included; 0 between regions. */
static inline uint32_t coplace_page_running(const struct coplace_page *page)
{
    uint64_t first = __atomic_load_n(&page->lane[0].now, __ATOMIC_SEQ_CST);
    return (first >> 32 ? (uint32_t)first : 0) + (uint32_t)__atomic_load_n(&page->lane[1].now, __ATOMIC_SEQ_CST) +
           __atomic_load_n(&page->nested, __ATOMIC_SEQ_CST);
}

/* The same, but between regions the size of the last team of lane 0: its threads may still wait, spinning. */
static inline uint32_t coplace_page_team(const struct coplace_page *page)
{
    uint32_t running = coplace_page_running(page);
    return running ? running : (uint32_t)__atomic_load_n(&page->lane[0].now, __ATOMIC_SEQ_CST);
}

#endif
