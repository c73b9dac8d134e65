// SPDX-License-Identifier: GPL-3.0-or-later
/* The parser of /proc/PID/maps on any bytes: no crash, and what it accepts is in order. */
#include <stdlib.h>

#include "resolver/maps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct maps maps = {0};
	struct error *err = maps_parse((const char *)data, size, &maps);

	if (err) {
		error_free(err);
		return 0;
	}
	for (size_t i = 0; i < maps.count; i++) {
		const struct map *map = &maps.map[i];

		if (map->start >= map->end || (i > 0 && map->start < map[-1].end) ||
		    maps_find(&maps, map->start) != map || maps_find(&maps, map->end - 1) != map)
			abort();
	}
	maps_deinit(&maps);
	return 0;
}
