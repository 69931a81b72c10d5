/* For authors of OpenMP programs and libraries: put `COPLACE_RESIZABLE;` once, at file scope, into an object whose
 * results do not depend on the number of threads of its parallel regions, now or in the past. coplace then
 * changes the size of its teams while it runs, without looking at its code. Costs 24 bytes in the file and nothing else;
 * without coplace it has no effect. */
#ifndef COPLACE_RESIZABLE_H
#define COPLACE_RESIZABLE_H

/* An ELF note with the name "coplace" and type 1. */
#define COPLACE_RESIZABLE                                                                                  \
    __asm__(".pushsection .note.coplace,\"a\",%note\n"                                                    \
            ".balign 4\n"                                                                                  \
            ".long 8, 4, 1\n"                                                                              \
            ".asciz \"coplace\"\n"                                                                         \
            ".long 1\n"                                                                                    \
            ".popsection\n")

#endif
