// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Slots of a real process, written and put back while it runs. The target
 * plays core and counts what comes through (tests/targets/slots_program.h).
 */
#include "injector/functions.h"
#include "injector/slots.h"
#include "resolver/cleanup.h"
#include "tests/server.h"
#include "tests/subject.h"

#include <string.h>

#define ROUNDS "1000"

static struct subject subject;
static uint64_t entry;

/* The words of all planned and skipped slots, as they were. */
struct snapshot {
	uint64_t address[512], value[512];
	size_t count;
};

static void snapshot_take(struct snapshot *ret)
{
	ret->count = 0;
	for (size_t i = 0; i < subject.slots.count + subject.slots.skip_count; i++) {
		uint64_t address = i < subject.slots.count
					   ? subject.slots.slot[i].address
					   : subject.slots.skip[i - subject.slots.count].address;

		ck_assert_uint_lt(ret->count, 512);
		ret->address[ret->count] = address;
		assert_ok(memory_read_u64(&subject.memory, address, &ret->value[ret->count++]));
	}
}

/* Slots that the loader has bound meanwhile are not ours to answer for. */
static void snapshot_expect_same(const struct snapshot *before)
{
	for (size_t i = 0; i < before->count; i++) {
		uint64_t value;

		assert_ok(memory_read_u64(&subject.memory, before->address[i], &value));
		ck_assert_msg(value == before->value[i], "0x%llx held 0x%llx, now 0x%llx",
			      (unsigned long long)before->address[i],
			      (unsigned long long)before->value[i], (unsigned long long)value);
	}
}

static void start(const char *command)
{
	CLEANUP(freep) char *path = tests_build_path("payload/entry.so");
	char line[4096];

	subject_start(&subject, command);
	snprintf(line, sizeof(line), "entry %s", path);
	entry = strtoull(child_ask(&subject.child, line), NULL, 16);
	child_expect(&subject.child, "on", "ok");
	subject_update(&subject);
	subject_plan(&subject);
}

static void teardown(void)
{
	subject_end(&subject);
}

/* Publish the plan's pairs in the entry object, as the injector does before it writes slots. */
static void publish_pairs(void)
{
	uint64_t data = entry + HA_ENTRY_DATA;
	uint32_t bodies[HA_CLASSES], count = (uint32_t)subject.slots.pair_count;

	assert_ok(memory_read(&subject.memory, data + offsetof(struct ha_entry, bodies), bodies,
			      sizeof(bodies)));
	for (uint32_t i = 0; i < count; i++) {
		const struct function *function = functions_get(subject.slots.pair[i].function);
		struct ha_pair pair = {
			.call = subject.slots.pair[i].call,
			.body = entry + bodies[function->class],
			.function = subject.slots.pair[i].function,
		};

		assert_ok(target_write(subject.target,
				       data + offsetof(struct ha_entry, pairs) + i * sizeof(pair),
				       &pair, sizeof(pair)));
	}
	assert_ok(target_write(subject.target, data + offsetof(struct ha_entry, npairs), &count,
			       sizeof(count)));
	slots_place(&subject.slots, entry);
}

/* As boot makes them: the first @count, each if its word is what it was. */
static void make_changes(const struct ha_changes *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct ha_change *change = &list->change[i];
		uint64_t value;

		ck_assert_uint_eq(change->address % 8, 0);
		assert_ok(memory_read_u64(&subject.memory, change->address, &value));
		if (value == change->expected)
			assert_ok(target_write(subject.target, change->address, &change->value, 8));
	}
	slots_observe(&subject.memory, &subject.slots);
}

static struct slots_result write_listed(void)
{
	CLEANUP(freep) struct ha_changes *list = calloc(1, sizeof(*list));
	CLEANUP(changes_deinit) struct changes changes = {.list = list};
	struct slots_result result;

	assert_ok(slots_write(&subject.memory, &subject.slots, &changes, &result));
	make_changes(list, list->count);
	return result;
}

static struct slots_result write_slots(void)
{
	publish_pairs();
	return write_listed();
}

static struct slots_result restore_slots(void)
{
	CLEANUP(freep) struct ha_changes *list = calloc(1, sizeof(*list));
	CLEANUP(changes_deinit) struct changes changes = {.list = list};
	struct slots_result result;

	assert_ok(slots_restore(&subject.memory, &subject.modules, &subject.slots, &changes,
				&result));
	make_changes(list, list->count);
	return result;
}

/* ---- every way of binding calls */

static const char *const kinds[] = {"slots_lazy", "slots_now", "slots_noplt", "slots_nopie",
				    "slots_musl"};

START_TEST(hooks_each_call_once_and_restores_each_byte)
{
	const struct module *program;
	struct slots_result result;
	struct snapshot before;
	unsigned long allocated, reallocated, freed;
	size_t planned;

	start(kinds[_i]);
	program = modules_executable(&subject.modules);
	ck_assert_ptr_nonnull(subject_slot(&subject, program, "malloc"));
	ck_assert_ptr_nonnull(subject_slot(&subject, program, "free"));
	ck_assert_ptr_nonnull(subject_slot(&subject, program, "realloc"));
	planned = subject.slots.count;
	snapshot_take(&before);
	result = write_slots();
	ck_assert_uint_eq(result.written, planned);
	ck_assert_uint_eq(result.skipped, 0);

	child_send(&subject.child, "work " ROUNDS);
	ck_assert_int_eq(
		sscanf(child_line(&subject.child), "%lu %lu %lu", &allocated, &reallocated, &freed),
		3);
	ck_assert_uint_eq(allocated, 3000);
	ck_assert_uint_eq(reallocated, 1000);
	ck_assert_uint_eq(freed, 3000);

	result = restore_slots();
	ck_assert_uint_eq(result.restored, planned);
	ck_assert_uint_eq(result.lost + result.gone, 0);
	snapshot_expect_same(&before);
	child_expect(&subject.child, "work " ROUNDS, "0 0 0");
}
END_TEST

START_TEST(verifies_that_nothing_was_rebound)
{
	struct slots_result result;

	start(kinds[_i]);
	write_slots();
	child_send(&subject.child, "work " ROUNDS);
	child_line(&subject.child);
	assert_ok(slots_verify(&subject.memory, &subject.slots, &result));
	ck_assert_uint_eq(result.already, subject.slots.count);
	ck_assert_uint_eq(result.written + result.lost + result.gone, 0);
}
END_TEST

/* ---- unbound slots */

START_TEST(calls_the_definition_behind_an_unbound_slot)
{
	const struct module *program;
	const struct slot *slot;
	uint64_t definition;

	start("slots_lazy");
	program = modules_executable(&subject.modules);
	slot = subject_slot(&subject, program, "realloc");
	ck_assert(slot->unbound);
	ck_assert(module_has_code(program, slot->found));
	assert_ok(module_symbol(modules_libc(&subject.modules), "realloc", &definition));
	ck_assert_uint_eq(slot->call, definition);
	ck_assert_uint_eq(slot->restore, slot->found);
	slot = subject_slot(&subject, program, "malloc");
	ck_assert(!slot->unbound);
}
END_TEST

START_TEST(accepts_a_slot_that_was_bound_since_it_was_planned)
{
	struct slots_result result;

	start("slots_lazy");
	child_expect(&subject.child, "work 1", "0 0 0"); /* binds realloc and the others */
	result = write_slots();
	ck_assert_uint_eq(result.skipped, 0);
	ck_assert_uint_eq(result.written, subject.slots.count);
	restore_slots();
	for (size_t i = 0; i < subject.slots.count; i++) {
		const struct slot *slot = &subject.slots.slot[i];
		uint64_t value;

		/* What was bound meanwhile stays bound. */
		assert_ok(memory_read_u64(&subject.memory, slot->address, &value));
		ck_assert(value == slot->call || slot->unbound);
	}
}
END_TEST

START_TEST(writes_again_what_lazy_binding_overwrote)
{
	struct slots_result result;
	struct slot *slot;

	start("slots_lazy");
	write_slots();
	slot = subject_slot(&subject, modules_executable(&subject.modules), "realloc");
	for (int i = 0; i < 3; i++) {
		assert_ok(target_write(subject.target, slot->address, &slot->call, 8));
		assert_ok(slots_verify(&subject.memory, &subject.slots, &result));
		ck_assert_uint_eq(result.written, 1);
		ck_assert_int_eq(slot->state, SLOT_PLANNED);
		ck_assert_uint_eq(write_listed().written, 1);
		ck_assert_int_eq(slot->state, SLOT_WRITTEN);
	}
	assert_ok(target_write(subject.target, slot->address, &slot->call, 8));
	assert_ok(slots_verify(&subject.memory, &subject.slots, &result));
	ck_assert_uint_eq(result.lost, 1);
	ck_assert_int_eq(slot->state, SLOT_LOST);
	result = restore_slots();
	ck_assert_uint_eq(result.restored, subject.slots.count - 1);
}
END_TEST

/* ---- several allocators */

START_TEST(keeps_a_deepbound_library_with_its_own_allocator)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_deepbind.so");
	const struct module *plugin, *program;
	unsigned long bad, allocated, reallocated, freed;
	const struct slot *theirs, *ours;
	uint64_t definition;
	char line[4096];

	start("slots_now");
	snprintf(line, sizeof(line), "deepbind %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	subject_plan(&subject);
	plugin = subject_module(&subject, "/libslots_deepbind.so");
	program = modules_executable(&subject.modules);
	theirs = subject_slot(&subject, plugin, "malloc");
	ours = subject_slot(&subject, program, "malloc");
	ck_assert_ptr_nonnull(theirs);
	ck_assert(theirs->unbound);
	assert_ok(module_symbol(plugin, "malloc", &definition));
	ck_assert_uint_eq(theirs->call, definition);
	ck_assert_uint_ne(ours->call, definition);
	ck_assert_uint_ne(ours->pair, theirs->pair);
	write_slots();
	child_send(&subject.child, "plugin " ROUNDS);
	ck_assert_int_eq(sscanf(child_line(&subject.child), "%lu %lu %lu %lu", &bad, &allocated,
				&reallocated, &freed),
			 4);
	ck_assert_uint_eq(bad, 0);
	ck_assert_uint_eq(allocated, 1000);
	ck_assert_uint_eq(freed, 1000);
	restore_slots();
	child_expect(&subject.child, "plugin " ROUNDS, "0 0 0 0");
}
END_TEST

START_TEST(separates_the_allocators_of_namespaces)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	const struct slot *theirs, *ours;
	char line[4096];

	start("slots_now");
	snprintf(line, sizeof(line), "newspace %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	subject_plan(&subject);
	theirs = subject_slot(&subject, subject_module(&subject, "/libslots_plugin.so"), "malloc");
	ours = subject_slot(&subject, modules_executable(&subject.modules), "malloc");
	ck_assert_ptr_nonnull(theirs);
	ck_assert_uint_ne(theirs->call, ours->call);
	ck_assert_uint_eq(modules_find(&subject.modules, theirs->call)->name_space, 1);
	write_slots();
	child_expect(&subject.child, "plugin 10", "0 10 0 10");
	restore_slots();
	child_expect(&subject.child, "plugin 10", "0 0 0 0");
}
END_TEST

START_TEST(hooks_addresses_in_data)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	const struct module *plugin;
	size_t addresses = 0;
	char line[4096];

	start("slots_now");
	snprintf(line, sizeof(line), "load %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	subject_plan(&subject);
	plugin = subject_module(&subject, "/libslots_plugin.so");
	for (size_t i = 0; i < subject.slots.count; i++)
		addresses += subject.slots.slot[i].module == plugin->id &&
			     subject.slots.slot[i].kind == REFERENCE_ADDRESS;
	ck_assert_uint_eq(addresses, 1);
	write_slots();
	child_expect(&subject.child, "plugin 100", "0 100 0 100");
}
END_TEST

START_TEST(leaves_addresses_that_the_program_has_replaced)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	const struct module *plugin;
	uint64_t word, theirs;
	char line[4096];

	start("slots_now");
	snprintf(line, sizeof(line), "load %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	plugin = subject_module(&subject, "/libslots_plugin.so");
	assert_ok(module_symbol(plugin, "plugin_release", &word));
	assert_ok(module_symbol(modules_libc(&subject.modules), "close", &theirs));
	assert_ok(target_write(subject.target, word, &theirs, 8));
	subject_plan(&subject);
	ck_assert_uint_eq(subject_skipped(&subject, plugin, "free", SLOT_SKIP_REPLACED), 1);
	for (size_t i = 0; i < subject.slots.count; i++)
		ck_assert_uint_ne(subject.slots.slot[i].address, word);
	ck_assert(!slot_skip_is_loss(SLOT_SKIP_REPLACED));
}
END_TEST

START_TEST(finds_the_loaders_own_pointers)
{
	const struct module *loader;
	size_t found = 0;

	start("slots_now");
	loader = modules_loader(&subject.modules);
	for (size_t i = 0; i < subject.slots.count; i++) {
		const struct slot *slot = &subject.slots.slot[i];

		if (slot->module != loader->id)
			continue;
		ck_assert_int_eq(slot->kind, REFERENCE_LOADER);
		ck_assert(modules_find(&subject.modules, slot->call)->is_libc);
		found++;
	}
	ck_assert_uint_eq(found, 4);
}
END_TEST

/* ---- when things change under our hands */

START_TEST(leaves_slots_of_an_unloaded_object)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	struct slots_result result;
	uint32_t plugin;
	size_t theirs = 0;
	char line[4096];

	start("slots_now");
	snprintf(line, sizeof(line), "load %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	subject_plan(&subject);
	plugin = subject_module(&subject, "/libslots_plugin.so")->id;
	for (size_t i = 0; i < subject.slots.count; i++)
		theirs += subject.slots.slot[i].module == plugin;
	ck_assert_uint_gt(theirs, 1);
	write_slots();
	child_expect(&subject.child, "unload", "ok");
	subject_update(&subject);
	result = restore_slots();
	ck_assert_uint_eq(result.gone, theirs);
	ck_assert_uint_eq(result.restored, subject.slots.count - theirs);
}
END_TEST

START_TEST(leaves_a_new_object_at_the_old_address)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	struct snapshot before;
	char line[4096];

	start("slots_now");
	snprintf(line, sizeof(line), "load %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	subject_plan(&subject);
	snapshot_take(&before);
	write_slots();
	child_expect(&subject.child, "unload", "ok");
	child_expect(&subject.child, line, "ok"); /* most likely where it was */
	subject_update(&subject);
	restore_slots();
	snapshot_expect_same(&before);
	child_ask(&subject.child, "plugin 10"); /* tells what the loader did under hooks */
	child_expect(&subject.child, "plugin 10", "0 0 0 0");
}
END_TEST

START_TEST(leaves_slots_that_somebody_else_wrote)
{
	struct slots_result result;
	uint64_t theirs;
	struct slot *slot;
	uint64_t value;

	start("slots_now");
	write_slots();
	slot = subject_slot(&subject, modules_executable(&subject.modules), "calloc");
	assert_ok(module_symbol(modules_libc(&subject.modules), "abort", &theirs));
	assert_ok(target_write(subject.target, slot->address, &theirs, 8));
	result = restore_slots();
	ck_assert_uint_eq(result.lost, 1);
	assert_ok(memory_read_u64(&subject.memory, slot->address, &value));
	ck_assert_uint_eq(value, theirs);
}
END_TEST

START_TEST(skips_a_slot_that_changed_since_it_was_planned)
{
	struct slots_result result;
	uint64_t theirs, good;
	struct slot *slot;

	start("slots_now");
	slot = subject_slot(&subject, modules_executable(&subject.modules), "calloc");
	assert_ok(module_symbol(modules_libc(&subject.modules), "abort", &theirs));
	good = slot->found;
	assert_ok(target_write(subject.target, slot->address, &theirs, 8));
	result = write_slots();
	ck_assert_uint_eq(result.skipped, 1);
	ck_assert_int_eq(slot->state, SLOT_SKIPPED);
	assert_ok(target_write(subject.target, slot->address, &good, 8));
	restore_slots();
	child_expect(&subject.child, "work 10", "0 0 0");
}
END_TEST

/* A page that may not be opened, a window that has closed: only what was changed is ours. */
START_TEST(knows_which_changes_were_made)
{
	CLEANUP(freep) struct ha_changes *list = calloc(1, sizeof(*list));
	CLEANUP(changes_deinit) struct changes changes = {.list = list};
	struct slots_result result;
	struct snapshot before;

	start("slots_lazy");
	publish_pairs();
	snapshot_take(&before);
	for (size_t made = 0; made < subject.slots.count; made++) {
		changes_clear(list);
		assert_ok(slots_write(&subject.memory, &subject.slots, &changes, &result));
		ck_assert_uint_eq(list->count, subject.slots.count);
		make_changes(list, made);
		for (size_t i = 0; i < subject.slots.count; i++)
			ck_assert_int_eq(subject.slots.slot[i].state == SLOT_WRITTEN, i < made);
		ck_assert_uint_eq(restore_slots().restored, made);
		snapshot_expect_same(&before);
	}
	ck_assert_uint_eq(write_listed().written, subject.slots.count);
}
END_TEST

/* Its word is never what it was planned to be. */
START_TEST(skips_a_slot_that_is_tried_in_vain)
{
	struct slot *slot;
	int tries = 0;

	start("slots_now");
	slot = subject_slot(&subject, modules_executable(&subject.modules), "calloc");
	for (; slot->state == SLOT_PLANNED && tries < 100; tries++)
		slots_tried(&subject.slots);
	ck_assert_int_eq(slot->state, SLOT_SKIPPED);
	ck_assert_int_gt(tries, 1);
}
END_TEST

static enum function_rank rank_of(const struct ha_change *change)
{
	for (size_t i = 0; i < subject.slots.count; i++) {
		if (subject.slots.slot[i].address == change->address)
			return functions_get(subject.slots.slot[i].function)->rank;
	}
	ck_abort_msg("no slot at 0x%llx", (unsigned long long)change->address);
}

START_TEST(writes_releases_first_and_restores_them_last)
{
	CLEANUP(freep) struct ha_changes *list = calloc(1, sizeof(*list));
	CLEANUP(changes_deinit) struct changes changes = {.list = list};
	struct slots_result result;

	start("slots_now");
	publish_pairs();
	assert_ok(slots_write(&subject.memory, &subject.slots, &changes, &result));
	ck_assert_uint_eq(list->count, subject.slots.count);
	for (size_t i = 1; i < list->count; i++)
		ck_assert_int_le(rank_of(&list->change[i - 1]), rank_of(&list->change[i]));
	make_changes(list, list->count);
	changes_clear(list);
	assert_ok(slots_restore(&subject.memory, &subject.modules, &subject.slots, &changes,
				&result));
	ck_assert_uint_eq(list->count, subject.slots.count);
	for (size_t i = 1; i < list->count; i++)
		ck_assert_int_ge(rank_of(&list->change[i - 1]), rank_of(&list->change[i]));
	make_changes(list, list->count);
}
END_TEST

/* ---- attaching again */

START_TEST(never_takes_a_hook_for_an_original)
{
	size_t count, pairs;

	start("slots_now");
	write_slots();
	count = subject.slots.count;
	pairs = subject.slots.pair_count;
	subject_plan(&subject); /* as after the injector's death */
	ck_assert_uint_eq(subject.slots.count, count);
	ck_assert_uint_eq(subject.slots.pair_count, pairs);
	for (size_t i = 0; i < count; i++) {
		const struct slot *slot = &subject.slots.slot[i];

		ck_assert(slot->inherited);
		ck_assert_uint_eq(slot->found, slot->hook);
		ck_assert(modules_find(&subject.modules, slot->call)->is_libc);
		ck_assert(modules_find(&subject.modules, slot->restore)->is_libc);
	}
	ck_assert_uint_eq(write_slots().already, count);
	ck_assert_uint_eq(restore_slots().restored, count);
	child_expect(&subject.child, "work 10", "0 0 0");
}
END_TEST

START_TEST(uses_the_pairs_that_entry_has)
{
	struct slot_pair old[HA_PAIRS];
	size_t pairs;

	start("slots_now");
	write_slots();
	pairs = subject.slots.pair_count;
	memcpy(old, subject.slots.pair, sizeof(old));
	restore_slots();
	subject_plan(&subject);
	ck_assert_uint_eq(subject.slots.pair_count, pairs);
	for (size_t i = 0; i < pairs; i++) {
		ck_assert(subject.slots.pair[i].existing);
		ck_assert_uint_eq(subject.slots.pair[i].call, old[i].call);
		ck_assert_uint_eq(subject.slots.pair[i].function, old[i].function);
	}
	ck_assert_uint_eq(subject.slots.entry, entry);
}
END_TEST

START_TEST(does_not_trust_a_damaged_entry)
{
	uint64_t data;
	uint32_t bad[2] = {1u << 20, UINT32_MAX};
	size_t count;

	start("slots_now");
	data = entry + HA_ENTRY_DATA;
	write_slots();
	count = subject.slots.count;
	/* A function that does not exist, then more pairs than there is room for. */
	assert_ok(target_write(subject.target,
			       data + offsetof(struct ha_entry, pairs) +
				       offsetof(struct ha_pair, function),
			       &bad[0], 4));
	assert_fails(slots_plan(&subject.memory, &subject.maps, &subject.modules, &subject.slots),
		     ERROR_NOT_FOUND);
	assert_ok(
		target_write(subject.target, data + offsetof(struct ha_entry, npairs), &bad[1], 4));
	assert_fails(slots_plan(&subject.memory, &subject.maps, &subject.modules, &subject.slots),
		     ERROR_NOT_FOUND);
	ck_assert_uint_eq(subject.slots.count, count);
	restore_slots();
	child_expect(&subject.child, "work 10", "0 0 0");
}
END_TEST

START_TEST(keeps_what_to_restore_when_the_plan_is_made_anew)
{
	struct slots old, fresh;
	struct slots_result result;
	struct snapshot before;
	uint64_t unbound;

	start("slots_lazy");
	snapshot_take(&before);
	unbound = subject_slot(&subject, modules_executable(&subject.modules), "realloc")->restore;
	write_slots();
	old = subject.slots;
	subject.slots = (struct slots){0};
	subject_plan(&subject);
	fresh = subject.slots;
	slots_inherit(&fresh, &old);
	subject.slots = fresh;
	ck_assert_uint_eq(
		subject_slot(&subject, modules_executable(&subject.modules), "realloc")->restore,
		unbound);
	result = restore_slots();
	ck_assert_uint_eq(result.restored, fresh.count);
	snapshot_expect_same(&before);
	slots_deinit(&old);
}
END_TEST

/* ---- what is not hooked is said */

START_TEST(counts_copies_of_the_functions_addresses)
{
	size_t before, after;
	bool truncated;

	start("slots_now");
	assert_ok(slots_saved_pointers(&subject.memory, &subject.maps, &subject.slots, 64 << 20,
				       &before, &truncated));
	ck_assert(!truncated);
	child_expect(&subject.child, "save", "ok");
	subject_update(&subject);
	assert_ok(slots_saved_pointers(&subject.memory, &subject.maps, &subject.slots, 64 << 20,
				       &after, &truncated));
	ck_assert_uint_eq(after, before + 3);
	assert_ok(slots_saved_pointers(&subject.memory, &subject.maps, &subject.slots, 4096, &after,
				       &truncated));
	ck_assert(truncated);
}
END_TEST

START_TEST(says_that_calls_inside_an_allocator_go_direct)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_deepbind.so");
	char line[4096];

	start("slots_now");
	ck_assert_uint_eq(subject.slots.direct_count, 0); /* libc calls through its own slots */
	snprintf(line, sizeof(line), "deepbind %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	subject_plan(&subject);
	ck_assert_uint_eq(subject.slots.direct_count, 0); /* so does the plugin */
}
END_TEST

START_TEST(finds_nothing_in_a_static_program)
{
	struct slots slots;

	subject_start(&subject, "storm_static");
	assert_fails(slots_plan(&subject.memory, &subject.maps, &subject.modules, &slots),
		     ERROR_NOT_FOUND);
}
END_TEST

/* ---- real programs, at work */

static const struct {
	void (*start)(struct server *ret, const struct folder *folder);
	const char *allocator; /* the object whose malloc the program calls */
} servers[] = {
	{server_start_redis, "libjemalloc.so.2"}, {server_start_nginx, "libc.so.6"},
	{server_start_python, "libc.so.6"},	  {server_start_mariadb, "libc.so.6"},
	{server_start_node, "libc.so.6"},
};

/* The definition that a slot leads to is one that some object has under this name. */
static void expect_defined(const struct slot *slot)
{
	const char *name = functions_get(slot->function)->name;
	const struct module *module = modules_find_code(&subject.modules, slot->call);

	ck_assert_ptr_nonnull(module);
	ck_assert_msg(module_symbol_or_0(module, name) == slot->call, "%s at 0x%llx", name,
		      (unsigned long long)slot->call);
}

START_TEST(plans_every_slot_of_a_real_program)
{
	const struct module *program, *allocator;
	struct slots_result result;
	struct server server;
	struct folder folder;
	const struct slot *slot;

	folder_create(&folder);
	servers[_i].start(&server, &folder);
	subject_open(&subject, server.target);
	subject_plan(&subject);
	program = modules_executable(&subject.modules);
	allocator = subject_module(&subject, servers[_i].allocator);
	slot = subject_slot(&subject, program, "malloc");
	ck_assert_ptr_nonnull(slot);
	ck_assert_ptr_eq(modules_find(&subject.modules, slot->call), allocator);
	ck_assert_ptr_nonnull(subject_slot(&subject, program, "free"));
	for (size_t i = 0; i < subject.slots.count; i++)
		expect_defined(&subject.slots.slot[i]);
	for (int reason = SLOT_SKIP_UNDECIDED; reason < SLOT_SKIP_REASONS; reason++)
		ck_assert_uint_eq(subject.slots.skipped[reason], 0);

	/* A hook that is the function itself binds the unbound ones, and back. */
	slots_place(&subject.slots, HA_PAGE);
	for (size_t i = 0; i < subject.slots.count; i++)
		subject.slots.slot[i].hook = subject.slots.slot[i].call;
	result = write_listed();
	ck_assert_uint_eq(result.written + result.already, subject.slots.count);
	subject_update(&subject);
	restore_slots();
	server_expect_alive(&server);
	server_end(&server);
	folder_remove(&folder);
}
END_TEST

Suite *slots_suite(void)
{
	Suite *suite = suite_create("slots");
	TCase *tcase = tcase_create("process"), *real = tcase_create("servers");
	int count = (int)(sizeof(kinds) / sizeof(kinds[0]));

	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, hooks_each_call_once_and_restores_each_byte, 0, count);
	tcase_add_loop_test(tcase, verifies_that_nothing_was_rebound, 0, count);
	tcase_add_test(tcase, calls_the_definition_behind_an_unbound_slot);
	tcase_add_test(tcase, accepts_a_slot_that_was_bound_since_it_was_planned);
	tcase_add_test(tcase, writes_again_what_lazy_binding_overwrote);
	tcase_add_test(tcase, keeps_a_deepbound_library_with_its_own_allocator);
	tcase_add_test(tcase, separates_the_allocators_of_namespaces);
	tcase_add_test(tcase, hooks_addresses_in_data);
	tcase_add_test(tcase, leaves_addresses_that_the_program_has_replaced);
	tcase_add_test(tcase, finds_the_loaders_own_pointers);
	tcase_add_test(tcase, leaves_slots_of_an_unloaded_object);
	tcase_add_test(tcase, leaves_a_new_object_at_the_old_address);
	tcase_add_test(tcase, leaves_slots_that_somebody_else_wrote);
	tcase_add_test(tcase, skips_a_slot_that_changed_since_it_was_planned);
	tcase_add_test(tcase, knows_which_changes_were_made);
	tcase_add_test(tcase, skips_a_slot_that_is_tried_in_vain);
	tcase_add_test(tcase, writes_releases_first_and_restores_them_last);
	tcase_add_test(tcase, never_takes_a_hook_for_an_original);
	tcase_add_test(tcase, uses_the_pairs_that_entry_has);
	tcase_add_test(tcase, does_not_trust_a_damaged_entry);
	tcase_add_test(tcase, keeps_what_to_restore_when_the_plan_is_made_anew);
	tcase_add_test(tcase, counts_copies_of_the_functions_addresses);
	tcase_add_test(tcase, says_that_calls_inside_an_allocator_go_direct);
	tcase_add_test(tcase, finds_nothing_in_a_static_program);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(real, NULL, teardown);
	tcase_set_timeout(real, 240);
	tcase_add_loop_test(real, plans_every_slot_of_a_real_program, 0,
			    (int)(sizeof(servers) / sizeof(servers[0])));
	suite_add_tcase(suite, real);
	return suite;
}
