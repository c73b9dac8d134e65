# SPDX-License-Identifier: GPL-3.0-or-later
# heapattach: the whole build. `make help` lists the targets.
#
#   BUILD=dir        where everything is made (build)
#   SAN=list         sanitizers for host code and tests, e.g. address,undefined
#   WERROR=1         warnings are errors (CI)
#   V=1              show whole commands
#   FUZZ_SECONDS=n   how long each fuzzer of `make fuzz` runs (300)
#   PREFIX, DESTDIR, MANDIR as usual

BUILD	?= build
ARCH	?= $(shell uname -m)
PREFIX	?= /usr/local
MANDIR	?= $(PREFIX)/share/man
V	?= 0
VERSION	:= 0.1

PACKAGES	= libelf libdw libunwind-ptrace libzstd libdeflate capstone zlib liblzma
TEST_PACKAGES	= check
PACKAGE_CFLAGS	:= $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PACKAGE_LIBS	:= $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)

Q_0	= @
Q	= $(Q_$(V))
say_0	= @printf '  %-8s %s\n' $(1) $(2);
say	= $(call say_$(V),$(1),$(2))

CFLAGS	?= -O2 -g
WARN	= -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	  -Wwrite-strings -Wundef -Wno-unused-parameter $(if $(WERROR),-Werror)
SANFLAGS = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
HOST_CFLAGS = -std=gnu11 $(WARN) -I. -D_GNU_SOURCE -DHA_VERSION='"$(VERSION)"' -pthread \
	  $(SANFLAGS) $(CFLAGS) $(PACKAGE_CFLAGS)
HOST_LIBS = $(PACKAGE_LIBS) -lunwind-generic -liberty -lm -pthread
# Functions are bound at the start, not at their first call, with a thread of the target stopped.
HOST_LDFLAGS = -Wl,-z,relro -Wl,-z,now

# gcc makes calls of memset out of loops; clang obeys -fno-builtin and has no such option.
NO_LOOP_CALLS := $(shell $(CC) -fno-tree-loop-distribute-patterns -E -x c /dev/null >/dev/null 2>&1 \
	  && echo -fno-tree-loop-distribute-patterns)

# The payload is freestanding: no libc, no TLS, no stack protector, nothing the
# compiler could turn into a call, general registers and SSE2 only.
PAYLOAD_CFLAGS = -std=gnu11 $(WARN) -I. -Ipayload/arch/$(ARCH) -O2 -g -ffreestanding -fPIC -fvisibility=hidden \
	  -fno-stack-protector -fno-builtin $(NO_LOOP_CALLS) -fcf-protection=none \
	  -fno-plt -fasynchronous-unwind-tables -fomit-frame-pointer -mno-avx -mno-red-zone \
	  -fno-strict-aliasing -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0

RESOLVER_SRC	= $(wildcard resolver/*.c)
INJECTOR_SRC	= $(filter-out injector/main.c,$(wildcard injector/*.c)) injector/arch/$(ARCH).c
CORE_SRC	= $(wildcard payload/core/*.c payload/boot/*.c) payload/arch/$(ARCH)/boot.S
ENTRY_SRC	= $(wildcard payload/entry/*.c) payload/arch/$(ARCH)/entry.S
# Payload files that make no system call: also built hosted, for the tests.
PURE_SRC	= $(wildcard payload/core/*.c)
TEST_SRC	= $(wildcard tests/*.c tests/arch/$(ARCH).c)

objects	= $(patsubst %,$(BUILD)/obj/%.o,$(1))
LIB_OBJ	= $(call objects,$(RESOLVER_SRC) $(INJECTOR_SRC) injector/payload_image.S)
PURE_OBJ = $(patsubst %,$(BUILD)/pure/%.o,$(PURE_SRC))
TEST_OBJ = $(call objects,$(TEST_SRC))
CORE_OBJ = $(patsubst %,$(BUILD)/payload/%.o,$(CORE_SRC))
ENTRY_OBJ = $(patsubst %,$(BUILD)/payload/%.o,$(ENTRY_SRC))

TARGETS = $(patsubst tests/targets/%.c,$(BUILD)/targets/%,$(wildcard tests/targets/*.c)) \
	  $(patsubst tests/targets/%.cc,$(BUILD)/targets/%,$(wildcard tests/targets/*.cc))

.PHONY: all
all: $(BUILD)/heapattach ## build build/heapattach

$(BUILD)/heapattach: $(call objects,injector/main.c) $(LIB_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) $(HOST_LDFLAGS) $(LDFLAGS) -o $@ $^ $(HOST_LIBS)

$(BUILD)/obj/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(HOST_CFLAGS) $(FUZZ_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/injector/payload_image.S.o: injector/payload_image.S $(BUILD)/payload/entry.so $(BUILD)/payload/core.bin
	@mkdir -p $(@D)
	$(call say,AS,$<)
	$(Q)$(CC) -DENTRY_FILE='"$(BUILD)/payload/entry.so"' -DCORE_FILE='"$(BUILD)/payload/core.bin"' -c -o $@ $<

# ---- payload

$(BUILD)/payload/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,"$< (payload)")
	$(Q)$(CC) $(PAYLOAD_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/payload/%.S.o: %.S
	@mkdir -p $(@D)
	$(call say,AS,"$< (payload)")
	$(Q)$(CC) $(PAYLOAD_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/payload/entry.so: payload/entry/entry.lds $(ENTRY_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -nostdlib -shared -Wl,-T,payload/entry/entry.lds -Wl,-z,defs -Wl,-z,noexecstack \
		-Wl,-z,norelro -Wl,--build-id=none -Wl,--hash-style=sysv -o $@.full $(ENTRY_OBJ)
	$(Q)strip -o $@ $@.full

$(BUILD)/payload/core.elf: payload/core/core.lds $(CORE_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) -nostdlib -shared -Wl,-T,payload/core/core.lds -Wl,-z,defs -Wl,-z,noexecstack \
		-Wl,--build-id=none -o $@ $(CORE_OBJ)

$(BUILD)/payload/core.bin: $(BUILD)/payload/core.elf
	$(call say,OBJCOPY,$@)
	$(Q)objcopy -O binary -j .core $< $@

$(BUILD)/pure/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,"$< (hosted)")
	$(Q)$(CC) $(HOST_CFLAGS) $(FUZZ_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<

# ---- tests

$(TEST_OBJ): EXTRA_CFLAGS += -DHA_SOURCE_DIR='"$(CURDIR)"'

include tests/targets/targets.mk

.PHONY: tests
tests: $(BUILD)/tests/run $(TARGETS)

$(BUILD)/tests/run: $(TEST_OBJ) $(PURE_OBJ) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(HOST_LIBS) $(shell pkg-config --libs $(TEST_PACKAGES))

$(BUILD)/targets/%: tests/targets/%.c
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)$(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE -I. $(TARGET_CFLAGS_$*) -o $@ $< -pthread -ldl $(TARGET_LIBS_$*)

$(BUILD)/targets/%: tests/targets/%.cc
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)$(CXX) -O2 -g -I. $(TARGET_CFLAGS_$*) -o $@ $< -pthread -ldl $(TARGET_LIBS_$*)

.PHONY: targets
targets: $(TARGETS)

# Everything that CI asks for. clang's build is the one under the sanitizers, so
# that its payload, too, is tested; then all suites run on gcc's plain build,
# whose closing line is the last one. What failed is printed last, since whoever
# reads a log reads its end. (addr2line 2.40, with which suites compare, does not
# read clang's DWARF 5.)
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j2)
SUBMAKE = $(MAKE) --no-print-directory $(JOBS)

# The recording code in 64 threads, under the thread sanitizer.
TSAN_SRC = tests/tsan/tsan_core.c tests/core_world.c tests/core_stack.c $(PURE_SRC)

$(BUILD)/tsan/core: $(TSAN_SRC) $(wildcard payload/*.h payload/core/*.h payload/arch/$(ARCH)/*.h tests/core_*.h)
	@mkdir -p $(@D)
	$(call say,TSAN,$@)
	$(Q)$(CC) -std=gnu11 -O1 -g -fsanitize=thread -DHA_TSAN -D_GNU_SOURCE -I. -pthread -o $@ $(TSAN_SRC) -lm

.PHONY: tsan
tsan: $(BUILD)/tsan/core ## 64 threads record under the thread sanitizer
	$(Q)$<

.PHONY: check
check: ## build with gcc and clang, audit, run all tests
	@scripts/setup build test
	+@$(SUBMAKE) BUILD=$(BUILD) WERROR=1 all tests
	@scripts/check-payload $(BUILD)
	@scripts/check-includes
	@echo '  CHECK    attaches that are mostly patience, beside unit suites under ASan and UBSan'
	+@scripts/side-by-side $(BUILD) unit 'set -e; renice -n 10 $$$$ >/dev/null; \
			$(SUBMAKE) BUILD=$(BUILD)/asan CC=clang CXX=clang++ SAN=address,undefined \
				CFLAGS="-O1 -g1 -gdwarf-4" WERROR=1 all $(BUILD)/asan/tests/run; \
			ln -sfn ../targets $(BUILD)/asan/targets; \
			$(call san_env,1) CK_RUN_SUITE=attach_exact CK_RUN_CASE=chain \
				$(BUILD)/asan/tests/run patient; \
			$(call san_env,0) $(BUILD)/asan/tests/run unit; \
			$(call pure_suites,$(BUILD)/asan/tests/run); \
			$(BUILD)/tests/run unit pure' \
		patient '$(BUILD)/tests/run patient && $(BUILD)/tests/run oracle'
	+@$(SUBMAKE) BUILD=$(BUILD) tsan
	@echo '  CHECK    attaches'
	@$(BUILD)/tests/run system

.PHONY: check-long
check-long: all tests ## attach suites with 1,000 cycles and a fault at each step: hours
	@HEAPATTACH_TESTS_CYCLES=1000 HEAPATTACH_TESTS_STRIDE=1 CK_TIMEOUT_MULTIPLIER=20 \
		$(BUILD)/tests/run system patient

# $(1): 1 = leaks are looked for at the end of each process, which takes longer
# than most tests. The runner forks for each of them: a large quarantine would be
# copied each time.
san_env = ASAN_OPTIONS=detect_leaks=$(1):detect_stack_use_after_return=1:strict_string_checks=1:quarantine_size_mb=16 \
	  UBSAN_OPTIONS=print_stacktrace=1

# Each suite whose tests can share a process, in one, so that leaks are looked
# for once. There Check sets no time limit.
pure_suites = for suite in $$(sed -n "s/^PURE_SUITE(\(.*\))/\1/p" tests/suites.h); do \
		$(call san_env,1) CK_FORK=no CK_VERBOSITY=minimal CK_RUN_SUITE=$$suite \
			timeout 600 $(1) pure || { echo "suite $$suite failed"; exit 1; }; \
	done

# ---- fuzzing: tests/fuzz/NAME.c, with its corpus in tests/fuzz/corpus/NAME

FUZZ_SECONDS ?= 300
FUZZ_NAMES = $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))
FUZZ_MAKE = $(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang SAN=address,undefined \
	    FUZZ_CFLAGS=-fsanitize=fuzzer-no-link

$(BUILD)/fuzzers/%: $(BUILD)/obj/tests/fuzz/%.c.o $(PURE_OBJ) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $^ $(HOST_LIBS)

.PHONY: fuzz
fuzz: ## run each fuzzer for FUZZ_SECONDS (clang's libFuzzer)
	+@$(FUZZ_MAKE) $(FUZZ_NAMES:%=$(BUILD)/fuzz/fuzzers/%)
	@set -e; for name in $(FUZZ_NAMES); do \
		echo "  FUZZ     $$name, $(FUZZ_SECONDS) s"; \
		mkdir -p $(BUILD)/fuzz/corpus/$$name tests/fuzz/corpus/$$name; \
		$(BUILD)/fuzz/fuzzers/$$name -max_total_time=$(FUZZ_SECONDS) -print_final_stats=0 \
			-verbosity=0 -artifact_prefix=$(BUILD)/fuzz/$$name- \
			$(BUILD)/fuzz/corpus/$$name tests/fuzz/corpus/$$name; \
	done

# ---- the rest

.PHONY: lint
lint: ## clang-format, shellcheck and cppcheck
	@scripts/lint

# For scripts/bench --symbols.
$(BUILD)/bench/symbolize: $(call objects,tests/bench/symbolize.c) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(HOST_LIBS)

.PHONY: bench
bench: all targets $(BUILD)/bench/symbolize ## what an attach costs, beside other profilers that are installed: an hour
	@scripts/bench $(BUILD)
	@scripts/bench-peers $(BUILD)

.PHONY: demo
demo: ## find a planted leak in a running redis-server
	@scripts/setup build demo
	+@$(SUBMAKE) BUILD=$(BUILD) all
	@scripts/demo $(BUILD)

.PHONY: install
install: all ## install the program and its manual below PREFIX
	install -D -m 755 $(BUILD)/heapattach $(DESTDIR)$(PREFIX)/bin/heapattach
	install -D -m 644 injector/heapattach.1 $(DESTDIR)$(MANDIR)/man1/heapattach.1

.PHONY: uninstall
uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/heapattach $(DESTDIR)$(MANDIR)/man1/heapattach.1

.PHONY: clean
clean: ## remove build/
	rm -rf $(BUILD)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 14

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
