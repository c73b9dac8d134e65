// SPDX-License-Identifier: GPL-3.0-or-later
// Loads the entry object named by its argument and lets an original throw
// std::bad_alloc through the slow path. Exits with 0 if every exception was
// caught, destructors ran, and nobody stayed in core.
#include "tests/targets/entry_load.h"

#include <new>

static void *throwing_new(size_t)
{
	throw std::bad_alloc();
}

static int destroyed;

struct Witness {
	~Witness()
	{
		destroyed++;
	}
};

static void record(void *, const void *, uint64_t, uint64_t, uint64_t)
{
}

int main(int argc, char **argv)
{
	const int turns = 1000;
	struct ha_gate gate = {HA_GATE_MAGIC};
	struct ha_entry *entry = argc == 2 ? entry_load(argv[1]) : nullptr;
	entry_alloc *hooked_new;
	int caught = 0;

	if (!entry)
		return 2;
	entry->gate = reinterpret_cast<uint64_t>(&gate);
	entry->core_alloc = reinterpret_cast<uint64_t>(record);
	entry->state = HA_STATE_ON;
	hooked_new = entry_stub(entry, 0, HA_CLASS_ALLOC, reinterpret_cast<uint64_t>(throwing_new));
	for (int i = 0; i < turns; i++) {
		try {
			Witness witness;

			hooked_new(100);
		} catch (const std::bad_alloc &) {
			caught++;
		}
	}
	for (const struct ha_line &line : entry->lines)
		if (line.depth)
			return 3;
	return caught == turns && destroyed == turns ? 0 : 1;
}
