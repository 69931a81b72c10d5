// SPDX-License-Identifier: GPL-2.0-or-later
//
// A Valgrind tool that finds the stack reuse distances of a program's accesses: options, threads,
// processes, and the report (docs/formats/reuse.md).
#include "pub_tool_basics.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_options.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_transtab.h"
#include "pub_tool_vki.h"
#include "pub_tool_xarray.h"

#include "distance.h"
#include "tool.h"

extern Bool VG_(ok_to_discard_translations);

// Threads with a histogram of their own; later ones count for the program alone.
enum { THREADS = 256, TRACE = 4096, FETCH_RUN_MASK = 0x7fff };
#define LINE_MASK ((1ull << FETCH_COUNT_SHIFT) - 1)
#if defined(VGP_amd64_linux)
enum { SYS_RT_SIGACTION = 13, SYS_EXECVE = 59, SYS_EXIT = 60, SYS_EXIT_GROUP = 231, SYS_EXECVEAT = 322 };
#elif defined(VGP_arm64_linux)
enum { SYS_EXIT = 93, SYS_EXIT_GROUP = 94, SYS_RT_SIGACTION = 134, SYS_EXECVE = 221, SYS_EXECVEAT = 281 };
#else
#error "the reuse tool is for 64-bit Linux on x86-64 and AArch64"
#endif

_Alignas(64) uint64_t buffer_entries[BUFFER + 2 * BLOCK_MOST];
uint64_t *buffer_next = buffer_entries;
// Lines out of the buffer, until there are enough of them that counting them at once pays; and the accesses that they
// are the sample of.
enum { LINES = 2048 };
static uint64_t lines[LINES + BUFFER + 2 * BLOCK_MOST + LINES_AT_ONCE];
static UInt line_count, access_count;
uint64_t stack_low, stack_bytes;
// Lines with a hash from here on are in nobody's sample.
static ULong sample_threshold;

Bool handles_faults = False;
Bool opt_stack = True, opt_fetches = False;
static Bool opt_sampled = False;
// Lines of a sample of fixed size; 0: its rate is fixed.
static Int opt_most = 0;
static Bool opt_threads = True, opt_children = False;
static const HChar *opt_out, *opt_trace, *opt_threshold;
static Int opt_limit_ms = 0;

// Whether this process counts: a child that is not followed does not.
static Bool counting = True;
static struct counter *program, *fetches;
static struct counter *threads[THREADS];
static UInt thread_count;
// By Valgrind's number of a thread, ours, in the order in which they came; 0: nobody.
static UInt *number_of;
static UInt running; // the number of who runs
// What the process told the kernel to end with; -1: nothing, so a signal ends it.
static Int exit_status = -1;
static Int trace_fd = -1;
static ULong trace_buffer[TRACE];
static UInt trace_count;

// For distance.c

void *reuse_alloc(uint64_t bytes) { return VG_(calloc)("reuse", 1, bytes ? bytes : 1); }
void reuse_free(void *memory) { VG_(free)(memory); }
void reuse_copy(void *to, const void *from, uint64_t bytes) { VG_(memcpy)(to, from, bytes); }
void reuse_fail(const char *why)
{
    VG_(umsg)("reuse: %s\n", why);
    VG_(exit)(125);
}

// Counting

static void trace_flush(void)
{
    if (trace_fd >= 0 && trace_count)
        VG_(write)(trace_fd, trace_buffer, trace_count * sizeof *trace_buffer);
    trace_count = 0;
}

// 44 bits of the line, 8 of how often again, 11 of the thread, one for fetches.
static void trace(ULong line, ULong again, Bool is_fetch)
{
    if (trace_count == TRACE)
        trace_flush();
    trace_buffer[trace_count++] = (line & ((1ull << 44) - 1)) | again << 44 | (ULong)(running & 0x7ff) << 52 |
                                  (ULong)is_fetch << 63;
}

static void lower_threshold(void)
{
    ULong highest = program->threshold;
    for (UInt i = 0; i < thread_count && i < THREADS; i++)
        if (threads[i] && threads[i]->threshold > highest)
            highest = threads[i]->threshold;
    if (fetches && fetches->threshold > highest)
        highest = fetches->threshold;
    sample_threshold = highest;
}

static void count_fetch(ULong entry)
{
    const uint64_t line = entry & LINE_MASK, times = entry >> FETCH_COUNT_SHIFT & FETCH_RUN_MASK;
    counter_add(fetches, &line, !opt_sampled || sample_hash(line) < sample_threshold, 1);
    counter_again(fetches, line, (UInt)times - 1);
    if (trace_fd < 0 || (opt_sampled && sample_hash(line) >= sample_threshold))
        return;
    for (ULong left = times; left; left -= left < 256 ? left : 256)
        trace(line, (left < 256 ? left : 256) - 1, True);
}

// Takes the fetches out of the buffer's first `count` entries; returns how many are left.
static UInt take_fetches(UInt count)
{
    UInt left = 0;
    for (UInt i = 0; i < count; i++) {
        if (buffer_entries[i] & FETCH)
            count_fetch(buffer_entries[i]);
        else
            buffer_entries[left++] = buffer_entries[i];
    }
    return left;
}

// Gives the lines that the running thread has touched to those who count them.
static void deliver(void)
{
    for (UInt i = 0; trace_fd >= 0 && i < line_count; i++)
        trace(lines[i], 0, False);
    struct counter *own = running <= THREADS ? threads[running - 1] : NULL;
    counter_add(program, lines, line_count, access_count);
    if (own && own != program)
        counter_add(own, lines, line_count, access_count);
    line_count = access_count = 0;
    if (opt_most)
        lower_threshold();
}

void buffer_flush(void)
{
    const UInt used = (UInt)(buffer_next - buffer_entries);
    buffer_next = buffer_entries;
    if (!counting || !running)
        return;
    const UInt count = fetches ? take_fetches(used) : used;
    uint64_t *to = lines + line_count;
    UInt all, more;
    if (opt_sampled)
        more = sample_lines(buffer_entries, count, sample_threshold, to, &all);
    else
        more = all = all_lines(buffer_entries, count, to);
    line_count += more;
    access_count += all;
    if (line_count >= LINES)
        deliver();
}

// Before another thread runs, or somebody asks.
static void settle(void)
{
    buffer_flush();
    if (access_count)
        deliver();
}

// The report

static Int report_fd;
static HChar report_text[8192];
static UInt report_length;
static UInt report_number; // this image's among those of its process; from 1 once it has a file

static void report_flush(void)
{
    VG_(write)(report_fd, report_text, report_length);
    report_length = 0;
}

#define SAY(...)                                                                                        \
    do {                                                                                                \
        if (report_length > sizeof report_text - 1024)                                                  \
            report_flush();                                                                             \
        report_length += VG_(snprintf)(report_text + report_length, 1024, __VA_ARGS__);                 \
    } while (0)

static void say_word(const HChar *word)
{
    for (UInt i = 0; word[i] && i < 900; i++)
        SAY("%c", word[i] >= ' ' || word[i] < 0 ? word[i] : '?');
}

static void say_counter(const struct counter *counter)
{
    SAY(" %llu\n", (ULong)counter->accesses);
    for (UInt group = 0; group < (counter->threshold ? GROUPS : 1); group++) {
        SAY("group\n");
        if (counter->first[group])
            SAY("first %llu\n", (ULong)counter->first[group]);
        const uint64_t *bins = counter->bins + (ULong)group * BINS;
        for (UInt bin = 0; bin < BINS; bin++)
            if (bins[bin])
                SAY("bin %u %llu\n", bin, (ULong)bins[bin]);
    }
}

static Bool report_open(void)
{
    HChar path[4096];
    const Int flags = VKI_O_CREAT | VKI_O_WRONLY | VKI_O_TRUNC;
    // A process that executes another program is followed by its next image under the same number.
    for (UInt number = report_number ? report_number : 1; number < 1000; number++) {
        VG_(snprintf)(path, sizeof path, "%s.%d.%u", opt_out, VG_(getpid)(), number);
        report_fd = VG_(fd_open)(path, report_number ? flags : flags | VKI_O_EXCL, 0600);
        if (report_fd >= 0) {
            report_number = number;
            return True;
        }
    }
    VG_(umsg)("reuse: cannot write %s\n", path);
    return False;
}

static void report(const HChar *ended, Int status)
{
    if (!counting)
        return;
    settle();
    trace_flush();
    if (!report_open())
        return;
    SAY("coplace reuse 1\npid %d\nprogram ", VG_(getpid)());
    say_word(VG_(args_the_exename));
    for (Word i = 0; i < VG_(sizeXA)(VG_(args_for_client)); i++) {
        SAY(" ");
        say_word(*(HChar **)VG_(indexXA)(VG_(args_for_client), i));
    }
    SAY("\nunit %d\n", opt_sampled ? SAMPLE_UNIT : 1);
    if (opt_sampled)
        SAY("threshold %llu\n", (ULong)program->threshold);
    SAY("stack %s\nended %s", opt_stack ? "yes" : "no", ended);
    if (status >= 0)
        SAY(" %d", status);
    SAY("\nhistogram program");
    say_counter(program);
    for (UInt i = 0; i < thread_count && i < THREADS; i++) {
        if (!threads[i])
            continue;
        SAY("histogram thread %u", i + 1);
        say_counter(threads[i]);
    }
    if (fetches) {
        SAY("histogram instructions");
        say_counter(fetches);
    }
    SAY("end\n");
    report_flush();
    VG_(close)(report_fd);
}

// Threads and processes

static void thread_comes(ThreadId parent, ThreadId thread)
{
    (void)parent;
    const UInt number = ++thread_count;
    number_of[thread] = number;
    if (number == 1 || !opt_threads || number > THREADS)
        return;
    // While there is one thread its histogram is the program's.
    if (number == 2 && threads[0] == program) {
        settle();
        program = counter_copy(threads[0]);
    }
    threads[number - 1] = counter_new(opt_sampled ? sample_threshold : 0, opt_most);
}

static void starts(ThreadId thread, ULong blocks)
{
    (void)blocks;
    running = number_of[thread];
    stack_bytes = VG_(thread_get_stack_size)(thread);
    stack_low = VG_(thread_get_stack_max)(thread) + 1 - stack_bytes;
    if (opt_limit_ms && counting && VG_(read_millisecond_timer)() >= (UInt)opt_limit_ms) {
        report("limit", -1);
        VG_(exit)(124);
    }
}

static void stops(ThreadId thread, ULong blocks)
{
    (void)thread, (void)blocks;
    settle();
}

static void begin(void)
{
    program = counter_new(opt_sampled ? sample_threshold : 0, opt_most);
    if (opt_threads)
        threads[0] = program;
    if (opt_fetches)
        fetches = counter_new(opt_sampled ? sample_threshold : 0, opt_most);
}

static void forked(ThreadId thread)
{
    buffer_next = buffer_entries;
    line_count = access_count = 0;
    trace_count = 0;
    if (trace_fd >= 0)
        VG_(close)(trace_fd);
    trace_fd = -1;
    if (!opt_children) {
        counting = False;
        return;
    }
    // A child begins anew, with the one thread that it has.
    if (program != threads[0])
        counter_free(program);
    for (UInt i = 0; i < thread_count && i < THREADS; i++)
        if (threads[i])
            counter_free(threads[i]);
    if (fetches)
        counter_free(fetches);
    VG_(memset)(threads, 0, sizeof threads);
    VG_(memset)(number_of, 0, VG_N_THREADS * sizeof *number_of);
    report_number = 0;
    exit_status = -1;
    thread_count = 1;
    running = number_of[thread] = 1;
    begin();
}

static void before_syscall(ThreadId thread, UInt number, UWord *arguments, UInt count)
{
    (void)count;
    if (number == SYS_EXECVE || number == SYS_EXECVEAT)
        report("exec", -1);
    if (number == SYS_RT_SIGACTION && arguments[1] && !handles_faults &&
        (arguments[0] == VKI_SIGSEGV || arguments[0] == VKI_SIGBUS)) {
        handles_faults = True;
        // Valgrind allows it in a client request: like this, between two runs of the program's code.
        VG_(ok_to_discard_translations) = True;
        VG_(discard_translations_safely)(0, ~(SizeT)0, "reuse");
        VG_(ok_to_discard_translations) = False;
    }
    // Valgrind does not tell. Without exit_group it is the first thread's status.
    if (number == SYS_EXIT_GROUP || (number == SYS_EXIT && number_of[thread] == 1))
        exit_status = (Int)(arguments[0] & 0xff);
}

static void after_syscall(ThreadId thread, UInt number, UWord *arguments, UInt count, SysRes result)
{
    (void)thread, (void)number, (void)arguments, (void)count, (void)result;
}

// Valgrind's side

static Bool option(const HChar *arg)
{
    return VG_STR_CLO(arg, "--out", opt_out) || VG_STR_CLO(arg, "--trace", opt_trace) ||
           VG_STR_CLO(arg, "--sample-threshold", opt_threshold) ||
           VG_BINT_CLO(arg, "--sample-size", opt_most, 1, 1 << 28) || VG_BOOL_CLO(arg, "--stack", opt_stack) ||
           VG_BOOL_CLO(arg, "--fetches", opt_fetches) || VG_BOOL_CLO(arg, "--threads", opt_threads) ||
           VG_BOOL_CLO(arg, "--children", opt_children) ||
           VG_BINT_CLO(arg, "--limit-ms", opt_limit_ms, 1, 0x7fffffff);
}

static void usage(void)
{
    VG_(printf)("    --out=PREFIX              report into PREFIX.PID.N (needed)\n"
                "    --sample-threshold=N      sample lines whose hash is below N of 2^64 [exact]\n"
                "    --sample-size=N           sample at most N lines at a time [exact]\n"
                "    --stack=yes|no            count accesses to the thread's own stack [yes]\n"
                "    --fetches=yes|no          count instruction fetches, apart [no]\n"
                "    --threads=yes|no          a histogram for each thread, too [yes]\n"
                "    --children=yes|no         count in forked processes, too [no]\n"
                "    --limit-ms=N              stop after so long and report what was seen\n"
                "    --trace=FILE              write every access (8 bytes each)\n");
}

static void debug_usage(void) { VG_(printf)("    (none)\n"); }

static void after_options(void)
{
#ifdef VGA_amd64
    __builtin_cpu_init();
    find_fma();
#endif
    number_of = VG_(calloc)("reuse.threads", VG_N_THREADS, sizeof *number_of);
    if (!opt_out)
        VG_(fmsg_bad_option)("--out", "a report needs a place: --out=PREFIX\n");
    if (opt_threshold) {
        HChar *end;
        sample_threshold = VG_(strtoull10)(opt_threshold, &end);
        if (*end || !sample_threshold)
            VG_(fmsg_bad_option)(opt_threshold, "a threshold is a number from 1 to 2^64 - 1\n");
    } else if (opt_most) {
        sample_threshold = ~0ull;
    }
    opt_sampled = sample_threshold != 0;
    if (opt_trace) {
        trace_fd = VG_(fd_open)(opt_trace, VKI_O_CREAT | VKI_O_WRONLY | VKI_O_TRUNC, 0600);
        if (trace_fd < 0)
            VG_(fmsg_bad_option)(opt_trace, "it cannot be written\n");
    }
    begin();
}

static void finish(Int status)
{
    (void)status; // always 0
    report(exit_status < 0 ? "signal" : "exit", exit_status);
}

// The linker puts this in the place of what reads which lines of source the code comes from. Nobody asks for them, and of
// a small program's run under the tool they took a third. Functions keep their names for Valgrind's words on a crash.
void __wrap_vgModuleLocal_read_debuginfo_dwarf3(void);
void __wrap_vgModuleLocal_read_debuginfo_dwarf3(void) {}

static void before_options(void)
{
    VG_(details_name)("reuse");
    VG_(details_version)("1");
    VG_(details_description)("stack reuse distances");
    VG_(details_copyright_author)("Part of coplace; GPL-2.0-or-later.");
    VG_(details_bug_reports_to)("the coplace project");
    VG_(details_avg_translation_sizeB)(400);
    VG_(basic_tool_funcs)(after_options, instrument, finish);
    VG_(needs_command_line_options)(option, usage, debug_usage);
    VG_(needs_syscall_wrapper)(before_syscall, after_syscall);
    VG_(track_pre_thread_ll_create)(thread_comes);
    VG_(track_start_client_code)(starts);
    VG_(track_stop_client_code)(stops);
    VG_(atfork)(NULL, NULL, forked);
}

VG_DETERMINE_INTERFACE_VERSION(before_options)
