// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/inject.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "injector/payload_image.h"
#include "injector/procmem.h"

/*
 * The gate as scratch memory:
 *
 *	+0     struct ha_gate, left alone
 *	+32    int[2] of socketpair
 *	+64    struct msghdr
 *	+128   struct iovec
 *	+192   the message's one byte
 *	+256   control buffer
 *	+512   the frame that guards calls on T (borrow_guard)
 */
#define SCRATCH_PAIR	32
#define SCRATCH_HEADER	64
#define SCRATCH_IOVEC	128
#define SCRATCH_DATA	192
#define SCRATCH_CONTROL 256
#define CONTROL_SIZE	128
#define SCRATCH_GUARD	512

/* core, shm, entry */
#define PASSED_MAX	 3

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

static void socket_close(struct inject *inject)
{
	if (inject->socket >= 0)
		close(inject->socket);
	inject->socket = -1;
}

void inject_deinit(struct inject *inject)
{
	socket_close(inject);
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

	if (header->main_fs && registers->thread_pointer == header->main_fs) {
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

/*
 * From here on T restores itself if we die in the middle of a call: by a frame
 * in the gate or, where there is none or it is about to go, below T's stack.
 */
static struct error *guard_arm(const struct inject *inject, struct borrow *borrow)
{
	const struct journal_mapping *gate = &inject->journal->gate;

	if (borrow_is_guarded(borrow))
		return NULL;
	if (gate->state != JOURNAL_THERE)
		return guard_on_stack(inject, borrow);
	return borrow_guard(borrow, gate->address + SCRATCH_GUARD, HA_PAGE - SCRATCH_GUARD);
}

/* A call on T whose failure is an error that names the call. */
static struct error *remote_call(struct borrow *borrow, const char *name, long number,
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
	err = remote_call(borrow, "mmap", SYS_mmap, args, &where);
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

static struct error *mapping_remove(struct borrow *borrow, struct journal_mapping *mapping)
{
	const uint64_t args[6] = {mapping->address, mapping->size};
	struct error *err;
	int64_t ret;

	if (mapping->state != JOURNAL_THERE)
		return NULL;
	err = remote_call(borrow, "munmap", SYS_munmap, args, &ret);
	if (!err)
		mapping->state = JOURNAL_NONE;
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

	return remote_call(borrow, "madvise", SYS_madvise, args, &ret);
}

/* What @fd of the target is open on; false: it is closed. */
static bool file_read(const struct inject *inject, int fd, struct ha_file *ret)
{
	char path[64];
	struct stat info;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", target_file_tid(inject->target), fd);
	if (stat(path, &info))
		return false;
	*ret = (struct ha_file){.device = info.st_dev, .inode = info.st_ino};
	return true;
}

/*
 * The number may be the program's by now: after a worker that died when it had
 * closed one, or since the program closes all that it has not opened itself.
 */
static bool is_our_fd(const struct inject *inject, int fd)
{
	const struct ha_file *noted = journal_file(inject->journal, fd);
	struct ha_file now;

	return noted && file_read(inject, fd, &now) && now.device == noted->device &&
	       now.inode == noted->inode;
}

static struct error *remote_close(const struct inject *inject, struct borrow *borrow, int fd)
{
	const uint64_t args[6] = {(uint64_t)fd};
	int64_t ret;

	if (!is_our_fd(inject, fd))
		return NULL;
	return remote_call(borrow, "close", SYS_close, args, &ret);
}

/* The next call opens @count descriptors and has their numbers written to @address. */
static struct error *fds_expect(struct inject *inject, uint64_t address, uint32_t count)
{
	const int32_t none[PASSED_MAX] = {-1, -1, -1};
	struct error *err = target_write(inject->target, address, none, count * sizeof(*none));

	if (err)
		return err;
	inject->journal->pending_count = count;
	inject->journal->pending_fds = address;
	return NULL;
}

/* Note what the call has opened, or what it had when a worker died. On error it is asked again. */
static struct error *fds_note(struct inject *inject)
{
	struct journal *journal = inject->journal;
	int32_t fds[PASSED_MAX];
	struct error *err;
	uint32_t i;

	if (journal->gate.state != JOURNAL_THERE || journal->pending_count > PASSED_MAX)
		journal->pending_fds = 0;
	if (!journal->pending_fds)
		return NULL;
	err = target_read(inject->target, journal->pending_fds, fds,
			  journal->pending_count * sizeof(*fds));
	if (err)
		return err;
	for (i = 0; i < journal->pending_count; i++) {
		struct ha_file file;

		if (fds[i] >= 0 && file_read(inject, fds[i], &file))
			journal_add_fd(journal, fds[i], &file);
		else if (fds[i] >= 0)
			inject->fds_lost = true;
	}
	journal->pending_fds = 0;
	return NULL;
}

/* After a call that opens descriptors: its error, or that of the noting. */
static struct error *fds_note_after(struct inject *inject, struct error *err)
{
	struct error *note_err = fds_note(inject);

	if (!err)
		return note_err;
	error_free(note_err);
	return err;
}

/* Our copy of a descriptor of T's is of what was opened there. */
static bool is_copy(const struct inject *inject, int fd, int remote_fd)
{
	const struct ha_file *noted = journal_file(inject->journal, remote_fd);
	struct stat info;

	return noted && !fstat(fd, &info) && info.st_dev == noted->device &&
	       info.st_ino == noted->inode;
}

static struct error *fds_lost_error(struct inject *inject)
{
	inject->fds_lost = true;
	return error_os(EBADF, "cannot pass the payload to the target");
}

static struct error *pair_make(struct inject *inject, struct borrow *borrow)
{
	const uint64_t args[6] = {AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				  inject->journal->gate.address + SCRATCH_PAIR};
	struct error *err;
	int64_t ret;
	int pair[2];

	err = fds_expect(inject, inject->journal->gate.address + SCRATCH_PAIR, 2);
	if (!err)
		err = remote_call(borrow, "socketpair", SYS_socketpair, args, &ret);
	err = fds_note_after(inject, err);
	if (!err)
		err = target_read(inject->target, inject->journal->gate.address + SCRATCH_PAIR,
				  pair, sizeof(pair));
	if (err)
		return err;
	inject->remote_socket = pair[1];
	err = target_take_fd(inject->target, pair[0], &inject->socket);
	if (!err && !is_copy(inject, inject->socket, pair[0])) {
		socket_close(inject);
		return fds_lost_error(inject);
	}
	/* The only other end must be ours, so that boot sees it close when we die. */
	if (!err && inject->boot_follows) {
		inject->remote_peer = pair[0];
		return NULL;
	}
	if (!err)
		err = remote_close(inject, borrow, pair[0]);
	if (!err)
		journal_forget_fd(inject->journal, pair[0]);
	return err;
}

static struct error *descriptors_send(const struct inject *inject, const int *fds, size_t count)
{
	char control[CMSG_SPACE(PASSED_MAX * sizeof(int))] __attribute__((aligned(8))) = {0};
	char byte = 0;
	struct iovec iovec = {.iov_base = &byte, .iov_len = 1};
	struct msghdr header = {
		.msg_iov = &iovec,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};
	struct cmsghdr *message = CMSG_FIRSTHDR(&header);

	message->cmsg_level = SOL_SOCKET;
	message->cmsg_type = SCM_RIGHTS;
	message->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(message), fds, count * sizeof(int));
	if (sendmsg(inject->socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return error_os(errno, "cannot pass the payload to the target");
	return NULL;
}

/* T receives the descriptors; their numbers there go to @remote_ret. */
static struct error *descriptors_receive(struct inject *inject, struct borrow *borrow, size_t count,
					 int *remote_ret)
{
	uint64_t gate = inject->journal->gate.address;
	struct iovec iovec = {.iov_base = (void *)(gate + SCRATCH_DATA), .iov_len = 1};
	struct msghdr header = {
		.msg_iov = (void *)(gate + SCRATCH_IOVEC),
		.msg_iovlen = 1,
		.msg_control = (void *)(gate + SCRATCH_CONTROL),
		.msg_controllen = CONTROL_SIZE,
	};
	const uint64_t args[6] = {(uint64_t)inject->remote_socket, gate + SCRATCH_HEADER,
				  MSG_CMSG_CLOEXEC | MSG_DONTWAIT};
	char control[CONTROL_SIZE] __attribute__((aligned(8)));
	struct cmsghdr *message = (struct cmsghdr *)control;
	struct error *err;
	int64_t ret;

	err = borrow_write(borrow, gate + SCRATCH_IOVEC, &iovec, sizeof(iovec));
	if (!err)
		err = borrow_write(borrow, gate + SCRATCH_HEADER, &header, sizeof(header));
	if (!err)
		err = fds_expect(inject, gate + SCRATCH_CONTROL + CMSG_LEN(0), (uint32_t)count);
	if (!err && !is_our_fd(inject, inject->remote_socket))
		err = fds_lost_error(inject);
	if (!err)
		err = remote_call(borrow, "recvmsg", SYS_recvmsg, args, &ret);
	err = fds_note_after(inject, err);
	if (!err)
		err = target_read(inject->target, gate + SCRATCH_CONTROL, control, sizeof(control));
	if (err)
		return err;
	if (message->cmsg_level != SOL_SOCKET || message->cmsg_type != SCM_RIGHTS ||
	    message->cmsg_len != CMSG_LEN(count * sizeof(int)))
		return error_create(ERROR_OS,
				    "the target could not take the payload's %zu descriptors: "
				    "its limit of open files may be reached",
				    count);
	memcpy(remote_ret, CMSG_DATA(message), count * sizeof(int));
	return NULL;
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
	return fds_lost_error(inject);
}

struct error *inject_closed(const struct inject *inject, struct error *err)
{
	return error_hint(error_prefix(err,
				       "process %d closes descriptors that it has not opened, "
				       "ours too",
				       target_pid(inject->target)),
			  "try again when it has started");
}

/* Say why, if a descriptor that was opened a moment ago is another one or none. */
static struct error *fds_explain(struct inject *inject, struct error *err)
{
	bool lost = inject->fds_lost;

	for (size_t i = 0; i < JOURNAL_FDS && error_is(err, ERROR_OS); i++)
		lost |= inject->journal->fd[i] >= 0 && !is_our_fd(inject, inject->journal->fd[i]);
	if (!error_is(err, ERROR_OS) || !lost)
		return err;
	return inject_closed(inject, err);
}

/* Map core and shm, or leave them if they are there; remember entry's descriptor. */
static struct error *objects_map(struct inject *inject, struct borrow *borrow)
{
	struct journal *journal = inject->journal;
	bool map = journal->core.state != JOURNAL_THERE;
	int fds[PASSED_MAX], remote[PASSED_MAX];
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
	err = descriptors_send(inject, fds, count);
	if (!err)
		err = descriptors_receive(inject, borrow, count, remote);
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
		err = pair_make(inject, borrow);
	if (!err)
		err = objects_map(inject, borrow);
	return fds_explain(inject, err);
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
		return fds_explain(inject, err);

	const uint64_t args[6] = {
		entry->address + HA_ENTRY_DATA, HA_ENTRY_SIZE - HA_ENTRY_DATA,
		PROT_READ | PROT_WRITE,		MAP_PRIVATE | MAP_FIXED,
		(uint64_t)inject->remote_entry, HA_ENTRY_DATA,
	};
	return fds_explain(inject, remote_call(borrow, "mmap", SYS_mmap, args, &ret));
}

struct error *inject_close(struct inject *inject, struct borrow *borrow)
{
	struct error *first = fds_note(inject);
	size_t i;

	for (i = 0; i < JOURNAL_FDS; i++) {
		struct error *err;

		if (inject->journal->fd[i] < 0)
			continue;
		err = guard_arm(inject, borrow);
		if (!err)
			err = remote_close(inject, borrow, inject->journal->fd[i]);
		if (!err)
			inject->journal->fd[i] = -1;
		error_keep_first(&first, err);
	}
	inject->remote_socket = -1;
	inject->remote_peer = -1;
	inject->remote_entry = -1;
	socket_close(inject);
	return first;
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
		err = guard_arm(inject, borrow);
		if (!err)
			err = mapping_remove(borrow, &inject->journal->left[i]);
	}
	return err;
}

/* The filter that stays gives its memory back; if the program has locked it, it is zeroed later. */
static struct error *filter_empty(const struct inject *inject, struct borrow *borrow)
{
	struct error *err = guard_arm(inject, borrow);

	if (!err)
		err = advise(borrow, &inject->journal->filter, MADV_DONTNEED);
	if (!error_is(err, ERROR_OS))
		return err;
	error_free(err);
	return NULL;
}

struct error *inject_remove(struct inject *inject, struct borrow *borrow)
{
	struct journal *journal = inject->journal;
	bool keep_entry = journal->entry_by_loader || journal->slots_written;
	bool keep_filter = keep_entry && journal->filter_named;
	struct journal_mapping *mappings[] = {
		&journal->shm,
		&journal->core,
		keep_entry ? NULL : &journal->entry,
		keep_filter ? NULL : &journal->filter,
		&journal->gate,
	};
	struct error *first = inject_close(inject, borrow);
	size_t i;

	if (keep_filter)
		error_keep_first(&first, filter_empty(inject, borrow));

	for (i = 0; i < sizeof(mappings) / sizeof(mappings[0]); i++) {
		struct error *err;

		if (!mappings[i] || mappings[i]->state != JOURNAL_THERE)
			continue;
		if (mappings[i] == &journal->gate)
			err = guard_on_stack(inject, borrow);
		else
			err = guard_arm(inject, borrow);
		if (!err)
			err = mapping_remove(borrow, mappings[i]);
		error_keep_first(&first, err);
	}
	return first;
}
