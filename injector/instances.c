// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/instances.h"

#include <stdlib.h>

void instances_deinit(struct instances *instances)
{
	free(instances->instance);
	*instances = (struct instances){0};
}

struct error *instances_add(struct instances *instances, const struct instance *instance)
{
	if (instances->count == instances->capacity) {
		size_t capacity = instances->capacity ? 2 * instances->capacity : 64;
		void *grown = realloc(instances->instance, capacity * sizeof(*instance));

		if (!grown)
			return error_memory();
		instances->instance = grown;
		instances->capacity = capacity;
	}
	instances->instance[instances->count] = *instance;
	instances->instance[instances->count].generation_last = INSTANCE_LOADED;
	instances->count++;
	return NULL;
}

struct instance *instances_find_loaded(struct instances *instances, uint64_t low, uint64_t high,
				       uint64_t bias)
{
	size_t i;

	for (i = 0; i < instances->count; i++) {
		struct instance *instance = &instances->instance[i];

		if (instance->generation_last == INSTANCE_LOADED && instance->low == low &&
		    instance->high == high && instance->bias == bias)
			return instance;
	}
	return NULL;
}

const struct instance *instances_find(const struct instances *instances, uint64_t pc,
				      uint32_t generation)
{
	size_t i;

	for (i = 0; i < instances->count; i++) {
		const struct instance *instance = &instances->instance[i];

		if (pc >= instance->low && pc < instance->high &&
		    generation >= instance->generation_first &&
		    generation <= instance->generation_last)
			return instance;
	}
	return NULL;
}
