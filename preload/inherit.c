/* Whether programs that this one executes are under the library too. They are, as the environment passes it on;
 * COPLACE_INHERIT=0 takes the library out of it at load, so that only this program is. COPLACE_PAGES stays, as the
 * node recognises a program's processes by it. */
#define _GNU_SOURCE
#include "internal.h"
#include "oldlibc.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* LD_PRELOAD without the library of this path. The loader separates by blanks and colons. */
static void take_out(char *list, const char *path)
{
    size_t len = strlen(path);
    char *to = list;
    for (const char *from = list; *from;) {
        size_t gap = strspn(from, " :"), word = strcspn(from + gap, " :");
        if (!(word == len && strncmp(from + gap, path, len) == 0)) {
            if (to == list)
                from += gap, gap = 0;
            memmove(to, from, gap + word);
            to += gap + word;
        }
        from += gap + word;
    }
    *to = '\0';
}

void inherit_load(void)
{
    const char *inherit = secure_getenv("COPLACE_INHERIT"), *preloads = secure_getenv("LD_PRELOAD");
    Dl_info own;
    if (!inherit || !text_is(inherit, "0"))
        return;
    if (preloads && dladdr((const void *)(uintptr_t)inherit_load, &own) && own.dli_fname) {
        char *left = strdup(preloads);
        if (left) {
            take_out(left, own.dli_fname);
            if (*left)
                setenv("LD_PRELOAD", left, 1);
            else
                unsetenv("LD_PRELOAD");
            free(left);
        }
    }
    unsetenv("COPLACE_INHERIT");
}
