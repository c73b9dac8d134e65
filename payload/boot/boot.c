/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Everything here has a deadline that this side keeps by itself: the injector
 * may be stopped or die at any moment. The only system call that waits is
 * ppoll: a thread has one restart_block, and the call that the thread was
 * borrowed from may need it (nanosleep, poll and futex with a timeout do).
 */
#include "payload/boot/boot.h"

#include "relax.h"
#include "syscall.h"

#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/time.h>
#include <stdbool.h>
#include <stddef.h>

#define NS_PER_US     1000ull
#define NS_PER_S      1000000000ull

#define LOCK_SLICE_NS (20 * NS_PER_US)
#define LOCK_WATCH_NS (50 * NS_PER_US)
#define WORD_LOOKS    64 /* between two looks at the clock */

/* Tries at the lock before a sleep. */
#define LOCK_TRIES_AWAKE 4

#define WINDOW_SLICE_NS	 (1000 * NS_PER_US)
#define DONE_SLICE_NS	 (5000 * NS_PER_US)

/*
 * A thread that still runs boot this long after the injector took it over was
 * let go by the injector's death.
 */
#define TAKEOVER_NS NS_PER_S

/* From the C library's headers, which the payload does not include. */
#define RTLD_NOW	2
#define MSG_DONTWAIT	0x40
#define MSG_NOSIGNAL	0x4000
#define PROT_WRITE	2
#define MADV_DONTNEED	4
#define MADV_DONTDUMP	16
#define MADV_WIPEONFORK 18
#define POLLRDHUP	0x2000
#define EINTR		4
#define FUTEX_WAKE_OP	5
#define FUTEX_PRIVATE	128
#define FUTEX_ADD_0	0x10000000 /* FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0) */

struct pollfd {
	int fd;
	short events;
	short revents;
};

typedef int mutex_function(void *mutex);
typedef void *dlopen_function(const char *path, int mode);
typedef char *dlerror_function(void);
typedef int *errno_location_function(void);

#define FUNCTION(type, address) ((type *)(uintptr_t)(address))

static uint64_t now_ns(void)
{
	struct __kernel_timespec now = {0};

	syscall6(__NR_clock_gettime, CLOCK_MONOTONIC, (uint64_t)&now, 0, 0, 0, 0);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/*
 * Wait at most @ns, or until the socket @fd (-1: none) gets no more messages:
 * true. The call writes to its timespec.
 */
static bool wait_ns(int fd, uint64_t ns)
{
	struct __kernel_timespec timeout = {
		.tv_sec = (__kernel_time64_t)(ns / NS_PER_S),
		.tv_nsec = (long long)(ns % NS_PER_S),
	};
	struct pollfd poll = {.fd = fd, .events = POLLRDHUP};

	return syscall6(__NR_ppoll, (uint64_t)&poll, 1, (uint64_t)&timeout, 0, 0, 0) > 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Change *@word from @from to @to; false if another value stood there. */
static bool word_change(uint32_t *word, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static uint32_t word_read(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Look at *@word for at most about @ns: is it @value, or not @value, as is @wanted? */
static bool word_watch(const uint32_t *word, uint32_t value, bool wanted, uint64_t ns)
{
	uint64_t end_ns = now_ns() + ns;

	do {
		for (unsigned int i = 0; i < WORD_LOOKS; i++) {
			if ((word_read(word) == value) == wanted)
				return true;
			cpu_relax();
		}
	} while (now_ns() < end_ns);
	return false;
}

static void status_set(struct ha_boot *boot, enum ha_boot_status status)
{
	__atomic_store_n(&boot->status, status, __ATOMIC_RELEASE);
}

/* Not closed meanwhile by the program, and not one of its own. */
static bool is_still(int32_t fd, const struct ha_file *file)
{
	struct stat now = {0};

	return fd >= 0 && !syscall6(__NR_fstat, (uint64_t)fd, (uint64_t)&now, 0, 0, 0, 0) &&
	       now.st_dev == file->device && now.st_ino == file->inode;
}

static void fd_close(int32_t fd, const struct ha_file *file)
{
	if (is_still(fd, file))
		syscall6(__NR_close, (uint64_t)fd, 0, 0, 0, 0, 0);
}

/* False if the injector's end of the socket is closed. */
static bool message_send(const struct ha_boot *boot, enum ha_message_kind kind)
{
	struct ha_message message = {
		.magic = HA_MAGIC,
		.kind = kind,
		.status = boot->status,
		.handle = boot->handle,
	};
	int64_t sent;

	if (!is_still(boot->sock_fd, &boot->sock_file))
		return false;
	do
		sent = syscall6(__NR_sendto, (uint64_t)boot->sock_fd, (uint64_t)&message,
				sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	while (sent == -EINTR);
	return sent == sizeof(message);
}

/* ------------------------------------------------------------------------
 * The loader
 */

/* One try at least. */
static bool loader_lock(struct ha_boot *boot)
{
	uint64_t limit_ns = boot->lock_timeout_us * NS_PER_US;
	uint64_t passed_ns;

	if (!boot->fn_trylock || !boot->lock)
		return true;
	for (;;) {
		boot->lock_tries++;
		if (!FUNCTION(mutex_function, boot->fn_trylock)((void *)boot->lock))
			return true;
		passed_ns = now_ns() - boot->begin_ns;
		if (passed_ns >= limit_ns)
			return false;
		/* The owner may need our CPU to go on. */
		if (boot->lock_tries % LOCK_TRIES_AWAKE == 0)
			wait_ns(-1, smaller(LOCK_SLICE_NS, limit_ns - passed_ns));
		/*
		 * The mutex' first word is 0 while nobody owns it. A loader at work
		 * without pause lets go for microseconds: who sleeps in between misses them.
		 */
		word_watch((const uint32_t *)boot->lock, 0, true, LOCK_WATCH_NS);
	}
}

static void loader_unlock(struct ha_boot *boot)
{
	if (boot->fn_unlock && boot->lock)
		FUNCTION(mutex_function, boot->fn_unlock)((void *)boot->lock);
}

/* The text lives in memory that the next call of the loader frees: copy it now. */
static void loader_explain(struct ha_boot *boot)
{
	const char *text = NULL;
	size_t i;

	if (boot->fn_dlerror)
		text = FUNCTION(dlerror_function, boot->fn_dlerror)();
	for (i = 0; text && text[i] && i < sizeof(boot->message) - 1; i++)
		boot->message[i] = text[i];
	boot->message[i] = '\0';
}

static bool loader_open(struct ha_boot *boot)
{
	void *handle;

	if (boot->mode != HA_BOOT_DLOPEN)
		return true;
	if (!boot->fn_dlopen)
		return false;
	handle = FUNCTION(dlopen_function, boot->fn_dlopen)(boot->path, RTLD_NOW);
	boot->handle = (uint64_t)handle;
	if (!handle)
		loader_explain(boot);
	return handle;
}

/* ------------------------------------------------------------------------
 * Steps
 */

/*
 * The window: the injector looks at slots until it changes the word, or until
 * time is up or it is gone; then the word is ours to change, and the injector
 * that comes too late sees that. It wakes us by ending its side of the socket,
 * and so does its death: nothing is read, since the number may be another
 * socket's by then, whose messages are the program's.
 */
static void window_wait(struct ha_boot *boot)
{
	uint64_t limit_ns = boot->window_timeout_us * NS_PER_US;
	uint64_t begin_ns = now_ns();
	bool open = message_send(boot, HA_MESSAGE_HELLO);
	uint64_t passed_ns;

	if (open)
		word_watch(&boot->window, HA_WINDOW_WAITING, false,
			   smaller(boot->watch_us * NS_PER_US, limit_ns));
	while (open && word_read(&boot->window) == HA_WINDOW_WAITING) {
		passed_ns = now_ns() - begin_ns;
		if (passed_ns >= limit_ns)
			break;
		open = !wait_ns(boot->sock_fd, smaller(WINDOW_SLICE_NS, limit_ns - passed_ns));
	}
	word_change(&boot->window, HA_WINDOW_WAITING, HA_WINDOW_TIMED_OUT);
}

/* ------------------------------------------------------------------------
 * Changes
 */

/* The kernel adds 0 to the word at @address, and wakes nobody. */
static bool can_write(uint64_t address)
{
	uint32_t unused = 0;

	return syscall6(__NR_futex, (uint64_t)&unused, FUTEX_WAKE_OP | FUTEX_PRIVATE, 0, 0, address,
			FUTEX_ADD_0) >= 0;
}

static int32_t page_protect(const struct ha_change_page *page, uint32_t protection)
{
	return (int32_t)syscall6(__NR_mprotect, page->address, HA_PAGE, protection, 0, 0, 0);
}

/*
 * All that cannot be written to is made so first and closed last: the order of the
 * changes goes from page to page. Only what is found closed is closed again:
 * the loader, or the program, may have opened or closed a page since the plan.
 */
static void pages_open(struct ha_changes *changes)
{
	for (uint32_t i = 0; i < changes->page_count; i++) {
		struct ha_change_page *page = &changes->page[i];

		if (can_write(page->address)) {
			page->protection |= PROT_WRITE;
			continue;
		}
		page->protection &= ~(uint32_t)PROT_WRITE;
		page->error = page_protect(page, page->protection | PROT_WRITE);
	}
}

static void pages_close(struct ha_changes *changes)
{
	for (uint32_t i = 0; i < changes->page_count; i++) {
		struct ha_change_page *page = &changes->page[i];

		if (!page->error && !(page->protection & PROT_WRITE))
			page->error = page_protect(page, page->protection);
	}
}

static void changes_make(struct ha_changes *changes)
{
	pages_open(changes);
	for (uint32_t i = 0; i < changes->count; i++) {
		struct ha_change *change = &changes->change[i];
		uint64_t expected = change->expected;

		if (!changes->page[change->page].error)
			__atomic_compare_exchange_n((uint64_t *)change->address, &expected,
						    change->value, false, __ATOMIC_SEQ_CST,
						    __ATOMIC_SEQ_CST);
	}
	pages_close(changes);
	__atomic_store_n(&changes->made, 1, __ATOMIC_RELEASE);
}

/* All that happens while the loader's lock is ours. */
static void loader_session(struct ha_boot *boot)
{
	if (!loader_lock(boot)) {
		status_set(boot, HA_BOOT_BUSY);
		return;
	}
	boot->locked_ns = now_ns();
	if (loader_open(boot)) {
		boot->loaded_ns = now_ns();
		status_set(boot, HA_BOOT_LOCKED);
		window_wait(boot);
		if (boot->changes && word_read(&boot->window) == HA_WINDOW_GO)
			changes_make((struct ha_changes *)boot->changes);
		loader_unlock(boot);
		status_set(boot, HA_BOOT_UNLOCKED);
	} else {
		loader_unlock(boot);
		status_set(boot, HA_BOOT_FAILED);
	}
}

static bool mappings_advise(struct ha_boot *boot)
{
	static const char text[] = "madvise is refused";
	int64_t ret = 0;

	if (boot->wipe_size)
		ret = syscall6(__NR_madvise, boot->wipe, boot->wipe_size, MADV_WIPEONFORK, 0, 0, 0);
	if (!ret && boot->hide_size)
		ret = syscall6(__NR_madvise, boot->hide, boot->hide_size, MADV_DONTDUMP, 0, 0, 0);
	if (!ret)
		return true;
	for (size_t i = 0; i < sizeof(text); i++)
		boot->message[i] = text[i];
	status_set(boot, HA_BOOT_FAILED);
	return false;
}

/* What the application must not see changed: errno, and an error that dlerror() still owes it. */
static void loader_session_unseen(struct ha_boot *boot)
{
	int *error_number = NULL;
	uint64_t *pending = NULL;
	int saved_error_number = 0;
	uint64_t saved_pending = 0;

	if (boot->fn_errno_location) {
		error_number = FUNCTION(errno_location_function, boot->fn_errno_location)();
		saved_error_number = *error_number;
	}
	if (boot->dlerror_offset) {
		pending = (uint64_t *)(thread_pointer() + (uint64_t)boot->dlerror_offset);
		saved_pending = *pending;
		*pending = 0;
	}
	loader_session(boot);
	if (pending)
		*pending = saved_pending;
	if (error_number)
		*error_number = saved_error_number;
}

static void fds_close(struct ha_boot *boot)
{
	for (size_t i = 0; i < sizeof(boot->close_fds) / sizeof(boot->close_fds[0]); i++)
		fd_close(boot->close_fds[i], &boot->close_files[i]);
}

/* Sleep, in slices, while *@word is @value and less than @limit_ns have passed. */
static void word_wait(const struct ha_boot *boot, const uint32_t *word, uint32_t value,
		      uint64_t limit_ns)
{
	uint64_t begin_ns = now_ns();

	word_watch(word, value, false, smaller(boot->watch_us * NS_PER_US, limit_ns));
	while (word_read(word) == value && now_ns() - begin_ns < limit_ns)
		wait_ns(-1, DONE_SLICE_NS);
}

/*
 * The injector stops the thread here and never lets it run on. If it does not
 * come, or has died after it took over, the thread helps itself.
 */
static _Noreturn void restore_wait(struct ha_boot *boot)
{
	uint32_t *restore = &boot->restore;

	if (boot->sigframe) {
		word_wait(boot, restore, HA_RESTORE_NOBODY, boot->done_timeout_us * NS_PER_US);
		if (word_change(restore, HA_RESTORE_NOBODY, HA_RESTORE_SELF))
			boot_sigreturn(boot->sigframe);
		word_wait(boot, restore, HA_RESTORE_INJECTOR, TAKEOVER_NS);
		if (word_change(restore, HA_RESTORE_INJECTOR, HA_RESTORE_SELF))
			boot_sigreturn(boot->sigframe);
	}
	for (;;)
		wait_ns(-1, DONE_SLICE_NS);
}

_Noreturn void boot_run(struct ha_boot *boot)
{
	boot->begin_ns = now_ns();
	fd_close(boot->peer_fd, &boot->peer_file);
	if (mappings_advise(boot))
		loader_session_unseen(boot);
	if (boot->empty_size)
		syscall6(__NR_madvise, boot->empty, boot->empty_size, MADV_DONTNEED, 0, 0, 0);
	fds_close(boot);
	boot->end_ns = now_ns();
	message_send(boot, HA_MESSAGE_DONE);
	fd_close(boot->sock_fd, &boot->sock_file);
	__atomic_store_n(&boot->done, 1, __ATOMIC_RELEASE);
	restore_wait(boot);
}
