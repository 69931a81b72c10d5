# The two commands: `make demo` and `make test`. Everything else serves them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

PREFIX ?= /usr/local
BUILD := $(CURDIR)/build
COPLACE := target/release/coplace
# The toolchain that scripts/prepare may have put into the checkout comes first.
export PATH := $(CURDIR)/.tools/cargo/bin:$(PATH)
export RUSTUP_HOME ?= $(if $(wildcard .tools/rustup),$(CURDIR)/.tools/rustup,$(HOME)/.rustup)
export CARGO_HOME ?= $(if $(wildcard .tools/cargo),$(CURDIR)/.tools/cargo,$(HOME)/.cargo)

.PHONY: build apps preload reuse-tool guest demo test lint bench experiments soak install uninstall deb wheel clean prepare

prepare:
	@scripts/prepare build

build: prepare
	@cargo build --release --quiet -p coplace-cli -p coplace-bubbles
	@$(MAKE) --quiet preload apps reuse-tool
	@echo "built $(COPLACE), $(BUILD)/preload, $(BUILD)/apps and, where valgrind is, $(BUILD)/reuse-tool"

preload:
	@$(MAKE) --quiet -C preload OUT=$(BUILD)/preload

apps:
	@$(MAKE) --quiet -C apps OUT=$(BUILD)/apps

reuse-tool:
	@$(MAKE) --quiet -C reuse-tool OUT=$(BUILD)/reuse-tool

# What tests/guest takes into its machine beside coplace.
guest: build
	@$(MAKE) --quiet -C apps static OUT=$(BUILD)/apps
	@mkdir -p $(BUILD)/guest
	@$(CC) -O2 -std=gnu11 -Wall -fopenmp -o $(BUILD)/guest/breathe tests/programs/breathe.c
	@$(CC) -O2 -std=gnu11 -Wall -fopenmp -static -o $(BUILD)/guest/breathe-static tests/programs/breathe.c 2>/dev/null
	@rm -f $(BUILD)/guest/breathe-llvm
	@clang -O2 -std=gnu11 -Wall -fopenmp -o $(BUILD)/guest/breathe-llvm tests/programs/breathe.c 2>/dev/null || true
	@if command -v dpkg-shlibdeps >/dev/null; then cp "$$(scripts/deb)" $(BUILD)/guest/coplace.deb; fi

demo: build
	@scripts/demo

# Everything that must hold, on a fresh machine: as root it installs what the real parts need,
# otherwise it skips those parts. The last lines list what was skipped and why.
test:
	@scripts/prepare test
	@scripts/test

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

bench: build
	cargo bench --workspace
	@$(MAKE) --quiet -C preload bench OUT=$(BUILD)/preload

# Every quick experiment; prints what does not hold. FULL=1 runs the long ones and rewrites the
# committed results.
experiments: build
	@scripts/experiments $(if $(FULL),--full,--quick)

# The long counts of the same tests; the outcomes are committed in experiments/soak and
# experiments/bubbles-soak. The last explores a million worlds, an hour on two CPUs.
soak: build
	@experiments/soak/run
	@experiments/bubbles-soak/run
	@experiments/soak/run --worlds

install: build
	install -D -m 755 $(COPLACE) $(DESTDIR)$(PREFIX)/bin/coplace
	install -D -m 755 $(BUILD)/preload/libcoplace_preload.so $(DESTDIR)$(PREFIX)/lib/coplace/libcoplace_preload.so
	install -D -m 644 include/coplace/page.h $(DESTDIR)$(PREFIX)/include/coplace/page.h
	DESTDIR=$(DESTDIR) scripts/install-bubbles $(PREFIX)
	test ! -d $(BUILD)/reuse-tool || { mkdir -p $(DESTDIR)$(PREFIX)/lib/coplace/reuse-tool && \
		cp -d $(filter-out %.o,$(wildcard $(BUILD)/reuse-tool/*)) $(DESTDIR)$(PREFIX)/lib/coplace/reuse-tool/; }
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(COPLACE) man $(DESTDIR)$(PREFIX)/share/man/man1
	$(COPLACE) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/coplace

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/coplace $(DESTDIR)$(PREFIX)/include/coplace/page.h
	rm -rf $(DESTDIR)$(PREFIX)/lib/coplace $(DESTDIR)$(PREFIX)/lib/cmake/coplace-bubbles
	rm -f $(DESTDIR)$(PREFIX)/lib/libcoplace_bubbles.* $(DESTDIR)$(PREFIX)/lib/pkgconfig/coplace-bubbles.pc
	rm -f $(DESTDIR)$(PREFIX)/include/coplace/bubbles.h
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/coplace*.1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions/coplace

# A Debian package for machines like this one, in build/deb.
deb: build
	@scripts/deb

# A static binary and the wheel that carries it, in build/wheel; for this kind of machine, or MACHINE=aarch64.
wheel: prepare
	@scripts/wheel $(MACHINE)

clean:
	rm -rf target build .demo
