/* A program without OpenMP that opens modules with their own runtimes, steered like app.c:
 *   open N PATH    close N    team N    tail N    max N    set N K    constructs N ROUNDS
 *   dynamic? N    dynamic N ON    ten N NAME ROUNDS    explicit N K    generated N ALL    dlerror */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *call(void *handle, const char *name)
{
    void *p = handle ? dlsym(handle, name) : NULL;
    if (!p)
        fprintf(stderr, "host: no %s: %s\n", name, dlerror());
    return p;
}

int main(void)
{
    void *modules[16] = {0};
    char line[4096], path[4000];
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        char word[32] = "";
        int n = 0;
        long k = 0;
        sscanf(line, "%31s %d %ld", word, &n, &k);
        void *module = modules[n & 15];
        if (!strcmp(word, "open") && sscanf(line, "%*s %*d %3999s", path) == 1) {
            modules[n & 15] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            printf("%s\n", modules[n & 15] ? "ok" : dlerror());
        } else if (!strcmp(word, "close")) {
            printf("%s\n", dlclose(module) == 0 ? "ok" : dlerror());
        } else if (!strcmp(word, "team")) {
            printf("%d\n", ((int (*)(void))call(module, "plugin_team"))());
        } else if (!strcmp(word, "tail")) {
            ((void (*)(void))call(module, "plugin_team_by_tail_call"))();
            printf("%d\n", ((int (*)(void))call(module, "plugin_hits"))());
        } else if (!strcmp(word, "max")) {
            printf("%d\n", ((int (*)(void))call(module, "plugin_max_threads_by_tail_call"))());
        } else if (!strcmp(word, "set")) {
            ((void (*)(int))call(module, "plugin_set_threads"))((int)k);
            printf("ok\n");
        } else if (!strcmp(word, "constructs")) {
            printf("%ld\n", ((long (*)(long))call(module, "plugin_constructs"))(k));
        } else if (!strcmp(word, "generated")) {
            printf("%ld\n", ((long (*)(int))call(module, "plugin_generated"))((int)k));
        } else if (!strcmp(word, "ten")) {
            sscanf(line, "%*s %*d %3999s %ld", path, &k);
            printf("%016llx\n", ((unsigned long long (*)(const char *, long))call(module, "plugin_ten"))(path, k));
        } else if (!strcmp(word, "explicit")) {
            printf("%d\n", ((int (*)(int))call(module, "plugin_explicit"))((int)k));
        } else if (!strcmp(word, "dynamic?")) {
            printf("%d\n", ((int (*)(void))call(module, "plugin_dynamic_by_tail_call"))());
        } else if (!strcmp(word, "dynamic")) {
            ((void (*)(int))call(module, "plugin_set_dynamic_by_tail_call"))((int)k);
            printf("ok\n");
        } else if (!strcmp(word, "dlerror")) {
            const char *e = dlerror();
            printf("%s\n", e ? e : "none");
        } else {
            printf("?\n");
        }
        fflush(stdout);
    }
    return 0;
}
