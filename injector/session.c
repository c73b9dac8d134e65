// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/session.h"
#include "injector/clock.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "injector/functions.h"
#include "injector/hugepage.h"
#include "injector/image.h"
#include "injector/worker.h"
#include "resolver/cleanup.h"
#include "resolver/maps.h"

/*
 * A target that loads libraries all the time gets plans made anew for so long
 * before we give up.
 */
#define LOCK_LIMIT_MS  20000 /* an attach or an end of another one takes less */
#define LOCK_WAIT_MS   20
#define PLANS_LIMIT_MS 5000

/* A worker's own limits add up to less; then something is wrong with it. */
#define WORKER_TIMEOUT_MS 30000

/* Threads that were killed have ended by then, but for what dumps core or waits in the kernel. */
#define ENDING_TRIES 50 /* a millisecond apart */

/* Memory searched for copies of the functions' addresses. */
#define SAVED_POINTERS_LIMIT (64ull << 20)

#define NS_PER_MS	     1000000ull

uint64_t session_elapsed_ns(const struct session *session)
{
	return session->start_ns ? clock_now_ns() - session->start_ns : 0;
}

void session_freep(struct session **session)
{
	session_free(*session);
}

static struct shm_options shm_options_of(const struct options *options)
{
	return (struct shm_options){
		.sampling = !options->exact,
		.interval = options->interval ? options->interval : BUDGET_INTERVAL_FIRST,
	};
}

struct preflight_options session_needs(const struct options *options)
{
	const struct shm_options shm = shm_options_of(options);

	return (struct preflight_options){
		.virtual_size = shm_size(&shm),
		.resident_size = 64ull << 20,
	};
}

struct error *session_create(const struct options *options, struct session **ret)
{
	CLEANUP(session_freep) struct session *session = calloc(1, sizeof(*session));
	struct preflight_options preflight = session_needs(options);
	struct error *err;

	if (!session)
		return error_memory();
	session->options = options;
	err = preflight_process(options->pid, &preflight, &session->preflight);
	if (!err)
		err = target_open(options->pid, &session->target);
	if (err)
		return err;
	session->memory = memory_reader_of(session->target);
	session->writer = memory_writer_of(session->target);
	err = journal_create(&session->journal);
	if (!err)
		err = job_result_create(&session->result);
	if (!err)
		err = profile_create(&session->profile);
	if (!err)
		err = symbolizer_create(NULL, &session->symbolizer);
	if (err)
		return err;
	session_memory_init(session);
	*ret = take(session);
	return NULL;
}

void session_free(struct session *session)
{
	if (!session)
		return;
	if (session->attached)
		error_free(session_stop(session));
	fill_deinit(&session->fill);
	selfcheck_free(session->selfcheck);
	reader_free(session->reader);
	shm_free(session->shm);
	slots_deinit(&session->slots);
	code_deinit(&session->code);
	instances_deinit(&session->instances);
	modules_deinit(&session->modules);
	maps_deinit(&session->maps);
	symbolizer_free(session->symbolizer);
	profile_free(session->profile);
	job_result_free(session->result);
	journal_free(session->journal);
	target_free(session->target);
	preflight_deinit(&session->preflight);
	free(session);
}

/* ------------------------------------------------------------------------
 * The plan: everything that is known and decided before the target is touched
 */

static void plan_drop(struct session *session)
{
	slots_deinit(&session->slots);
	session->slots = (struct slots){0};
	maps_deinit(&session->maps);
	session->maps = (struct maps){0};
}

/* The filter that an earlier session has given to entry: it lies there if nobody unmapped it. */
static void filter_adopt(struct session *session, uint64_t address)
{
	const struct map *map = address ? maps_find(&session->maps, address) : NULL;
	struct journal *journal = session->journal;

	if (!map || !map->read || !map->write || map->shared || map->inode ||
	    map->end - address < HA_FILTER_SIZE)
		return;
	journal->filter = (struct journal_mapping){
		.address = address,
		.size = HA_FILTER_SIZE,
		.state = JOURNAL_THERE,
	};
	journal->filter_named = 1;
}

/* What earlier attaches have left in the target for good; entry counts them. */
static struct error *entry_adopt(struct session *session)
{
	const struct module *module = modules_entry(&session->modules);
	struct ha_entry entry;
	struct error *err;

	session->number = 1;
	if (!module)
		return NULL;
	err = memory_read(&session->memory, module->low + HA_ENTRY_DATA, &entry,
			  offsetof(struct ha_entry, pairs));
	if (err)
		return err;
	session->number = entry.session + 1;
	session->journal->entry.address = module->low;
	session->journal->entry.size = HA_ENTRY_SIZE;
	session->journal->entry.state = JOURNAL_THERE;
	/* Slots of the program may lead to it, and only its loader may unmap it. */
	session->journal->entry_by_loader = 1;
	filter_adopt(session, entry.filter);
	return NULL;
}

/* Only who knows where the loader's counter is can tell how old a list is. */
static struct error *modules_first(struct session *session)
{
	struct error *err = maps_read(target_pid(session->target), &session->maps);

	if (!err)
		err = modules_read(session->target, &session->maps, &session->modules);
	if (!err)
		err = loaderinfo_read(&session->memory, &session->maps, target_pid(session->target),
				      0, &session->modules, &session->loader_info);
	/* All of it, or the next plan begins with it again. */
	if (err)
		modules_deinit(&session->modules);
	return err;
}

static struct error *plan_modules(struct session *session)
{
	struct error *err = NULL;

	if (!session->modules.module)
		err = modules_first(session);
	return err ? err : session_modules_update(session, NULL, NULL);
}

static struct error *plan_slots(struct session *session)
{
	struct error *err;

	err = code_update(&session->code, &session->memory, &session->modules);
	if (!err)
		err = slots_plan(&session->memory, &session->maps, &session->modules,
				 &session->slots);
	if (!err)
		err = preflight_allocator(&session->modules, &session->slots, &session->preflight);
	return err ? err : entry_adopt(session);
}

/* A loader at work is asked again; what the image is refused for will not change. */
static struct error *busy_note(struct session *session, struct error *err)
{
	if (error_is(err, ERROR_BUSY))
		session->result->modules_changed = 1;
	return err;
}

static struct error *plan_image(struct session *session)
{
	struct error *err;

	plan_drop(session);
	err = busy_note(session, plan_modules(session));
	return err ? err
		   : preflight_image(&session->memory, &session->modules, &session->preflight);
}

/* Memory that a process has given up, since it ends, looks as if nothing were in it. */
struct error *session_gone_or(const struct session *session, struct error *err)
{
	struct error *gone = err ? target_check(session->target) : NULL;

	if (gone)
		error_free(err);
	return gone ? gone : err;
}

struct error *session_plan(struct session *session)
{
	struct error *err = plan_image(session);

	if (!err)
		err = busy_note(session, plan_slots(session));
	return session_gone_or(session, err);
}

/* Where the main thread's stack is; it may still grow down to what lies below. */
static void main_stack_find(const struct maps *maps, struct ha_shm *header)
{
	size_t i;

	for (i = 0; i < maps->count; i++) {
		if (strcmp(maps->map[i].path, "[stack]"))
			continue;
		header->main_stack_high = maps->map[i].end;
		header->main_stack_low = i ? maps->map[i - 1].end : HA_PAGE;
	}
}

/*
 * Without the C library's word on it every private writable mapping may be a
 * stack; the payload clips a region at the thread's control block.
 */
static struct error *stacks_publish(struct session *session)
{
	const struct maps *maps = &session->maps;
	CLEANUP(freep) struct ha_stack *stacks = NULL;
	uint64_t count = 0;
	size_t i;

	if (session->loader_info.tcb_stack_offset)
		return NULL;
	stacks = calloc(maps->count + 1, sizeof(*stacks));
	if (!stacks)
		return error_memory();
	for (i = 0; i < maps->count; i++) {
		const struct map *map = &maps->map[i];

		if (!map->read || !map->write || map->shared || map->inode)
			continue;
		stacks[count].low = map->start;
		stacks[count++].high = map->end;
	}
	return shm_publish_stacks(session->shm, stacks, count);
}

static struct error *shm_fill(struct session *session)
{
	struct ha_shm *header = session->shm->header;
	struct error *err;

	header->session = session->number;
	header->main_fs = session->loader_info.main_fs;
	header->tcb_stack_offset = session->loader_info.tcb_stack_offset;
	header->load_adds = session->loader_info.load_adds;
	main_stack_find(&session->maps, header);
	err = session_instances_update(session, false);
	if (!err)
		err = stacks_publish(session);
	return err;
}

/* ------------------------------------------------------------------------
 * Module instances
 */

static struct error *instance_names(struct session *session, const struct module *module,
				    struct instance *instance)
{
	char root[32], build_id[2 * MODULE_BUILD_ID + 1] = "";
	struct profile_module described = {
		.path = module->path[0] ? module->path : module->name,
		.low = instance->low,
		.high = instance->high,
		.file_offset = 0,
		.bias = module->bias,
		.executable = module->is_executable,
	};
	struct symbolizer_module file = {
		.path = described.path,
		.fd = module->fd,
		.root = root,
		.build_id = module->build_id,
		.build_id_size = module->build_id_size,
	};
	const struct map *map = maps_find(&session->maps, instance->low);
	struct error *err;
	size_t i;

	for (i = 0; i < module->build_id_size; i++)
		snprintf(build_id + 2 * i, 3, "%02x", module->build_id[i]);
	described.build_id = build_id[0] ? build_id : NULL;
	if (map)
		described.file_offset = map->offset;
	snprintf(root, sizeof(root), "/proc/%d/root", target_pid(session->target));
	err = profile_add_module(session->profile, &described, &instance->profile_module);
	return err ? err : symbolizer_add(session->symbolizer, &file, &instance->symbolizer_module);
}

static struct error *instance_add(struct session *session, const struct module *module,
				  const struct module_range *range)
{
	struct instance instance = {
		.low = range->start,
		.high = range->end,
		.bias = module->bias,
		.generation_first = session->generation,
	};
	struct error *err;

	if (instances_find_loaded(&session->instances, instance.low, instance.high, instance.bias))
		return NULL;
	err = instance_names(session, module, &instance);
	return err ? err : instances_add(&session->instances, &instance);
}

static bool instance_is_loaded(const struct session *session, const struct instance *instance)
{
	const struct module *module = modules_find_code(&session->modules, instance->low);

	return module && module->bias == instance->bias;
}

struct error *session_instances_update(struct session *session, bool removed)
{
	struct error *err;
	size_t i, k;

	for (i = 0; i < session->instances.count && removed; i++) {
		struct instance *instance = &session->instances.instance[i];

		if (instance->generation_last == INSTANCE_LOADED &&
		    !instance_is_loaded(session, instance))
			instance->generation_last = session->generation;
	}
	if (!session->generation || removed)
		session->generation++;
	for (i = 0; i < session->modules.count; i++) {
		const struct module *module = session->modules.module[i];

		for (k = 0; k < module->exec_count; k++) {
			err = instance_add(session, module, &module->exec[k]);
			if (err)
				return err;
		}
	}
	return NULL;
}

/* ------------------------------------------------------------------------
 * The attach
 */

struct error *session_job(struct session *session, struct job *ret)
{
	memset(session->result, 0, sizeof(*session->result));
	memset(ret, 0, sizeof(*ret));
	ret->target = session->target;
	ret->journal = session->journal;
	ret->shm = session->shm;
	ret->modules = &session->modules;
	ret->code = &session->code;
	ret->slots = &session->slots;
	ret->loader_info = &session->loader_info;
	ret->reader = session->memory;
	ret->writer = session->writer;
	ret->session = session->number;
	ret->idle_depth = session->idle_depth;
	ret->filtered = session->preflight.seccomp == SECCOMP_MODE_FILTER;
	ret->result = session->result;
	inject_init(&ret->inject);
	ret->inject.target = session->target;
	ret->inject.journal = session->journal;
	ret->inject.shm = session->shm;
	ret->inject.shm_hint = hugepage_hint(&session->maps, session->shm->size);
	ret->inject.loader = &session->loader_info;
	ret->inject.locked_bytes = session->locked_bytes;
	return image_core_header(&ret->inject.core_header);
}

static void note_pauses(struct session *session, enum profile_pause_kind kind)
{
	size_t i;

	for (i = 0; i < session->result->pause_count; i++) {
		const struct job_pause *pause = &session->result->pause[i];
		const struct profile_pause noted = {
			.kind = pause->refused ? PROFILE_PAUSE_RETRY : kind,
			.stopped_us = pause->stopped_us,
			.dlopen_us = pause->dlopen_us,
		};

		error_free(profile_add_pause(session->profile, &noted));
	}
}

/*
 * A process that ends shows it in many ways before it has ended: threads that
 * cannot be traced, are not there any more, or close our descriptors.
 */
static struct error *ended_or(const struct session *session, struct error *err)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct error *gone;

	if (!error_is(err, ERROR_DENIED) && !error_is(err, ERROR_GONE) &&
	    !error_is(err, ERROR_BUSY) && !error_is(err, ERROR_OS))
		return err;
	gone = target_check(session->target);
	for (int i = 0; !gone && i < ENDING_TRIES; i++) {
		nanosleep(&pause, NULL);
		gone = target_check(session->target);
	}
	if (gone)
		error_free(err);
	return gone ? gone : err;
}

struct error *session_work(struct session *session, struct job *job, worker_function *work,
			   enum profile_pause_kind kind, struct error *err)
{
	if (!err)
		err = worker_run(work, job, WORKER_TIMEOUT_MS);
	inject_deinit(&job->inject);
	note_pauses(session, kind);
	return ended_or(session, err);
}

/* Can an exception pass through entry's frames: does the loader know entry? */
static bool entry_unwinds(const struct session *session, const struct loader *loader)
{
	const struct module *entry = modules_entry(&session->modules);

	return entry ? entry->link_map != 0 : loader == &loader_dlopen;
}

/*
 * dlopen of entry will count as a load: the list is made for the time after it,
 * so that the first stacks are not taken for stale.
 */
static uint64_t loads_entry(const struct session *session, const struct loader *loader)
{
	return loader == &loader_dlopen && !modules_entry(&session->modules);
}

void session_leave_throwing(struct session *session)
{
	size_t i;

	if (!session->no_throwing)
		return;
	for (i = 0; i < session->slots.count; i++) {
		struct slot *slot = &session->slots.slot[i];

		if (slot->state == SLOT_PLANNED && functions_get(slot->function)->throws) {
			slot->state = SLOT_SKIPPED;
			session->throwing_left++;
		}
	}
}

static struct error *attach_work(void *context)
{
	return job_attach(context);
}

static struct error *attach_with(struct session *session, const struct loader *loader)
{
	struct job job;
	struct error *err = session_job(session, &job);

	if (!err)
		err = image_core(&job.inject.core_fd);
	session->no_throwing = !entry_unwinds(session, loader);
	session_leave_throwing(session);
	if (!err)
		err = code_publish(&session->code, session->shm, &session->modules,
				   session->generation,
				   session->modules.load_adds + loads_entry(session, loader));
	if (!err) {
		job.loader = loader;
		session->attached = true;
	}
	err = session_work(session, &job, attach_work, PROFILE_PAUSE_ATTACH, err);
	if (session->journal->entry.state == JOURNAL_THERE) {
		slots_place(&session->slots, session->journal->entry.address);
		slots_observe(&session->memory, &session->slots);
	}
	if (!err)
		session->loader = loader;
	return err;
}

const struct loader *session_loader(const struct session *session, const char **why_not_ret)
{
	enum options_loader wish = session->options->loader;
	const struct job probe = {
		.loader_info = &session->loader_info,
		.filtered = session->preflight.seccomp == SECCOMP_MODE_FILTER,
	};

	*why_not_ret = NULL;
	if (wish == OPTIONS_LOADER_MAP)
		return &loader_map;
	*why_not_ret = loader_dlopen.unusable(&probe);
	if (!*why_not_ret)
		return &loader_dlopen;
	return wish == OPTIONS_LOADER_DLOPEN ? NULL : &loader_map;
}

/* With the loader that was asked for, or dlopen and then map. */
static struct error *attach_any(struct session *session)
{
	const char *why_not;
	const struct loader *loader = session_loader(session, &why_not);
	struct error *err;

	if (!loader)
		return error_hint(error_create(ERROR_UNSUPPORTED,
					       "the dlopen loader cannot be used: %s", why_not),
				  "leave --loader out, or use --loader map");
	err = attach_with(session, loader);
	if (!err || loader == &loader_map || session->options->loader == OPTIONS_LOADER_DLOPEN ||
	    session->result->modules_changed)
		return err;
	if (!session->result->unsafe && !error_is(err, ERROR_UNSUPPORTED))
		return err;
	error_free(err);
	return attach_with(session, &loader_map);
}

static struct error *readers_make(struct session *session)
{
	bool check = session->options->selfcheck;
	struct shm_options options = shm_options_of(session->options);
	struct error *err;

	options.session = session->number;
	options.capture_every = check ? SELFCHECK_EVERY : 0;
	err = shm_create(&options, &session->shm);
	if (!err)
		err = shm_hold(session->shm);
	if (!err)
		err = reader_create(session->shm, &session->reader);
	if (!err && check)
		err = selfcheck_create(session->reader, &session->memory, &session->modules,
				       &session->selfcheck);
	if (!err)
		err = fill_init(&session->fill, session->profile, session->reader,
				session->symbolizer, &session->instances);
	return err;
}

static void sampling_describe(struct session *session)
{
	struct shm_options shm = shm_options_of(session->options);
	struct profile *profile = session->profile;

	profile->interval = 1;
	session->wanted_interval = 1;
	session->most_interval = 1;
	if (!shm.sampling)
		return;
	profile->interval = shm.interval;
	session->wanted_interval = shm.interval;
	session->most_interval = shm.interval;
	profile->sampling = (struct profile_sampling){
		.interval_low = shm.interval,
		.interval_high = shm.interval,
		.budget_permille = session->options->overhead_permille,
	};
	budget_init(&session->budget, session->options->overhead_permille);
}

static struct error *profile_describe(struct session *session)
{
	struct profile *profile = session->profile;
	const struct preflight *preflight = &session->preflight;
	struct profile_coverage *coverage = &profile->coverage;
	struct error *err;

	profile->target.pid = preflight->pid;
	profile->target.uid = preflight->uid;
	sampling_describe(session);
	err = profile_string(profile, preflight->comm, &profile->target.comm);
	if (!err)
		err = profile_string(profile, preflight->exe, &profile->target.exe);
	if (!err)
		err = profile_string(profile, preflight->cmdline, &profile->target.cmdline);
	if (!err)
		err = profile_string(profile, session->loader->name, &profile->loader);
	if (!err)
		err = profile_string(profile, preflight->allocator, &profile->allocator);
	coverage->modules = session->modules.count;
	return err;
}

/* Objects that define malloc and call it directly: their own calls are not seen. */
static struct error *direct_describe(struct session *session)
{
	struct error *err;
	size_t i;

	for (i = 0; i < session->slots.direct_count; i++) {
		const struct module *module =
			modules_find_id(&session->modules, session->slots.direct[i]);

		if (!module || module->is_libc || module->is_loader)
			continue;
		err = profile_add_skipped(session->profile, module->path,
					  "calls inside it go directly to its own allocator");
		if (!err && module->is_executable)
			err = profile_string(session->profile, module->path,
					     &session->profile->coverage.direct_allocator);
		if (err)
			return err;
	}
	return NULL;
}

/* One line for each module and reason, not for each slot. */
static struct error *skips_describe(struct session *session)
{
	const struct slots *slots = &session->slots;
	struct error *err;
	size_t i, k;

	for (i = 0; i < slots->skip_count; i++) {
		const struct slot_skip *skip = &slots->skip[i];
		const struct module *module = modules_find_id(&session->modules, skip->module);
		bool first = true;

		if (!slot_skip_is_loss(skip->reason) || !module)
			continue;
		for (k = 0; k < i && first; k++)
			first = slots->skip[k].module != skip->module ||
				slots->skip[k].reason != skip->reason;
		if (!first)
			continue;
		err = profile_add_skipped(session->profile,
					  module->path[0] ? module->path : module->name,
					  slot_skip_text(skip->reason));
		if (err)
			return err;
	}
	return direct_describe(session);
}

static struct error *coverage_describe(struct session *session)
{
	struct profile_coverage *coverage = &session->profile->coverage;
	struct error *err;
	size_t saved = 0;
	bool truncated;

	coverage->slots = session_slots_hooked(session);
	if (session->throwing_left) {
		err = profile_add_skipped(session->profile, session->preflight.allocator_path,
					  "operator new is left alone by the map loader: an "
					  "exception could not pass");
		if (err)
			return err;
	}
	err = slots_saved_pointers(&session->memory, &session->maps, &session->slots,
				   SAVED_POINTERS_LIMIT, &saved, &truncated);
	coverage->saved_pointers = saved;
	return err ? err : skips_describe(session);
}

void session_memory_describe(struct session *session, struct profile_memory *memory)
{
	struct procmem now;
	struct error *err = procmem_read(session->target, &now);

	if (err) {
		error_free(err);
		return;
	}
	memory->rss_bytes = now.rss_bytes;
	memory->anon_bytes = now.anon_bytes;
	memory->file_bytes = now.file_bytes;
	memory->shmem_bytes = now.shmem_bytes;
	session->locked_bytes = now.locked_bytes;
}

struct error *session_ready(struct session *session)
{
	struct error *err = session->shm ? NULL : readers_make(session);

	if (!err)
		err = shm_fill(session);
	/* The first tick may be late, and the target fast. */
	if (!err)
		session_memory_room(session, 0);
	return err;
}

/* Make a plan and try to carry it out. */
static struct error *attach_once(struct session *session)
{
	struct error *err;

	session->result->modules_changed = 0;
	err = session_plan(session);
	if (!err)
		err = session_clear(session);
	if (err)
		return err;
	if (!session->profile->memory_start.rss_bytes)
		session_memory_describe(session, &session->profile->memory_start);
	return attach_any(session);
}

/* The target has loaded or unloaded objects, and a new plan may do better. */
static bool plan_was_stale(const struct session *session, const struct error *err)
{
	return session->result->modules_changed && error_is(err, ERROR_BUSY);
}

struct error *session_lock(struct session *session)
{
	const struct timespec wait = {.tv_nsec = LOCK_WAIT_MS * NS_PER_MS};
	uint64_t deadline_ns = clock_now_ns() + LOCK_LIMIT_MS * NS_PER_MS;

	while (!target_try_lock(session->target)) {
		struct error *err;

		/* One that records is named at once. */
		session->result->modules_changed = 0;
		err = plan_image(session);
		if (err && !plan_was_stale(session, err))
			return err;
		error_free(err);
		if (clock_now_ns() >= deadline_ns)
			return error_hint(error_create(ERROR_BUSY,
						       "another heapattach is at work on process "
						       "%d",
						       target_pid(session->target)),
					  "try again when that one has ended");
		nanosleep(&wait, NULL);
	}
	return NULL;
}

struct error *session_attach(struct session *session)
{
	uint64_t deadline_ns = clock_now_ns() + PLANS_LIMIT_MS * NS_PER_MS;
	struct error *err = session_lock(session);

	if (err)
		return err;
	err = attach_once(session);
	while (err && plan_was_stale(session, err) && clock_now_ns() < deadline_ns) {
		error_free(err);
		err = attach_once(session);
	}
	if (err)
		return ended_or(session, err);
	session->start_ns = clock_now_ns();
	{
		struct timespec wall;

		clock_gettime(CLOCK_REALTIME, &wall);
		session->profile->start_unix_ns = wall.tv_sec * 1000000000ll + wall.tv_nsec;
	}
	err = profile_describe(session);
	if (!err)
		err = coverage_describe(session);
	err = ended_or(session, err);
	/* It ended, or became another program: what it did until then is in shm. */
	if (error_is(err, ERROR_GONE)) {
		error_free(err);
		err = NULL;
	}
	return err ? err : session_snapshot(session);
}
