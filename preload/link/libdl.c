/* Stands in for libdl.so.2 when the preload library is linked, and is never loaded: it says that the loader's functions
 * are those of that library, as they were up to glibc 2.33. Linked with a later one, the library would ask for them in
 * libc.so.6, and loaders up to glibc 2.29 refuse a program whose library asks in the wrong place (their bug 24741). */
#include "oldlibc.h"

#define STANDS_IN_FOR(name)                                              \
	__asm__(".symver stub_" #name ", " #name "@@" COPLACE_LIBC_BASE);    \
	void stub_##name(void);                                              \
	__attribute__((visibility("default"))) void stub_##name(void) {}

STANDS_IN_FOR(dlsym)
STANDS_IN_FOR(dladdr)
STANDS_IN_FOR(dlerror)
STANDS_IN_FOR(dlopen)
STANDS_IN_FOR(dlclose)
