// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Our descriptors in the target, while T is borrowed. The other threads run on
 * and may close what they have not opened, and open theirs under the same
 * numbers: each of ours is known by its file, and looked at before it is used.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "injector/clock.h"
#include "injector/inject_private.h"

/* How long a program that closes our descriptors has for the rest of them. */
#define CLOSED_TIMEOUT_NS 50000000ull
#define CLOSED_SLICE_US	  200

void inject_close_socket(struct inject *inject)
{
	if (inject->socket >= 0)
		close(inject->socket);
	inject->socket = -1;
}

static struct ha_file file_of(const struct stat *info)
{
	return (struct ha_file){.device = info->st_dev, .inode = info->st_ino};
}

static bool is_same(const struct ha_file *a, const struct ha_file *b)
{
	return a->device == b->device && a->inode == b->inode;
}

/* What @fd of the target is open on; false: it is closed. */
static bool file_read(const struct inject *inject, int fd, struct ha_file *ret)
{
	char path[64];
	struct stat info;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", target_file_tid(inject->target), fd);
	if (stat(path, &info))
		return false;
	*ret = file_of(&info);
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

	return noted && file_read(inject, fd, &now) && is_same(&now, noted);
}

static struct error *remote_close(const struct inject *inject, struct borrow *borrow, int fd)
{
	const uint64_t args[6] = {(uint64_t)fd};
	int64_t ret;

	if (!is_our_fd(inject, fd))
		return NULL;
	return inject_call(borrow, "close", SYS_close, args, &ret);
}

/*
 * The next call opens @count descriptors and has their numbers written to
 * @address. @fds: ours of the same files; NULL: they will be new.
 */
static struct error *fds_expect(struct inject *inject, uint64_t address, uint32_t count,
				const int *fds)
{
	const int32_t none[JOURNAL_PASSED] = {-1, -1, -1};
	struct journal *journal = inject->journal;
	struct error *err = target_write(inject->target, address, none, count * sizeof(*none));
	struct stat info;

	if (err)
		return err;
	for (uint32_t i = 0; i < count; i++) {
		journal->pending_file[i] = (struct ha_file){0};
		if (fds && !fstat(fds[i], &info))
			journal->pending_file[i] = file_of(&info);
	}
	journal->pending_count = count;
	journal->pending_fds = address;
	return NULL;
}

/* Note what the call has opened, or what it had when a worker died. On error it is asked again. */
static struct error *fds_note(struct inject *inject)
{
	struct journal *journal = inject->journal;
	int32_t fds[JOURNAL_PASSED];
	struct error *err;
	uint32_t i;

	if (journal->gate.state != JOURNAL_THERE || journal->pending_count > JOURNAL_PASSED)
		journal->pending_fds = 0;
	if (!journal->pending_fds)
		return NULL;
	err = target_read(inject->target, journal->pending_fds, fds,
			  journal->pending_count * sizeof(*fds));
	if (err)
		return err;
	for (i = 0; i < journal->pending_count; i++) {
		struct ha_file file = journal->pending_file[i];

		if (fds[i] >= 0 && (file.inode || file_read(inject, fds[i], &file)))
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

/*
 * Our copy of a descriptor of T's is of what was opened there. A socket of the
 * program's that took the number before it was noted would pass for ours; one
 * that is in use is told by what lies in it.
 */
static bool is_copy(const struct inject *inject, int fd, int remote_fd)
{
	const struct ha_file *noted = journal_file(inject->journal, remote_fd);
	struct ha_file here;
	struct stat info;
	int unread;
	char byte;

	if (!noted || fstat(fd, &info))
		return false;
	here = file_of(&info);
	return is_same(&here, noted) && !ioctl(fd, SIOCOUTQ, &unread) && !unread &&
	       recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

struct error *inject_fds_lost(struct inject *inject)
{
	inject->fds_lost = true;
	return error_os(EBADF, "cannot pass the payload to the target");
}

struct error *inject_make_pair(struct inject *inject, struct borrow *borrow)
{
	const uint64_t args[6] = {AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				  inject->journal->gate.address + SCRATCH_PAIR};
	struct error *err;
	int64_t ret;
	int pair[2];

	err = fds_expect(inject, inject->journal->gate.address + SCRATCH_PAIR, 2, NULL);
	if (!err)
		err = inject_call(borrow, "socketpair", SYS_socketpair, args, &ret);
	err = fds_note_after(inject, err);
	if (!err)
		err = target_read(inject->target, inject->journal->gate.address + SCRATCH_PAIR,
				  pair, sizeof(pair));
	if (err)
		return err;
	inject->remote_socket = pair[1];
	err = target_take_fd(inject->target, pair[0], &inject->socket);
	if (!err && !is_copy(inject, inject->socket, pair[0])) {
		inject_close_socket(inject);
		return inject_fds_lost(inject);
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
	char control[CMSG_SPACE(JOURNAL_PASSED * sizeof(int))] __attribute__((aligned(8))) = {0};
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

/*
 * T receives the descriptors @fds of ours; their numbers there go to
 * @remote_ret. The message stays in the socket: if the number is another one's
 * by then, the program still gets what is there for it.
 */
static struct error *descriptors_receive(struct inject *inject, struct borrow *borrow,
					 const int *fds, size_t count, int *remote_ret)
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
				  MSG_CMSG_CLOEXEC | MSG_DONTWAIT | MSG_PEEK};
	char control[CONTROL_SIZE] __attribute__((aligned(8)));
	struct cmsghdr *message = (struct cmsghdr *)control;
	struct error *err;
	int64_t ret;

	err = borrow_write(borrow, gate + SCRATCH_IOVEC, &iovec, sizeof(iovec));
	if (!err)
		err = borrow_write(borrow, gate + SCRATCH_HEADER, &header, sizeof(header));
	if (!err)
		err = fds_expect(inject, gate + SCRATCH_CONTROL + CMSG_LEN(0), (uint32_t)count,
				 fds);
	if (!err && !is_our_fd(inject, inject->remote_socket))
		err = inject_fds_lost(inject);
	if (!err)
		err = inject_call(borrow, "recvmsg", SYS_recvmsg, args, &ret);
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

struct error *inject_pass(struct inject *inject, struct borrow *borrow, const int *fds,
			  size_t count, int *remote_ret)
{
	struct error *err = descriptors_send(inject, fds, count);

	return err ? err : descriptors_receive(inject, borrow, fds, count, remote_ret);
}

struct error *inject_closed(const struct inject *inject, struct error *err)
{
	return error_hint(error_prefix(err,
				       "process %d closes descriptors that it has not opened, "
				       "ours too",
				       target_pid(inject->target)),
			  "try again when it has started");
}

/* Noted descriptors that are ours still, and those that are not. */
static void fds_count(const struct inject *inject, unsigned int *ret_kept, unsigned int *ret_lost)
{
	*ret_kept = *ret_lost = 0;
	for (size_t i = 0; i < JOURNAL_FDS; i++) {
		if (inject->journal->fd[i] < 0)
			continue;
		if (is_our_fd(inject, inject->journal->fd[i]))
			(*ret_kept)++;
		else
			(*ret_lost)++;
	}
}

struct error *inject_explain(struct inject *inject, struct error *err)
{
	unsigned int kept, lost;

	/* EPERM: a socket cannot be mapped to be run. */
	if (!error_is(err, ERROR_OS) && !error_is(err, ERROR_DENIED))
		return err;
	fds_count(inject, &kept, &lost);
	return lost || inject->fds_lost ? inject_closed(inject, err) : err;
}

/*
 * A program that has closed some of ours is closing the others in this moment.
 * It is left to it: between our look at a number and T's close the number may
 * become another one's.
 */
static void fds_wait(const struct inject *inject)
{
	uint64_t end_ns = clock_now_ns() + CLOSED_TIMEOUT_NS;
	unsigned int kept, lost;

	fds_count(inject, &kept, &lost);
	while (kept && lost && clock_now_ns() < end_ns) {
		usleep(CLOSED_SLICE_US);
		fds_count(inject, &kept, &lost);
	}
}

struct error *inject_close(struct inject *inject, struct borrow *borrow)
{
	struct error *first = fds_note(inject);
	size_t i;

	fds_wait(inject);
	for (i = 0; i < JOURNAL_FDS; i++) {
		struct error *err;

		if (inject->journal->fd[i] < 0)
			continue;
		err = inject_guard(inject, borrow);
		if (!err)
			err = remote_close(inject, borrow, inject->journal->fd[i]);
		if (!err)
			inject->journal->fd[i] = -1;
		error_keep_first(&first, err);
	}
	inject->remote_socket = -1;
	inject->remote_peer = -1;
	inject->remote_entry = -1;
	inject_close_socket(inject);
	return first;
}
