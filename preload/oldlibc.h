/* The functions of the dynamic loader moved from libdl to libc in glibc 2.34 and got a new version there.
 * Both are found under the old version, by which a library built today also loads on glibc 2.17. */
#ifndef COPLACE_OLDLIBC_H
#define COPLACE_OLDLIBC_H

#if defined(__x86_64__)
#define COPLACE_LIBC_BASE "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define COPLACE_LIBC_BASE "GLIBC_2.17"
#else
#error "name the oldest glibc version of this machine's ABI here"
#endif

__asm__(".symver dlsym, dlsym@" COPLACE_LIBC_BASE);
__asm__(".symver dladdr, dladdr@" COPLACE_LIBC_BASE);
__asm__(".symver dlerror, dlerror@" COPLACE_LIBC_BASE);
__asm__(".symver dlopen, dlopen@" COPLACE_LIBC_BASE);
__asm__(".symver dlclose, dlclose@" COPLACE_LIBC_BASE);

#endif
