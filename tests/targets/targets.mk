# SPDX-License-Identifier: GPL-3.0-or-later
# What single targets need beyond the common rule: TARGET_CFLAGS_name,
# TARGET_LIBS_name, libraries of their own, and the odd kinds of program.

$(BUILD)/targets/lib%.so: tests/targets/lib/%.c
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)$(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE -I. -fPIC -shared $(TARGET_CFLAGS_lib$*) -o $@ $< $(TARGET_LIBS_lib$*)

TARGET_OWN_LIB = -L$(BUILD)/targets -Wl,-rpath,'$$ORIGIN'

$(BUILD)/targets/leak_chain: $(BUILD)/targets/libchain.so
TARGET_LIBS_leak_chain = $(TARGET_OWN_LIB) -lchain

$(TARGETS): tests/targets/target.h

TARGET_LIBS_libouter = $(TARGET_OWN_LIB) -linner

# What watches itself, for other C libraries and with a sanitizer.
WITNESS_VARIANTS = $(BUILD)/targets/witness_asan $(if $(shell command -v musl-gcc),\
	$(BUILD)/targets/witness_musl $(BUILD)/targets/witness_musl_static)
TARGETS += $(WITNESS_VARIANTS)
VARIANT_CC_witness_asan = $(CC) -fsanitize=address
VARIANT_CC_witness_musl = musl-gcc
VARIANT_CC_witness_musl_static = musl-gcc -static

$(BUILD)/targets/witness $(BUILD)/targets/changer: tests/targets/witness.h
$(BUILD)/targets/changer: $(BUILD)/targets/libouter.so
$(BUILD)/targets/libouter.so: $(BUILD)/targets/libinner.so
$(WITNESS_VARIANTS): tests/targets/witness.c tests/targets/witness.h tests/targets/target.h
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)$(VARIANT_CC_$(@F)) -std=gnu11 -O2 -g -D_GNU_SOURCE -I. -w -o $@ $< -pthread

# Programs in Go: one without C, one that calls it.
GO_TARGETS = $(if $(shell command -v go),$(BUILD)/targets/gopher $(BUILD)/targets/gopher_cgo)
TARGETS += $(GO_TARGETS)
CGO_gopher = 0
CGO_gopher_cgo = 1

$(GO_TARGETS): $(BUILD)/targets/%: tests/targets/%.go
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)GOCACHE=$(abspath $(BUILD))/go GOFLAGS= GO111MODULE=off CGO_ENABLED=$(CGO_$*) CC=$(CC) \
		go build -o $@ $<

# A program for a Java virtual machine.
JAVA_TARGETS = $(if $(shell command -v javac),$(BUILD)/targets/Machine.class)
TARGETS += $(JAVA_TARGETS)

$(BUILD)/targets/Machine.class: tests/targets/Machine.java $(BUILD)/targets/libmachine.so
	$(call say,TARGET,$@)
	$(Q)javac -d $(@D) $<

$(BUILD)/targets/late: $(BUILD)/targets/liblate.so

$(BUILD)/targets/crowd: $(BUILD)/targets/libcrowd.so
TARGET_CFLAGS_libcrowd = -fno-plt

$(BUILD)/targets/deadlock_ctor: $(BUILD)/targets/libctor.so
TARGET_LIBS_deadlock_ctor = -rdynamic
TARGET_LIBS_atfork_jemalloc = -ljemalloc
TARGET_CFLAGS_forker = -fno-plt -fPIE
TARGET_CFLAGS_prefork = -fno-plt -fPIE

# The same storm for other C libraries and machines, where the compiler for
# them is installed.
TARGET_VARIANTS = $(BUILD)/targets/storm_static \
	$(if $(shell command -v musl-gcc),$(BUILD)/targets/storm_musl $(BUILD)/targets/storm_musl_static) \
	$(if $(wildcard /usr/include/x86_64-linux-gnu/32 /usr/lib32/libc.so),$(BUILD)/targets/storm_32)
TARGETS += $(TARGET_VARIANTS)

VARIANT_CC_storm_static = $(CC) -static
VARIANT_CC_storm_musl = musl-gcc
VARIANT_CC_storm_musl_static = musl-gcc -static
VARIANT_CC_storm_32 = gcc -m32

$(TARGET_VARIANTS): tests/targets/storm.c tests/targets/target.h
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)$(VARIANT_CC_$(@F)) -std=gnu11 -O2 -g -D_GNU_SOURCE -I. -w -o $@ $< -pthread

$(BUILD)/targets/entry_throw: tests/targets/entry_load.h payload/protocol.h

# A program of musl's alone, where musl-gcc is installed.
$(BUILD)/targets/entry_musl: tests/targets/entry_musl.c tests/targets/entry_load.h payload/protocol.h
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)musl-gcc -std=gnu11 -O2 -g -D_GNU_SOURCE -I. -o $@ $<

# One program, its calls bound in different ways.
TARGET_CFLAGS_slots_lazy = -Wl,-z,lazy
TARGET_CFLAGS_slots_now = -Wl,-z,relro,-z,now
TARGET_CFLAGS_slots_noplt = -fno-plt -Wl,-z,relro,-z,now
TARGET_CFLAGS_slots_nopie = -no-pie -fno-pie -Wl,-z,lazy
TARGET_CFLAGS_libslots_plugin = -Wl,-z,lazy
TARGET_CFLAGS_libslots_deepbind = -fno-builtin -Wl,-z,lazy
TARGET_CFLAGS_slots_asan = -fsanitize=address
SLOTS_TARGETS = $(addprefix $(BUILD)/targets/slots_,lazy now noplt nopie asan musl)
$(SLOTS_TARGETS): tests/targets/slots_program.h tests/targets/entry_load.h payload/protocol.h \
	| $(BUILD)/targets/libslots_plugin.so $(BUILD)/targets/libslots_deepbind.so

$(BUILD)/targets/slots_musl: tests/targets/slots_musl.c
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)musl-gcc -std=gnu11 -O2 -g -D_GNU_SOURCE -I. -o $@ $<

$(BUILD)/targets/places: $(BUILD)/targets/libpausing.so

# A server without symbols, and its debug file: its lines are found by build id.
$(BUILD)/targets/store: $(BUILD)/targets/store.stripped
$(BUILD)/targets/store.stripped: tests/targets/store.c tests/targets/target.h
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)$(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE -I. -Wl,--build-id -o $@.full $<
	$(Q)objcopy --only-keep-debug $@.full $(BUILD)/targets/store.debug
	$(Q)strip -o $@ $@.full
	$(Q)rm $@.full

# The compiler must not know that so much cannot be had.
TARGET_CFLAGS_throws = -Wno-alloc-size-larger-than
TARGET_LIBS_throws = -ljemalloc

# Preloaded into our program, not into a target.
$(BUILD)/targets/libfault.so: tests/targets/fault.h
TARGETS += $(BUILD)/targets/libfault.so
