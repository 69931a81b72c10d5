/* Planted into the library under the thread sanitizer, around every region's entry: a counter that several masters
 * write as if each were alone. */
struct region;
struct runtime;
unsigned __real_region_enter(struct region *, const struct runtime *, unsigned, const void *);

static unsigned long entered;

unsigned __wrap_region_enter(struct region *region, const struct runtime *rt, unsigned asked, const void *code)
{
    entered++;
    return __real_region_enter(region, rt, asked, code);
}
