// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/inject.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "injector/inject_private.h"
#include "injector/payload_image.h"
#include "injector/procmem.h"
#include "resolver/maps.h"

#define RED_ZONE	 128u /* psABI: used below the stack pointer */
#define STACK_FRAME_SIZE BORROW_GUARD_SIZE
#define STACK_MARGIN	 4096u	    /* left between the frame and the stack's end */
#define MAIN_STACK_KNOWN (1u << 20) /* of the main stack; less than any limit on it */

void inject_init(struct inject *inject)
{
	*inject = (struct inject){
		.core_fd = -1,
		.entry_fd = -1,
		.socket = -1,
		.remote_socket = -1,
		.remote_peer = -1,
		.remote_entry = -1,
	};
}

void inject_deinit(struct inject *inject)
{
	inject_close_socket(inject);
	if (inject->core_fd >= 0)
		close(inject->core_fd);
	if (inject->entry_fd >= 0)
		close(inject->entry_fd);
	inject_init(inject);
}

/*
 * A frame below T's stack pointer, beyond the red zone: memory that is dead by
 * the ABI, and where the kernel puts the frame of a signal. Only if T is on the
 * stack that the C library made for it, with room: a coroutine's may end there.
 * 0 = it is not.
 */
static uint64_t stack_frame_address(const struct inject *inject, const struct borrow *borrow)
{
	const struct ha_shm *header = inject->shm->header;
	const struct borrow_registers *registers = borrow_registers(borrow);
	uint64_t bounds[2] = {0}; /* lowest address, size */
	uint64_t frame = (registers->sp - RED_ZONE - STACK_FRAME_SIZE) & ~UINT64_C(63);

	if (header->main_stack_high && borrow_tid(borrow) == target_pid(inject->target)) {
		bounds[0] = header->main_stack_high - MAIN_STACK_KNOWN;
		bounds[1] = MAIN_STACK_KNOWN;
	} else if (header->tcb_stack_offset) {
		struct error *err = target_read(
			inject->target, registers->thread_pointer + header->tcb_stack_offset,
			bounds, sizeof(bounds));

		error_free(err);
	}
	return frame >= bounds[0] + STACK_MARGIN && registers->sp - bounds[0] < bounds[1] ? frame
											  : 0;
}

static struct error *guard_on_stack(const struct inject *inject, struct borrow *borrow)
{
	uint64_t frame = stack_frame_address(inject, borrow);
	struct error *err = borrow_guard(borrow, frame, frame ? STACK_FRAME_SIZE : 0);

	/* The main stack has not grown so far yet. */
	if (!error_is(err, ERROR_NOT_FOUND))
		return err;
	error_free(err);
	return borrow_guard(borrow, 0, 0);
}

struct error *inject_guard(const struct inject *inject, struct borrow *borrow)
{
	const struct journal_mapping *gate = &inject->journal->gate;

	if (borrow_is_guarded(borrow))
		return NULL;
	if (gate->state != JOURNAL_THERE)
		return guard_on_stack(inject, borrow);
	return borrow_guard(borrow, gate->address + SCRATCH_GUARD, HA_PAGE - SCRATCH_GUARD);
}

struct error *inject_call(struct borrow *borrow, const char *name, long number,
			  const uint64_t args[6], int64_t *ret)
{
	struct error *err = borrow_syscall(borrow, number, args, ret);

	if (err)
		return err;
	if (*ret < 0 && *ret >= -4095)
		return error_os((int)-*ret, "%s in thread %d of the target failed", name,
				borrow_tid(borrow));
	return NULL;
}

/* @hint: where the kernel may put it, 0 = wherever it likes. */
static struct error *mapping_make(struct borrow *borrow, struct journal_mapping *mapping,
				  uint64_t hint, uint64_t size, int protection, int flags, int fd)
{
	const uint64_t args[6] = {hint,		size, (uint64_t)protection, (uint64_t)flags,
				  (uint64_t)fd, 0};
	struct error *err;
	int64_t where;

	mapping->size = size;
	mapping->state = JOURNAL_MAKING;
	err = inject_call(borrow, "mmap", SYS_mmap, args, &where);
	if (err) {
		/* After a time-out the call may still be made. */
		if (!error_is(err, ERROR_TIMEOUT))
			mapping->state = JOURNAL_NONE;
		return err;
	}
	mapping->address = (uint64_t)where;
	mapping->state = JOURNAL_THERE;
	return NULL;
}

/* One of a file has our file's name; of another one nothing tells that it is ours. */
static bool mapping_is_there(const struct inject *inject, const struct journal_mapping *mapping)
{
	struct maps maps = {0};
	struct error *err = maps_read(target_pid(inject->target), &maps);
	const struct map *map = err ? NULL : maps_find(&maps, mapping->address);
	bool there = map && map->start == mapping->address &&
		     strncmp(map->path, "/memfd:heapattach", strlen("/memfd:heapattach")) == 0;

	error_free(err);
	maps_deinit(&maps);
	return there;
}

/*
 * A call that nobody saw return may have been made, by a worker that died since or
 * by T after we gave it up: what lies there now may be the program's. A page of
 * ours that stays is the smaller harm.
 */
static struct error *mapping_remove(const struct inject *inject, struct borrow *borrow,
				    struct journal_mapping *mapping)
{
	const uint64_t args[6] = {mapping->address, mapping->size};
	struct error *err;
	int64_t ret;

	if (mapping->state == JOURNAL_REMOVING && !mapping_is_there(inject, mapping))
		mapping->state = JOURNAL_NONE;
	if (mapping->state != JOURNAL_THERE && mapping->state != JOURNAL_REMOVING)
		return NULL;
	mapping->state = JOURNAL_REMOVING;
	err = inject_call(borrow, "munmap", SYS_munmap, args, &ret);
	if (!err)
		mapping->state = JOURNAL_NONE;
	/* The kernel refused, or the call was not begun. */
	else if (!error_is(err, ERROR_TIMEOUT))
		mapping->state = JOURNAL_THERE;
	return err;
}

/*
 * The gate, and behind it the filter if this is the target's first session
 * that samples: one call for both.
 */
static struct error *gate_map(struct inject *inject, struct borrow *borrow)
{
	struct journal *journal = inject->journal;
	bool filter = inject->shm->sampling && journal->filter.state != JOURNAL_THERE;

	return mapping_make(borrow, &journal->gate, 0, HA_PAGE + (filter ? HA_FILTER_SIZE : 0),
			    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void gate_split(struct journal *journal)
{
	if (journal->gate.size == HA_PAGE)
		return;
	journal->filter = (struct journal_mapping){
		.address = journal->gate.address + HA_PAGE,
		.size = journal->gate.size - HA_PAGE,
		.state = JOURNAL_THERE,
	};
	journal->gate.size = HA_PAGE;
}

static struct error *advise(struct borrow *borrow, const struct journal_mapping *mapping,
			    int advice)
{
	const uint64_t args[6] = {mapping->address, mapping->size, (uint64_t)advice};
	int64_t ret;

	return inject_call(borrow, "madvise", SYS_madvise, args, &ret);
}

/* Another thread may have put a file of its own under the number in the last moment. */
static struct error *mapping_verify(struct inject *inject, const struct journal_mapping *mapping,
				    const void *begin, size_t size)
{
	char there[256];
	struct error *err;

	if (size > sizeof(there))
		size = sizeof(there);
	err = target_read(inject->target, mapping->address, there, size);
	if (err || !memcmp(there, begin, size))
		return err;
	return inject_fds_lost(inject);
}

/* Map core and shm, or leave them if they are there; remember entry's descriptor. */
static struct error *objects_map(struct inject *inject, struct borrow *borrow)
{
	struct journal *journal = inject->journal;
	bool map = journal->core.state != JOURNAL_THERE;
	int fds[JOURNAL_PASSED], remote[JOURNAL_PASSED];
	size_t count = 0, i = 0;
	struct error *err;

	if (map) {
		fds[count++] = inject->core_fd;
		fds[count++] = inject->shm->fd;
	}
	if (inject->entry_fd >= 0)
		fds[count++] = inject->entry_fd;
	if (!count)
		return NULL;
	err = inject_pass(inject, borrow, fds, count, remote);
	if (err)
		return err;
	if (map) {
		err = mapping_make(borrow, &journal->core, 0, inject->core_header.size,
				   PROT_READ | PROT_EXEC, MAP_PRIVATE, remote[i++]);
		if (!err)
			err = mapping_verify(inject, &journal->core, &inject->core_header,
					     sizeof(inject->core_header));
		if (!err)
			err = mapping_make(borrow, &journal->shm, inject->shm_hint,
					   inject->shm->size, PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_NORESERVE, remote[i++]);
		if (!err)
			err = mapping_verify(inject, &journal->shm, &inject->shm->header->magic,
					     sizeof(inject->shm->header->magic));
		/* Gigabytes of address space would go into a core dump. */
		if (!err && inject->boot_follows)
			inject->hide_size = journal->shm.size;
		else if (!err)
			err = advise(borrow, &journal->shm, MADV_DONTDUMP);
	}
	inject->remote_entry = inject->entry_fd >= 0 ? remote[count - 1] : -1;
	return err;
}

/*
 * After mlockall(MCL_FUTURE) every new mapping is made resident at once: for
 * the sparse shm that would be gigabytes. The flag shows only in what becomes
 * of a mapping; the first one of ours is a page.
 */
static struct error *locked_check(const struct inject *inject)
{
	struct procmem now;
	struct error *err;

	if (!inject->locked_bytes)
		return NULL;
	err = procmem_read(inject->target, &now);
	if (err || now.locked_bytes <= inject->locked_bytes)
		return err;
	return error_create(ERROR_UNSUPPORTED,
			    "process %d locks all its memory (mlockall), which would make "
			    "heapattach's sparse tables resident",
			    target_pid(inject->target));
}

struct error *inject_place(struct inject *inject, struct borrow *borrow)
{
	struct journal *journal = inject->journal;
	bool make = journal->gate.state != JOURNAL_THERE;
	struct error *err = NULL;

	if (make)
		err = guard_on_stack(inject, borrow);
	if (!err && make)
		err = gate_map(inject, borrow);
	if (!err)
		err = borrow_guard(borrow, journal->gate.address + SCRATCH_GUARD,
				   HA_PAGE - SCRATCH_GUARD);
	if (!err && make)
		err = locked_check(inject);
	if (!err && make && inject->boot_follows)
		inject->wipe_size = journal->gate.size;
	else if (!err && make)
		err = advise(borrow, &journal->gate, MADV_WIPEONFORK);
	if (!err)
		gate_split(journal);
	if (!err)
		err = inject_make_pair(inject, borrow);
	if (!err)
		err = objects_map(inject, borrow);
	return inject_explain(inject, err);
}

struct error *inject_map_entry(struct inject *inject, struct borrow *borrow)
{
	struct journal_mapping *entry = &inject->journal->entry;
	struct error *err;
	int64_t ret;

	err = mapping_make(borrow, entry, 0, HA_ENTRY_SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE,
			   inject->remote_entry);
	if (!err)
		err = mapping_verify(inject, entry, payload_entry, payload_entry_size);
	if (err)
		return inject_explain(inject, err);

	const uint64_t args[6] = {
		entry->address + HA_ENTRY_DATA, HA_ENTRY_SIZE - HA_ENTRY_DATA,
		PROT_READ | PROT_WRITE,		MAP_PRIVATE | MAP_FIXED,
		(uint64_t)inject->remote_entry, HA_ENTRY_DATA,
	};
	return inject_explain(inject, inject_call(borrow, "mmap", SYS_mmap, args, &ret));
}

struct error *inject_open_gate(struct inject *inject)
{
	const struct ha_gate gate = {.magic = HA_GATE_MAGIC};
	char zeros[HA_PAGE] = {0};
	struct error *err;

	err = target_write(inject->target, inject->journal->gate.address, zeros, sizeof(zeros));
	return err ? err
		   : target_write(inject->target, inject->journal->gate.address, &gate,
				  sizeof(gate));
}

struct error *inject_clear(struct inject *inject, struct borrow *borrow)
{
	struct error *err = NULL;
	size_t i;

	for (i = 0; i < JOURNAL_LEFT && !err; i++) {
		if (inject->journal->left[i].state != JOURNAL_THERE)
			continue;
		err = inject_guard(inject, borrow);
		if (!err)
			err = mapping_remove(inject, borrow, &inject->journal->left[i]);
	}
	return err;
}

/* The filter that stays gives its memory back; if the program has locked it, it is zeroed later. */
static struct error *filter_empty(const struct inject *inject, struct borrow *borrow)
{
	struct error *err = inject_guard(inject, borrow);

	if (!err)
		err = advise(borrow, &inject->journal->filter, MADV_DONTNEED);
	if (!error_is(err, ERROR_OS))
		return err;
	error_free(err);
	return NULL;
}

static bool keeps_entry(const struct journal *journal)
{
	return journal->entry_by_loader || journal->slots_written;
}

bool inject_keeps_filter(const struct inject *inject)
{
	const struct journal *journal = inject->journal;

	return journal->filter.state == JOURNAL_THERE && journal->filter_named &&
	       keeps_entry(journal);
}

struct error *inject_remove(struct inject *inject, struct borrow *borrow)
{
	struct journal *journal = inject->journal;
	bool keep_filter = inject_keeps_filter(inject);
	struct journal_mapping *mappings[] = {
		&journal->shm,
		&journal->core,
		keeps_entry(journal) ? NULL : &journal->entry,
		keep_filter ? NULL : &journal->filter,
		&journal->gate,
	};
	struct error *first = inject_close(inject, borrow);
	size_t i;

	if (keep_filter && !inject->boot_empties)
		error_keep_first(&first, filter_empty(inject, borrow));

	for (i = 0; i < sizeof(mappings) / sizeof(mappings[0]); i++) {
		struct error *err;

		if (!mappings[i] || mappings[i]->state != JOURNAL_THERE)
			continue;
		if (mappings[i] == &journal->gate)
			err = guard_on_stack(inject, borrow);
		else
			err = inject_guard(inject, borrow);
		if (!err)
			err = mapping_remove(inject, borrow, mappings[i]);
		error_keep_first(&first, err);
	}
	return first;
}
