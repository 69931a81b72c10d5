/* Starting programs under the preload library, talking to them, and looking at their pages. */
#ifndef COPLACE_TEST_STEER_H
#define COPLACE_TEST_STEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "coplace/page.h"

/* A test is named as the sentence that it proves. */
struct test {
    const char *name;
    void (*run)(void);
};
#define TEST(name) {#name, name}
extern const struct test sizing_tests[], resizing_tests[], process_tests[], runtimes_tests[], llvm_tests[],
    table_tests[], tolerant_tests[], sanitizer_tests[], binding_tests[]; /* end: no name */

struct program {
    pid_t pid;
    int in, out; /* its stdin and stdout */
    struct coplace_page *page;
};

extern char build_dir[4096]; /* where the library and the test programs are */
extern char pages_dir[4096]; /* a fresh one for each test */
extern const char *failed;   /* set by CHECK */
extern const char *skipped;  /* why the test cannot be done here; set before it returns */
extern char failed_text[512];

/* Ends the test with what went wrong. */
#define CHECK(condition, ...)                                                                              \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            check_failed(__FILE__, __LINE__, #condition, "" __VA_ARGS__);                                  \
            return;                                                                                        \
        }                                                                                                  \
    } while (0)

void check_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* `name`: a program in build_dir, or an absolute path; behind a blank an argument. `settings`: words
 * "NAME=value", ended by NULL; "NAME" alone unsets. Every program gets LD_PRELOAD and COPLACE_PAGES unless a setting changes it, four threads and passive waiting. Waits for the page. */
struct program start(const char *name, const char *const *settings);
#define START(name, ...) start(name, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

const char *ask(struct program *program, const char *format, ...) __attribute__((format(printf, 2, 3)));
long ask_number(struct program *program, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *listen_to(struct program *program); /* one more line */
void say(struct program *program, const char *line);
int finish(struct program *program); /* closes its stdin, gives its exit status */
void end_all_programs(void);         /* that were not finished */

struct coplace_page *page_of(pid_t pid, int wait_ms); /* NULL: none came */
/* Changes the target every 20 us or so until the program answers: mostly between one and the greatest, which
 * libgomp's pool outlives, now and then to something between, which ends threads. */
long ask_under_flicker(struct program *program, const char *question, uint32_t most);
const char *text_under_flicker(struct program *program, const char *question, uint32_t most);

uint64_t monotonic_ns(void);
#define PATIENCE_NS UINT64_C(120000000000) /* nothing takes so long on a machine that merely is slow or busy */
/* Waits for what the program or its runtime does in its own time; whether it came. */
#define SOON(condition)                                                                                    \
    ({                                                                                                     \
        const uint64_t until_ns = monotonic_ns() + PATIENCE_NS;                                            \
        bool holds_now;                                                                                    \
        while (!(holds_now = (condition)) && monotonic_ns() < until_ns)                                    \
            sleep_ms(1);                                                                                   \
        holds_now;                                                                                         \
    })
void set_target(struct coplace_page *page, uint32_t target); /* vouches for the program unless that was set before */
void set_resizable(struct coplace_page *page, uint64_t word);
uint64_t resizable_now(const struct coplace_page *page); /* the word for what is loaded now */
void write_default(uint32_t target, uint32_t rigid);
int files_in_pages_dir(void);

uint64_t regions_entered(const struct coplace_page *page);
uint64_t regions_of_size(const struct coplace_page *page, unsigned size);

/* Runs a command line by the shell under the library; gives its exit status and what it wrote. */
int run(const char *command, char *out, size_t out_size, char *err, size_t err_size);

void sleep_ms(int ms);

#endif
