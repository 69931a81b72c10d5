# Programs that the tests run, and the run itself. `make test ONLY=word` runs what has the word in its name.
OMP_CFLAGS := -O2 -g -std=gnu11 -Wall -Wextra -Wno-format-zero-length -Itests -I../include
LIBGOMP := $(shell $(CC) -print-file-name=libgomp.so.1)
PLUGINS := p q 1 2 3 4 5 6 7
TEST_PROGRAMS := $(addprefix $(OUT)/,app app_asan app_tsan app_kmp app_old app_none binder host plain plain_static \
	$(PLUGINS:%=plugin_%.so) plugin_u.so ten_gnu check libcoplace_preload_asan.so libcoplace_preload_tsan.so \
	libcoplace_preload_race.so)
# What is built where the tools are there (scripts/prepare gets them); tests that miss theirs say so.
CLANG ?= clang
ifeq ($(shell echo 'int main(void){return 0;}' | $(CLANG) -fopenmp -x c - -o /dev/null 2>/dev/null && echo yes),yes)
TEST_PROGRAMS += $(OUT)/ten_llvm $(OUT)/plugin_l.so
endif
ifneq ($(shell command -v musl-gcc),)
TEST_PROGRAMS += $(OUT)/plain_musl
endif
# A Python that has the wheels of tolerant.def.
export WHEELS_PYTHON ?= $(abspath ../.tools/wheels/bin/python)
# The libgomp that one of them brings.
WHEEL_LIBGOMP := $(firstword $(wildcard $(dir $(WHEELS_PYTHON))../lib/python3*/site-packages/scikit_learn.libs/libgomp*))
ifneq ($(WHEEL_LIBGOMP),)
TEST_PROGRAMS += $(OUT)/plugin_w.so
endif

$(OUT)/app: tests/app.c tests/constructs.h | $(OUT)
	$(CC) $(OMP_CFLAGS) -fopenmp -o $@ $< -lpthread

$(OUT)/app_asan: tests/app.c tests/constructs.h | $(OUT)
	$(CC) $(OMP_CFLAGS) -fsanitize=address -fopenmp -o $@ $< -lpthread

# The program and its OpenMP code are not instrumented, as libgomp is not: only what the library does is looked at.
$(OUT)/app_tsan: tests/app.c tests/constructs.h | $(OUT)
	$(CC) $(OMP_CFLAGS) -fopenmp -c -o $@.o $<
	$(CC) -fsanitize=thread -fopenmp -o $@ $@.o -lpthread

$(OUT)/libcoplace_preload_asan.so: SANITIZER := address,undefined
$(OUT)/libcoplace_preload_tsan.so: SANITIZER := thread
$(OUT)/libcoplace_preload_%.so: $(SOURCES) internal.h oldlibc.h tolerant.def ../include/coplace/page.h | $(OUT)
	$(CC) $(CPPFLAGS) $(CFLAGS) -O1 -Wno-tsan -fsanitize=$(SANITIZER) -fno-omit-frame-pointer -o $@ $(SOURCES) \
		-shared -Wl,-soname,$(@F) -ldl

# The same with a race in it: what finds none in the library has to find that one.
$(OUT)/libcoplace_preload_race.so: $(OUT)/libcoplace_preload_tsan.so tests/race.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -O1 -Wno-tsan -fsanitize=thread -fno-omit-frame-pointer -o $@ $(SOURCES) \
		tests/race.c -Wl,--wrap=region_enter -shared -Wl,-soname,$(@F) -ldl

$(OUT)/ten_gnu: tests/ten.c tests/ten.h | $(OUT)
	$(CC) $(OMP_CFLAGS) -fopenmp -o $@ $<

$(OUT)/ten_llvm: tests/ten.c tests/ten.h | $(OUT)
	$(CLANG) $(OMP_CFLAGS) -fopenmp -o $@ $<

$(OUT)/plain_musl: tests/plain.c | $(OUT)
	musl-gcc -O2 -o $@ $<

$(OUT)/host: tests/host.c | $(OUT)
	$(CC) $(OMP_CFLAGS) -o $@ $< -ldl

$(OUT)/binder: tests/binder.c | $(OUT)
	$(CC) $(OMP_CFLAGS) -o $@ $< -lpthread

$(OUT)/plain: tests/plain.c | $(OUT)
	$(CC) $(OMP_CFLAGS) -o $@ $<

$(OUT)/plain_static: tests/plain.c | $(OUT)
	$(CC) $(OMP_CFLAGS) -static -o $@ $<

# Private copies of libgomp under other names, as repaired Python wheels carry them. The name is as long as
# the old one, so it can be overwritten in the file.
$(OUT)/libgomp-%.so: | $(OUT)
	LC_ALL=C sed 's/libgomp\.so\.1/libgomp-$*.so/g' $(LIBGOMP) >$@

$(OUT)/plugin.o: tests/plugin.c tests/constructs.h tests/ten.h | $(OUT)
	$(CC) $(OMP_CFLAGS) -fopenmp -fPIC -c -o $@ $<

$(OUT)/plugin_%.so: $(OUT)/plugin.o $(OUT)/libgomp-%.so
	$(CC) -shared -o $@ $^ -Wl,-rpath,'$$ORIGIN'

$(OUT)/plugin_w.so: $(OUT)/plugin.o $(WHEEL_LIBGOMP)
	$(CC) -shared -o $@ $^ -Wl,-rpath,$(dir $(abspath $(WHEEL_LIBGOMP)))

$(OUT)/plugin_l.so: tests/plugin.c tests/constructs.h tests/ten.h | $(OUT)
	$(CLANG) $(OMP_CFLAGS) -fopenmp -fPIC -shared -o $@ $<

# Code that does not name its runtime; what brings it in does.
$(OUT)/libinner_u.so: $(OUT)/plugin.o
	$(CC) -shared -Wl,-soname,$(@F) -o $@ $<

$(OUT)/plugin_u.so: $(OUT)/libinner_u.so $(OUT)/libgomp-u.so
	echo | $(CC) -x c -fPIC -shared -o $@ - -x none -Wl,--no-as-needed $^ -Wl,-rpath,'$$ORIGIN'

$(OUT)/libfake_kmp.so: tests/fake_runtime.c | $(OUT)
	$(CC) $(OMP_CFLAGS) -DFAKE_KMP -fPIC -shared -Wl,-soname,libfake_kmp.so -o $@ $<

$(OUT)/libfake_old.so: tests/fake_runtime.c | $(OUT)
	$(CC) $(OMP_CFLAGS) -fPIC -shared -Wl,-soname,libfake_old.so -o $@ $<

# Linked against the whole of it, run with an empty library of that name.
$(OUT)/libfake_none.so: | $(OUT)
	echo | $(CC) -x c -fPIC -shared -Wl,-soname,$(@F) -o $@ -

$(OUT)/linked/libfake_none.so: tests/fake_runtime.c | $(OUT)
	mkdir -p $(@D)
	$(CC) $(OMP_CFLAGS) -fPIC -shared -Wl,-soname,$(@F) -o $@ $<

$(OUT)/app_none: tests/fake_app.c $(OUT)/linked/libfake_none.so $(OUT)/libfake_none.so
	$(CC) $(OMP_CFLAGS) -o $@ $< $(OUT)/linked/libfake_none.so -Wl,-rpath,'$$ORIGIN'

$(OUT)/app_kmp $(OUT)/app_old: $(OUT)/app_%: tests/fake_app.c $(OUT)/libfake_%.so
	$(CC) $(OMP_CFLAGS) -o $@ $< $(OUT)/libfake_$*.so -Wl,-rpath,'$$ORIGIN'

CHECK_SOURCES := $(addprefix tests/,check.c steer.c process.c sizing.c resizing.c runtimes.c \
	llvm.c tolerant.c sanitizer.c table.c binding.c)
$(OUT)/check: $(CHECK_SOURCES) tests/steer.h tolerant.def ../include/coplace/page.h | $(OUT)
	$(CC) $(OMP_CFLAGS) -I. -DSCRIPTS='"$(abspath tests/tolerant)"' -o $@ $(CHECK_SOURCES)

test: $(LIBRARY) $(TEST_PROGRAMS)
	$(OUT)/check $(OUT) $(ONLY)

# The same library on AArch64: cross-compiled, run by qemu-user, steered from outside.
ARM := $(OUT)/aarch64
ARM_TOOLS := aarch64-linux-gnu-gcc qemu-aarch64-static
test-aarch64: $(OUT)/check
	@for tool in $(ARM_TOOLS); do command -v $$tool >/dev/null || { \
		echo "SKIPPED IN PART the preload library on AArch64: there is no $$tool (scripts/prepare test as root)" >&2; exit 0; }; done; \
	$(MAKE) --quiet OUT=$(ARM) CC=aarch64-linux-gnu-gcc $(ARM)/libcoplace_preload.so $(ARM)/app $(ARM)/app_kmp && \
	EMULATOR=$$(command -v qemu-aarch64-static) SYSROOT=/usr/aarch64-linux-gnu $(OUT)/check $(ARM) $(ONLY)

.PRECIOUS: $(OUT)/libgomp-%.so
.PHONY: test test-aarch64
