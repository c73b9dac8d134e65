// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The injector's side of boot (payload/protocol.h): T runs it on a stack in
 * shared memory, we wait for its messages, do what has to be done in the
 * window, and stop T again.
 */
#include "injector/changes.h"
#include "injector/clock.h"
#include "injector/inject.h"
#include "injector/message.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* How long T waits for us in the window, and before it restores itself. */
#define WINDOW_TIMEOUT_US 20000
#define DONE_TIMEOUT_US	  50000

/*
 * How long each side looks before it sleeps, where each has a processor: the
 * injector for T's messages, longer than a dlopen of entry takes, and T for the
 * injector's slots, about a thousand.
 */
#define MESSAGE_WATCH_US 500
#define WINDOW_WATCH_US	 2000

/*
 * Longest wait for one of boot's messages, beyond its own time-outs: dlopen of
 * entry reads two pages, but T may be out of its CPU quota.
 */
#define MESSAGE_TIMEOUT_MS 5000

/* For boot's end after its last message, or after none came: a window's time and more. */
#define END_TIMEOUT_MS 200

#define NS_PER_US      1000ull
#define NS_PER_MS      1000000ull

static struct ha_boot *boot_local(const struct inject *inject)
{
	return shm_region(inject->shm, HA_REGION_BOOT);
}

static uint64_t boot_remote(const struct inject *inject)
{
	return inject->journal->shm.address + inject->shm->region[HA_REGION_BOOT].offset;
}

void inject_touch(const struct inject *inject, bool boots)
{
	if (inject->shm)
		(void)*(const volatile uint64_t *)&inject->shm->header->magic;
	if (boots)
		memset(boot_local(inject), 0, HA_BOOT_SIZE);
}

/* One that was closed before it was noted is nothing's. */
static struct ha_file file_of(const struct inject *inject, int fd)
{
	const struct ha_file *file = journal_file(inject->journal, fd);

	return file ? *file : (struct ha_file){0};
}

/* Descriptors that boot is to use and close. */
static void boot_descriptors(const struct inject *inject, struct ha_boot *boot)
{
	size_t i, n = 0;

	boot->sock_fd = inject->remote_socket;
	boot->sock_file = file_of(inject, boot->sock_fd);
	boot->peer_fd = inject->remote_peer;
	boot->peer_file = file_of(inject, boot->peer_fd);
	for (i = 0; i < sizeof(boot->close_fds) / sizeof(boot->close_fds[0]); i++)
		boot->close_fds[i] = -1;
	for (i = 0; i < JOURNAL_FDS; i++) {
		int fd = inject->journal->fd[i];

		if (fd < 0 || fd == inject->remote_socket || fd == inject->remote_peer)
			continue;
		boot->close_fds[n] = fd;
		boot->close_files[n++] = inject->journal->fd_file[i];
	}
}

static struct error *boot_prepare(const struct inject *inject, struct borrow *borrow,
				  enum ha_boot_mode mode, uint32_t lock_timeout_us)
{
	const struct loader_info *loader = inject->loader;
	struct ha_boot *boot = boot_local(inject);
	size_t size;

	memset(boot, 0, sizeof(*boot));
	boot->mode = mode;
	boot->tid = borrow_tid(borrow);
	boot->fn_trylock = loader->fn_trylock;
	boot->fn_unlock = loader->fn_unlock;
	boot->fn_dlopen = loader->fn_dlopen;
	boot->fn_dlerror = loader->fn_dlerror;
	boot->fn_errno_location = loader->fn_errno_location;
	boot->lock = loader->lock;
	boot->dlerror_offset = loader->dlerror_offset;
	boot->lock_timeout_us = lock_timeout_us;
	boot->window_timeout_us = WINDOW_TIMEOUT_US;
	boot->done_timeout_us = DONE_TIMEOUT_US;
	boot->watch_us = borrow_is_apart(borrow) ? WINDOW_WATCH_US : 0;
	boot_descriptors(inject, boot);
	changes_clear(shm_region(inject->shm, HA_REGION_CHANGES));
	boot->changes =
		inject->journal->shm.address + inject->shm->region[HA_REGION_CHANGES].offset;
	boot->wipe = inject->journal->gate.address;
	boot->wipe_size = inject->wipe_size;
	boot->hide = inject->journal->shm.address;
	boot->hide_size = inject->hide_size;
	if (inject->boot_empties) {
		boot->empty = inject->journal->filter.address;
		boot->empty_size = inject->journal->filter.size;
	}
	if (mode == HA_BOOT_DLOPEN)
		snprintf(boot->path, sizeof(boot->path), "/proc/self/fd/%d", inject->remote_entry);
	return borrow_sigframe(borrow, (uint8_t *)boot + HA_BOOT_SIGFRAME,
			       HA_BOOT_SIZE - HA_BOOT_SIGFRAME,
			       boot_remote(inject) + HA_BOOT_SIGFRAME, &size, &boot->sigframe);
}

/*
 * Boot's next message, if there is one; kind 0 = there is none to come. Boot has
 * closed its end of the socket then, and says so: a process that another thread has
 * forked meanwhile may keep the socket open.
 */
static struct error *message_look(const struct inject *inject, struct ha_message *ret,
				  bool *got_ret)
{
	bool done = __atomic_load_n(&boot_local(inject)->done, __ATOMIC_ACQUIRE);
	struct error *err = message_receive(inject->socket, ret, got_ret);

	if (!err && !*got_ret && done) {
		*ret = (struct ha_message){0};
		*got_ret = true;
	}
	return err;
}

/* Where T has a processor of its own: to be woken would cost us longer than T takes. */
static struct error *message_watch(const struct inject *inject, struct borrow *borrow,
				   struct ha_message *ret, bool *got_ret)
{
	uint64_t end_ns = clock_now_ns() + MESSAGE_WATCH_US * NS_PER_US;
	struct error *err = NULL;

	*got_ret = false;
	while (!err && !*got_ret && borrow_is_apart(borrow) && clock_now_ns() < end_ns)
		err = message_look(inject, ret, got_ret);
	return err;
}

/*
 * Wait for boot's next message. Between waits T's state is looked at: a fault, a
 * signal or its end wakes us as well.
 */
static struct error *message_wait(const struct inject *inject, struct borrow *borrow,
				  struct ha_message *ret)
{
	uint64_t deadline_ns = clock_now_ns() + MESSAGE_TIMEOUT_MS * NS_PER_MS;
	struct pollfd poll_fd = {.fd = inject->socket, .events = POLLIN};
	bool stopped, got;
	struct error *err = message_watch(inject, borrow, ret, &got);

	if (err || got)
		return err;
	while (clock_now_ns() < deadline_ns) {
		/* Short: a fault of T does not make the socket readable. */
		poll(&poll_fd, 1, 1);
		err = message_look(inject, ret, &got);
		if (err || got)
			return err;
		err = borrow_poll(borrow, &stopped);
		if (err)
			return err;
	}
	return error_create(ERROR_TIMEOUT,
			    "thread %d did not answer for %d ms while it loaded the payload",
			    borrow_tid(borrow), MESSAGE_TIMEOUT_MS);
}

/* Boot closes its end last; if it is closed before, T ends, or the program did it. */
static struct error *message_wrong(const struct inject *inject, struct borrow *borrow,
				   const struct ha_message *message, const char *wanted)
{
	struct error *err;
	bool stopped;

	if (message->kind)
		return error_create(ERROR_FORMAT,
				    "the payload in the target sent message %u instead of %s",
				    message->kind, wanted);
	/* A process that ends, or becomes another program, gives up its memory first. */
	err = borrow_poll(borrow, &stopped);
	if (err)
		return err;
	return inject_closed(inject,
			     error_create(ERROR_OS, "the payload could not say %s", wanted));
}

/* The next message must be of this kind. */
static struct error *message_expect(const struct inject *inject, struct borrow *borrow,
				    uint32_t kind, struct ha_message *ret)
{
	struct error *err = message_wait(inject, borrow, ret);

	if (!err && ret->kind != kind)
		err = message_wrong(inject, borrow, ret, kind ? "that it is done" : "no more");
	return err;
}

/* Returns false if T's side of the window was closed before. */
static bool window_settle(struct ha_boot *boot, enum ha_window how)
{
	uint32_t waiting = HA_WINDOW_WAITING;

	return __atomic_compare_exchange_n(&boot->window, &waiting, (uint32_t)how, false,
					   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static struct error *window_run(const struct inject *inject, const struct ha_message *hello,
				inject_window *window, void *context)
{
	struct ha_boot *boot = boot_local(inject);
	struct error *err = window(context, hello->handle);
	bool settled = window_settle(boot, err ? HA_WINDOW_ABORT : HA_WINDOW_GO);

	/* Wakes boot, which would look at the window by itself a little later. */
	(void)!shutdown(inject->socket, SHUT_WR);
	if (err || settled)
		return err;
	return error_create(ERROR_BUSY, "the loader's window closed before all slots were listed");
}

/*
 * Elsewhere than at its end T may hold the loader's lock, or stand in the loader
 * itself, and must go on from there: it restores itself at the end. Short of a
 * processor, or in a dlopen() that waits for the program, it may take its time.
 */
static bool boot_ends(const struct ha_boot *boot)
{
	const struct timespec pause = {.tv_nsec = 200000};
	uint64_t deadline_ns = clock_now_ns() + END_TIMEOUT_MS * NS_PER_MS;

	while (!__atomic_load_n(&boot->done, __ATOMIC_ACQUIRE)) {
		if (clock_now_ns() >= deadline_ns)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/*
 * T waits to be stopped. Whoever wins the compare-and-swap restores T; if it
 * was T, it runs on as it was and is only let go. T helps itself, too, when we
 * have won but were kept from coming for long: it is looked at once more when
 * T is stopped and can change nothing any more.
 */
static struct error *boot_take_back(struct inject *inject, struct borrow *borrow,
				    struct inject_boot_result *result)
{
	uint32_t *restore = &boot_local(inject)->restore;
	uint32_t nobody = HA_RESTORE_NOBODY;
	struct error *err;

	if (boot_ends(boot_local(inject)) &&
	    __atomic_compare_exchange_n(restore, &nobody, HA_RESTORE_INJECTOR, false,
					__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		err = borrow_stop_again(borrow, BORROW_STEP_TIMEOUT_MS);
		if (err || __atomic_load_n(restore, __ATOMIC_SEQ_CST) == HA_RESTORE_INJECTOR)
			return err;
	}
	result->let_go = true;
	return borrow_let_go(borrow, NULL);
}

static void result_fill(const struct inject *inject, struct inject_boot_result *result)
{
	const struct ha_boot *boot = boot_local(inject);

	result->lock_tries = boot->lock_tries;
	if (boot->mode == HA_BOOT_DLOPEN && boot->loaded_ns > boot->locked_ns)
		result->dlopen_ns = boot->loaded_ns - boot->locked_ns;
	result->locked_ns = boot->end_ns > boot->locked_ns ? boot->end_ns - boot->locked_ns : 0;
}

static struct error *status_error(const struct inject *inject, uint32_t status)
{
	char text[sizeof(boot_local(inject)->message)];

	if (status == HA_BOOT_BUSY)
		return error_create(ERROR_BUSY, "the target's loader is in use by another thread");
	memcpy(text, boot_local(inject)->message, sizeof(text));
	text[sizeof(text) - 1] = '\0';
	return error_create(ERROR_UNSUPPORTED, "the target's loader refused the payload: %s", text);
}

/*
 * From HELLO to the end of the conversation. Without the lock, or when dlopen
 * failed, boot says DONE at once. It closes its socket last: until then a
 * descriptor of ours would be left in the target.
 */
static struct error *boot_talk(struct inject *inject, struct borrow *borrow, inject_window *window,
			       void *context)
{
	struct error *err, *outcome = NULL;
	struct ha_message message;

	err = message_wait(inject, borrow, &message);
	if (!err && message.kind == HA_MESSAGE_HELLO) {
		outcome = window_run(inject, &message, window, context);
		err = message_expect(inject, borrow, HA_MESSAGE_DONE, &message);
		if (!err && !outcome)
			outcome = changes_result(shm_region(inject->shm, HA_REGION_CHANGES));
	} else if (!err && message.kind == HA_MESSAGE_DONE) {
		outcome = status_error(inject, message.status);
	} else if (!err) {
		err = message_wrong(inject, borrow, &message, "hello");
	}
	if (!err)
		err = message_expect(inject, borrow, 0, &message);
	if (err) {
		error_free(outcome);
		return err;
	}
	journal_clear_fds(inject->journal);
	inject->remote_socket = -1;
	inject->remote_peer = -1;
	inject->remote_entry = -1;
	return outcome;
}

struct error *inject_boot(struct inject *inject, struct borrow *borrow, enum ha_boot_mode mode,
			  uint32_t lock_timeout_us, inject_window *window, void *context,
			  struct inject_boot_result *result)
{
	struct error *err, *back;

	*result = (struct inject_boot_result){0};
	err = boot_prepare(inject, borrow, mode, lock_timeout_us);
	if (!err)
		err = borrow_run(borrow, inject->journal->core.address + inject->core_header.boot,
				 boot_remote(inject) + HA_BOOT_STACK_TOP, boot_remote(inject));
	if (err)
		return err;
	err = boot_talk(inject, borrow, window, context);
	result_fill(inject, result);
	if (error_is(err, ERROR_GONE) || error_is(err, ERROR_FAULT))
		return err;
	/* Boot does not wait for a window that nobody will open any more. */
	if (err)
		window_settle(boot_local(inject), HA_WINDOW_ABORT);
	back = boot_take_back(inject, borrow, result);
	if (err)
		error_free(back);
	return err ? err : back;
}
