/* Threads that say who belongs together: user-level threads in bubbles.
 *
 * Everything but coplace_run works only in threads of a run, and ends the program with a message
 * elsewhere. Functions that return int return 0, or one of the errors of <errno.h> that they name.
 * Handles are opaque and belong to the program until it gives them back. A first program:
 * docs/bubbles.md. Link with: pkg-config --cflags --libs coplace-bubbles
 */
#ifndef COPLACE_BUBBLES_H
#define COPLACE_BUBBLES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coplace_thread coplace_thread;
typedef struct coplace_bubble coplace_bubble;
typedef struct coplace_mutex coplace_mutex;
typedef struct coplace_cond coplace_cond;
typedef struct coplace_sem coplace_sem;
typedef struct coplace_barrier coplace_barrier;

/* Levels of the machine, widest first. */
enum coplace_level {
	COPLACE_MACHINE = 0,
	COPLACE_PACKAGE = 1,
	COPLACE_NUMA = 2,
	COPLACE_LLC = 3,
	COPLACE_GROUP = 4,
	COPLACE_CORE = 5,
	COPLACE_PU = 6,
};

/* What a thread returns that was cancelled. */
#define COPLACE_CANCELLED ((void *)-1)

/* Runs main(argument) as the first thread, on one worker for each processor that the process may use,
 * the calling one being one of them. Comes back when all threads have ended.
 * scheduler: "burst", "spread", "affinity", "gang", "memory", "steal", "flat", "fixed"; NULL is "burst".
 * EINVAL: there is no such scheduler. EBUSY: called from a thread of a run. */
int coplace_run(const char *scheduler, void (*main)(void *), void *argument);

/* Threads */

/* Makes a thread that starts at once. Never NULL. */
coplace_thread *coplace_spawn(void *(*work)(void *), void *argument);
/* Makes a thread with a name (or NULL), a priority of 0 to 15, the highest first (7 is usual), and
 * bytes of stack (0: 124 KiB). It starts when it is woken, by coplace_wake or with the bubble into
 * which it is put. NULL if the priority is none. */
coplace_thread *coplace_make(const char *name, int priority, size_t stack_bytes, void *(*work)(void *), void *argument);
/* Says of a thread made by coplace_make, before it is woken, that it may change how numbers are rounded
 * (fesetround). One that does so without this hands it on to those that run after it. */
void coplace_own_rounding(coplace_thread *thread);
/* Starts a thread made by coplace_make. */
void coplace_wake(coplace_thread *thread);
/* Waits for its end; *result, unless result is NULL, is what it returned. The handle is used up. */
void coplace_join(coplace_thread *thread, void **result);
/* Lets it go on by itself. The handle is used up. */
void coplace_detach(coplace_thread *thread);
/* Wants it to end at its next cancellation point: coplace_yield, coplace_yield_to, coplace_sleep_ns,
 * coplace_park and coplace_cancellation_point. Its frames are left as they are; values of keys are destroyed. */
void coplace_cancel(coplace_thread *thread);
void coplace_cancellation_point(void);
/* Ends the calling thread with this result. Not the first thread of a run. */
void coplace_exit(void *result) __attribute__((noreturn));
/* Lets others run that are at least as urgent. */
void coplace_yield(void);
/* Lets this one run next here if it waits for a processor that it may have; else as coplace_yield. */
void coplace_yield_to(coplace_thread *thread);
/* The calling thread, for others that unpark it or yield to it while it runs. Not to be joined or detached. */
coplace_thread *coplace_self(void);
/* Waits until somebody unparks it; comes back at once if that has happened since it parked the last time. It may
 * also come back without that: look again whether what it waits for is there. */
void coplace_park(void);
/* Lets a thread come back from coplace_park, or pass it the next time, once. A thread that has been detached must not
 * have ended, and none may have been joined. */
void coplace_unpark(coplace_thread *thread);
/* Waits so many nanoseconds without a processor. */
void coplace_sleep_ns(uint64_t ns);
/* Calls work(argument), which may block the kernel thread, on another one and waits for it. */
void coplace_aside(void (*work)(void *), void *argument);
/* Counts from the next time on that it is queued. EINVAL: not 0 to 15. */
int coplace_set_priority(coplace_thread *thread, int priority);

/* Values of which each thread has its own, NULL at first; destroy (or NULL) is called with a thread's
 * value at its end, and when it is replaced. */
typedef size_t coplace_key;
coplace_key coplace_key_make(void);
void coplace_key_set(coplace_key key, void *value, void (*destroy)(void *));
void *coplace_key_get(coplace_key key);

/* Bubbles */

/* Makes a closed bubble; name may be NULL. */
coplace_bubble *coplace_bubble_make(const char *name);
/* Gives it up: it lives on until its threads have ended. */
void coplace_bubble_free(coplace_bubble *bubble);
/* Puts a thread, or a bubble, into it, before or after it is woken. What has not been started starts
 * with it. EBUSY: it is in a bubble already. ELOOP: a bubble in itself. */
int coplace_bubble_insert(coplace_bubble *bubble, coplace_thread *thread);
int coplace_bubble_insert_bubble(coplace_bubble *bubble, coplace_bubble *inner);
/* Takes it out of the bubble around it, if there is one. */
void coplace_bubble_remove(coplace_thread *thread);
void coplace_bubble_remove_bubble(coplace_bubble *inner);
/* Lets it be scheduled, with all that is in it. */
void coplace_bubble_wake(coplace_bubble *bubble);
/* Waits until all threads in it, and in the bubbles in it, have ended. */
void coplace_bubble_join(coplace_bubble *bubble);
/* Calls its threads home, so that it may burst elsewhere. EAGAIN: it has not burst. */
int coplace_bubble_close(coplace_bubble *bubble);
/* EINVAL: not 0 to 15. */
int coplace_bubble_set_priority(coplace_bubble *bubble, int priority);
/* Where it lets its threads out: on a unit of this level (EINVAL: there is none such), or on the smallest
 * one with at least so many processors. Unless either is said: with a processor for each thread. */
int coplace_bubble_burst_level(coplace_bubble *bubble, enum coplace_level level);
void coplace_bubble_burst_processors(coplace_bubble *bubble, size_t count);
/* The fewest and the most processors of that unit. EINVAL: most is less than fewest. */
int coplace_bubble_elastic(coplace_bubble *bubble, size_t fewest, size_t most);
/* The NUMA node, by the kernel's number, on which its data are. */
void coplace_bubble_memory(coplace_bubble *bubble, uint32_t node);
/* It closes by itself so many nanoseconds after it has burst; 0: never. */
void coplace_bubble_slice_ns(coplace_bubble *bubble, uint64_t ns);
/* Whether its threads are interrupted (SIGURG) when they are to come home; not while they are in a
 * shared library. */
void coplace_bubble_preempt(coplace_bubble *bubble, int preempt);

/* Waiting for one another: the thread waits, its processor goes on. Made ones are never NULL, and are
 * freed when nobody uses them any more. */

coplace_mutex *coplace_mutex_make(void);
void coplace_mutex_free(coplace_mutex *mutex);
void coplace_mutex_lock(coplace_mutex *mutex);
/* EBUSY: somebody holds it. */
int coplace_mutex_trylock(coplace_mutex *mutex);
void coplace_mutex_unlock(coplace_mutex *mutex);

coplace_cond *coplace_cond_make(void);
void coplace_cond_free(coplace_cond *cond);
/* Lets go of the mutex until it is notified. */
void coplace_cond_wait(coplace_cond *cond, coplace_mutex *mutex);
void coplace_cond_signal(coplace_cond *cond);
void coplace_cond_broadcast(coplace_cond *cond);

coplace_sem *coplace_sem_make(size_t permits);
void coplace_sem_free(coplace_sem *sem);
void coplace_sem_wait(coplace_sem *sem);
/* EAGAIN: there is no permit. */
int coplace_sem_trywait(coplace_sem *sem);
void coplace_sem_post(coplace_sem *sem);

coplace_barrier *coplace_barrier_make(size_t count);
void coplace_barrier_free(coplace_barrier *barrier);
/* 1 for the one that came last, 0 for the others. */
int coplace_barrier_wait(coplace_barrier *barrier);

/* The runtime */

/* Processors, used or not; the one that runs the caller now, by its position in the machine's tree. */
size_t coplace_processors(void);
size_t coplace_processor(void);
/* Uses only these from now on, of them those that a coplace node leaves to the program. EINVAL: none of them is the
 * machine's. */
int coplace_set_processors(const size_t *processors, size_t count);
/* Has another scheduler decide from now on. EINVAL: there is none such. */
int coplace_use_scheduler(const char *scheduler);
/* Writes what lies on the lists into text, ended by 0 and cut to size bytes. Returns the bytes that the
 * whole takes without the 0. */
size_t coplace_placement(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
