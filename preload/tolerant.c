/* Which code may get fewer threads than it asks for by itself: what tolerant.def lists, and what the user names in
 * COPLACE_TOLERANT, a list of patterns between colons (as in fnmatch(3), of a path or its last part), or 1 for
 * all that the program consists of. */
#define _GNU_SOURCE
#include "internal.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const listed[] = {
#define TOLERATES(pattern, what, tested) pattern,
#include "tolerant.def"
#undef TOLERATES
};

static char by_user[1024]; /* patterns, each ended by a zero byte, and one more behind the last */
static bool all_by_user;

void tolerant_load(void)
{
    const char *text = secure_getenv("COPLACE_TOLERANT");
    if (!text || strlen(text) + 2 > sizeof by_user)
        return;
    all_by_user = text_is(text, "1");
    for (size_t i = 0, n = 0; text[i]; i++) {
        if (text[i] != ':')
            by_user[n++] = text[i];
        else if (n > 0 && by_user[n - 1])
            by_user[n++] = '\0';
    }
}

static bool fits(const char *pattern, const char *path)
{
    const char *slash = strrchr(path, '/');
    return fnmatch(pattern, path, 0) == 0 || (slash && fnmatch(pattern, slash + 1, 0) == 0);
}

bool tolerant_object(const char *path)
{
    char own[4096];
    if (all_by_user)
        return true;
    if (!path[0]) { /* the program itself */
        ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
        own[n > 0 ? n : 0] = '\0';
        path = own;
    }
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++)
        if (fits(listed[i], path))
            return true;
    for (const char *pattern = by_user; *pattern; pattern += strlen(pattern) + 1)
        if (fits(pattern, path))
            return true;
    return false;
}
