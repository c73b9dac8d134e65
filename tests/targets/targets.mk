# SPDX-License-Identifier: GPL-3.0-or-later
# What single targets need beyond the common rule: TARGET_CFLAGS_name,
# TARGET_LIBS_name, libraries of their own, and the odd kinds of program.

$(BUILD)/targets/lib%.so: tests/targets/lib/%.c
	@mkdir -p $(@D)
	$(call say,TARGET,$@)
	$(Q)$(CC) -std=gnu11 -O2 -g -D_GNU_SOURCE -I. -fPIC -shared $(TARGET_CFLAGS_lib$*) -o $@ $<

TARGET_OWN_LIB = -L$(BUILD)/targets -Wl,-rpath,'$$ORIGIN'

$(BUILD)/targets/leak_chain: $(BUILD)/targets/libchain.so
TARGET_LIBS_leak_chain = $(TARGET_OWN_LIB) -lchain

$(TARGETS): tests/targets/target.h
