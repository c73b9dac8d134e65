/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Loads the entry object named by its argument, hooks malloc() by hand and
 * counts. Exits with 0 if each call was recorded once while on, and none while
 * off. Built with musl-gcc (targets.mk).
 */
#include "tests/targets/entry_load.h"

#include <stdlib.h>

static uint64_t recorded, recorded_bytes;

static void record(void *shm, const void *frame, uint64_t ptr, uint64_t size, uint64_t line)
{
	recorded++;
	recorded_bytes += size;
}

int main(int argc, char **argv)
{
	struct ha_gate gate = {HA_GATE_MAGIC};
	struct ha_entry *entry = argc == 2 ? entry_load(argv[1]) : NULL;
	entry_alloc *hooked_malloc;

	if (!entry || entry->magic != HA_MAGIC)
		return 2;
	entry->gate = (uint64_t)&gate;
	entry->core_alloc = (uint64_t)record;
	hooked_malloc = entry_stub(entry, 0, HA_CLASS_ALLOC, (uint64_t)malloc);
	for (int i = 0; i < 1000; i++) {
		entry->state = i < 500 ? HA_STATE_ON : HA_STATE_OFF;
		free(hooked_malloc((size_t)i));
	}
	return recorded == 500 && recorded_bytes == 499 * 500 / 2 ? 0 : 1;
}
