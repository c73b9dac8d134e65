// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/subject.h"

#include "injector/functions.h"

#include <string.h>

void subject_open(struct subject *ret, pid_t pid)
{
	*ret = (struct subject){0};
	assert_ok(target_open(pid, &ret->target));
	ret->memory = memory_reader_of(ret->target);
	ret->writer = memory_writer_of(ret->target);
	assert_ok(maps_read(pid, &ret->maps));
	assert_ok(modules_read(ret->target, &ret->maps, &ret->modules));
}

void subject_start(struct subject *ret, const char *command)
{
	struct folder folder;
	struct child child;

	folder_create(&folder);
	child_start_target(&child, &folder, "%s", command);
	subject_open(ret, child.pid);
	ret->folder = folder;
	ret->child = child;
}

void subject_update(struct subject *subject)
{
	maps_deinit(&subject->maps);
	assert_ok(maps_read(target_pid(subject->target), &subject->maps));
	assert_ok(modules_update(subject->target, &subject->maps, &subject->modules, NULL, NULL));
}

void subject_plan(struct subject *subject)
{
	slots_deinit(&subject->slots);
	assert_ok(slots_plan(&subject->memory, &subject->maps, &subject->modules, &subject->slots));
}

void subject_end(struct subject *subject)
{
	slots_deinit(&subject->slots);
	modules_deinit(&subject->modules);
	maps_deinit(&subject->maps);
	target_free(subject->target);
	if (subject->child.pid) {
		child_end(&subject->child);
		folder_remove(&subject->folder);
	}
	*subject = (struct subject){0};
}

const struct module *subject_module(const struct subject *subject, const char *name)
{
	for (size_t i = 0; i < subject->modules.count; i++) {
		const struct module *module = subject->modules.module[i];
		size_t length = strlen(module->path), end = strlen(name);

		if (length >= end && strcmp(module->path + length - end, name) == 0)
			return module;
		if (module->tables.soname && strcmp(module->tables.soname, name) == 0)
			return module;
	}
	ck_abort_msg("no module %s", name);
	return NULL;
}

struct slot *subject_slot(const struct subject *subject, const struct module *module,
			  const char *function)
{
	for (size_t i = 0; i < subject->slots.count; i++) {
		struct slot *slot = &subject->slots.slot[i];

		if (slot->module == module->id && slot->function == functions_find(function))
			return slot;
	}
	return NULL;
}

size_t subject_skipped(const struct subject *subject, const struct module *module,
		       const char *function, enum slot_skip_reason reason)
{
	size_t count = 0;

	for (size_t i = 0; i < subject->slots.skip_count; i++) {
		const struct slot_skip *skip = &subject->slots.skip[i];

		count += skip->module == module->id && skip->reason == reason &&
			 skip->function == functions_find(function);
	}
	return count;
}
