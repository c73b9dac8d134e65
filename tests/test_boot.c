/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Boot as it is built into core's image, on a thread of this process; the test
 * itself plays the injector. A recursive mutex stands for the loader's lock,
 * the rest is real: dlopen, dlerror, errno, entry.
 */
#include "injector/changes.h"
#include "injector/payload_image.h"
#include "resolver/cleanup.h"
#include "tests/hooked.h"
#include "tests/tests.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uint8_t *region;	     /* as HA_REGION_BOOT */
static struct ha_boot *boot; /* at its start */
static uint64_t boot_start;
static int sock; /* the injector's end */
static pthread_mutex_t lock;
static pthread_t thread;

/* What the borrowed thread found after it was put back. */
static int errno_after;
static char dlerror_after[256];

static uint64_t address(const void *pointer)
{
	return (uint64_t)(uintptr_t)pointer;
}

static struct ha_file file_of(int fd)
{
	struct stat info;

	ck_assert_int_eq(fstat(fd, &info), 0);
	return (struct ha_file){info.st_dev, info.st_ino};
}

static void core_map(void)
{
	const struct ha_core *core = (const struct ha_core *)payload_core;
	size_t size = (payload_core_size + HA_PAGE - 1) / HA_PAGE * HA_PAGE;
	uint8_t *image =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(image, MAP_FAILED);
	memcpy(image, payload_core, payload_core_size);
	ck_assert_int_eq(mprotect(image, size, PROT_READ | PROT_EXEC), 0);
	boot_start = address(image) + core->boot;
}

static void lock_init(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void boot_setup(void)
{
	int pair[2];
	int entry_fd = hooked_file("entry", payload_entry, payload_entry_size);

	core_map();
	lock_init();
	region =
		mmap(NULL, HA_BOOT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(region, MAP_FAILED);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	sock = pair[0];
	boot = (struct ha_boot *)region;
	*boot = (struct ha_boot){
		.mode = HA_BOOT_DLOPEN,
		.sock_fd = pair[1],
		.fn_trylock = address(pthread_mutex_trylock),
		.fn_unlock = address(pthread_mutex_unlock),
		.fn_dlopen = address(dlopen),
		.fn_dlerror = address(dlerror),
		.fn_errno_location = address(__errno_location),
		.lock = address(&lock),
		.lock_timeout_us = 10000,
		.window_timeout_us = 10000000,
		.done_timeout_us = 1000,
		.close_fds = {entry_fd, -1, -1},
		.peer_fd = -1,
		.sigframe = sigframe_sp(region + HA_BOOT_SIGFRAME),
	};
	boot->sock_file = file_of(pair[1]);
	boot->close_files[0] = file_of(entry_fd);
	snprintf(boot->path, sizeof(boot->path), "/proc/self/fd/%d", entry_fd);
}

/* The thread has an errno and an unread dlerror() of its own. */
static void *borrowed(void *argument)
{
	void *pending = dlsym(RTLD_DEFAULT, "__libc_dlerror_result");
	const char *text;

	if (pending)
		boot->dlerror_offset = (int64_t)(address(pending) - (uint64_t)pthread_self());
	dlopen("/nowhere/of-the-application.so", RTLD_NOW);
	errno = 77;
	run_on_stack(boot_start, boot, region + HA_BOOT_STACK_TOP, region + HA_BOOT_SIGFRAME);
	errno_after = errno;
	text = dlerror();
	snprintf(dlerror_after, sizeof(dlerror_after), "%s", text ? text : "");
	return boot;
}

static void boot_begin(void)
{
	ck_assert_int_eq(pthread_create(&thread, NULL, borrowed, NULL), 0);
}

/* The thread went on where it was, with all that it had. */
static void assert_put_back(void)
{
	void *result;

	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, boot);
	ck_assert_uint_eq(boot->restore, HA_RESTORE_SELF);
	ck_assert_int_eq(errno_after, 77);
	ck_assert_ptr_ne(dlsym(RTLD_DEFAULT, "__libc_dlerror_result"), NULL);
	ck_assert_msg(strstr(dlerror_after, "of-the-application") != NULL, "dlerror is \"%s\"",
		      dlerror_after);
}

static void assert_message(enum ha_message_kind kind, enum ha_boot_status status)
{
	struct ha_message message;

	ck_assert_int_eq(recv(sock, &message, sizeof(message), 0), sizeof(message));
	ck_assert_uint_eq(message.magic, HA_MAGIC);
	ck_assert_uint_eq(message.kind, kind);
	ck_assert_uint_eq(message.status, status);
	ck_assert_uint_eq(message.handle, boot->handle);
}

/* DONE, the socket closed, no fd of ours left, the lock free. */
static void assert_done(enum ha_boot_status status)
{
	char byte;

	assert_message(HA_MESSAGE_DONE, status);
	ck_assert_int_eq(recv(sock, &byte, 1, 0), 0);
	while (!__atomic_load_n(&boot->done, __ATOMIC_ACQUIRE))
		usleep(100);
	ck_assert_uint_eq(boot->status, status);
	ck_assert_int_eq(fcntl(boot->close_fds[0], F_GETFD), -1);
	ck_assert_int_eq(pthread_mutex_trylock(&lock), 0);
	pthread_mutex_unlock(&lock);
}

static void window_close(enum ha_window window)
{
	uint32_t waiting = HA_WINDOW_WAITING;

	ck_assert(__atomic_compare_exchange_n(&boot->window, &waiting, window, false,
					      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	ck_assert_int_eq(shutdown(sock, SHUT_WR), 0);
}

/* ------------------------------------------------------------------------ */

START_TEST(header_of_core_is_as_the_contract_says)
{
	const struct ha_core *core = (const struct ha_core *)payload_core;
	const uint32_t offset[] = {core->alloc,	      core->free,    core->realloc_begin,
				   core->realloc_end, core->xallocx, core->boot};

	ck_assert_uint_eq(core->magic, HA_MAGIC);
	ck_assert_uint_eq(core->abi, HA_ABI);
	ck_assert_uint_eq(core->size, payload_core_size);
	for (size_t i = 0; i < sizeof(offset) / sizeof(offset[0]); i++) {
		ck_assert_uint_ge(offset[i], sizeof(*core));
		ck_assert_uint_lt(offset[i], payload_core_size);
	}
}
END_TEST

START_TEST(loads_entry_and_holds_the_lock_until_go)
{
	const struct ha_entry *entry;

	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	ck_assert_uint_eq(boot->status, HA_BOOT_LOCKED);
	ck_assert_int_eq(pthread_mutex_trylock(&lock), EBUSY);
	entry = (const struct ha_entry *)(((struct link_map *)boot->handle)->l_addr +
					  HA_ENTRY_DATA);
	ck_assert_uint_eq(entry->magic, HA_MAGIC);
	window_close(HA_WINDOW_GO);
	assert_done(HA_BOOT_UNLOCKED);
	ck_assert_uint_eq(boot->window, HA_WINDOW_GO);
	ck_assert_uint_eq(boot->lock_tries, 1);
	ck_assert_uint_le(boot->begin_ns, boot->locked_ns);
	ck_assert_uint_le(boot->locked_ns, boot->loaded_ns);
	ck_assert_uint_le(boot->loaded_ns, boot->end_ns);
	assert_put_back();
}
END_TEST

START_TEST(lock_only_loads_nothing)
{
	boot->mode = HA_BOOT_LOCK_ONLY;
	boot->fn_dlopen = 0;
	boot->fn_dlerror = 0;
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	ck_assert_int_eq(pthread_mutex_trylock(&lock), EBUSY);
	window_close(HA_WINDOW_GO);
	assert_done(HA_BOOT_UNLOCKED);
	ck_assert_uint_eq(boot->handle, 0);
	assert_put_back();
}
END_TEST

START_TEST(aborted_window_is_left_at_once)
{
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	window_close(HA_WINDOW_ABORT);
	assert_done(HA_BOOT_UNLOCKED);
	ck_assert_uint_eq(boot->window, HA_WINDOW_ABORT);
	assert_put_back();
}
END_TEST

/* The word alone ends the window; the socket only makes it quicker. */
START_TEST(word_alone_is_seen)
{
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	__atomic_store_n(&boot->window, HA_WINDOW_GO, __ATOMIC_SEQ_CST);
	assert_done(HA_BOOT_UNLOCKED);
	assert_put_back();
}
END_TEST

START_TEST(busy_lock_is_tried_once_without_a_timeout)
{
	boot->lock_timeout_us = 0;
	pthread_mutex_lock(&lock);
	boot_begin();
	assert_message(HA_MESSAGE_DONE, HA_BOOT_BUSY);
	pthread_mutex_unlock(&lock);
	assert_put_back();
	ck_assert_uint_eq(boot->lock_tries, 1);
	ck_assert_uint_eq(boot->locked_ns, 0);
	ck_assert_uint_eq(boot->handle, 0);
}
END_TEST

START_TEST(busy_lock_is_tried_until_the_timeout)
{
	boot->lock_timeout_us = 5000;
	pthread_mutex_lock(&lock);
	boot_begin();
	assert_message(HA_MESSAGE_DONE, HA_BOOT_BUSY);
	pthread_mutex_unlock(&lock);
	assert_put_back();
	ck_assert_uint_gt(boot->lock_tries, 1);
	ck_assert_uint_ge(boot->end_ns - boot->begin_ns, 5000000);
}
END_TEST

START_TEST(lock_that_gets_free_is_taken)
{
	boot->lock_timeout_us = 10000000;
	pthread_mutex_lock(&lock);
	boot_begin();
	while (__atomic_load_n(&boot->lock_tries, __ATOMIC_RELAXED) < 3)
		usleep(100);
	pthread_mutex_unlock(&lock);
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	window_close(HA_WINDOW_GO);
	assert_done(HA_BOOT_UNLOCKED);
	assert_put_back();
}
END_TEST

START_TEST(unknown_lock_is_left_out)
{
	boot->mode = HA_BOOT_LOCK_ONLY;
	boot->lock = boot->fn_trylock = boot->fn_unlock = 0;
	pthread_mutex_lock(&lock);
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	window_close(HA_WINDOW_GO);
	assert_message(HA_MESSAGE_DONE, HA_BOOT_UNLOCKED);
	assert_put_back();
}
END_TEST

START_TEST(failed_dlopen_is_explained)
{
	snprintf(boot->path, sizeof(boot->path), "/proc/self/fd/999999");
	boot_begin();
	assert_done(HA_BOOT_FAILED);
	ck_assert_msg(strstr(boot->message, "/proc/self/fd/999999: cannot open") != NULL,
		      "message is \"%s\"", boot->message);
	ck_assert_uint_eq(boot->handle, 0);
	assert_put_back();
}
END_TEST

static char *long_dlerror(void)
{
	static char text[1000];

	memset(text, 'x', sizeof(text) - 1);
	return text;
}

START_TEST(long_explanation_is_cut)
{
	snprintf(boot->path, sizeof(boot->path), "/proc/self/fd/999999");
	boot->fn_dlerror = address(long_dlerror);
	boot_begin();
	assert_done(HA_BOOT_FAILED);
	ck_assert_uint_eq(strlen(boot->message), sizeof(boot->message) - 1);
	ck_assert_uint_eq(boot->window, HA_WINDOW_WAITING);
}
END_TEST

/* ---- changes */

#define OLD UINT64_C(0x00007f827e9fa6e0) /* differ in most bytes */
#define NEW UINT64_C(0x000055c99d4a5086)

static struct ha_changes *changes;
static struct changes adding;

/* A page of one word behind the other, all OLD. */
static uint64_t *words_map(int protection)
{
	uint64_t *words =
		mmap(NULL, HA_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(words, MAP_FAILED);
	for (size_t i = 0; i < HA_PAGE / sizeof(*words); i++)
		words[i] = OLD;
	ck_assert_int_eq(mprotect(words, HA_PAGE, protection), 0);
	return words;
}

static void change_add(const uint64_t *word, uint64_t expected, uint64_t value, int protection)
{
	if (!changes)
		changes = adding.list = calloc(1, sizeof(*changes));
	assert_ok(changes_add(&adding, address(word), expected, value, (uint32_t)protection));
}

static void changes_run(enum ha_window window)
{
	boot->mode = HA_BOOT_LOCK_ONLY;
	boot->changes = address(changes);
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	window_close(window);
	assert_done(HA_BOOT_UNLOCKED);
	assert_put_back();
}

/* By what the kernel says when it is asked to store there. */
static bool is_writable(const uint64_t *word)
{
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	uint64_t kept = *word;
	bool written = read(fd, (void *)(uintptr_t)address(word), 8) == 8;

	close(fd);
	if (written)
		*(volatile uint64_t *)(uintptr_t)address(word) = kept;
	return written;
}

START_TEST(changes_words_wherever_they_are)
{
	uint64_t *open = words_map(PROT_READ | PROT_WRITE), *closed = words_map(PROT_READ);

	change_add(&open[3], OLD, NEW, PROT_READ | PROT_WRITE);
	change_add(&closed[3], OLD, NEW, PROT_READ);
	change_add(&open[511], OLD, NEW, PROT_READ | PROT_WRITE);
	change_add(&open[4], NEW, 0, PROT_READ | PROT_WRITE); /* holds something else */
	ck_assert_uint_eq(changes->page_count, 2);
	changes_run(HA_WINDOW_GO);
	assert_ok(changes_result(changes));
	ck_assert_uint_eq(open[3], NEW);
	ck_assert_uint_eq(open[511], NEW);
	ck_assert_uint_eq(open[4], OLD);
	ck_assert_uint_eq(closed[3], NEW);
	ck_assert_uint_eq(closed[4], OLD);
	ck_assert(is_writable(open));
	ck_assert(!is_writable(closed));
}
END_TEST

/* The loader has closed one since the plan, and the program opened the other. */
START_TEST(finds_out_itself_which_pages_are_closed)
{
	uint64_t *open = words_map(PROT_READ | PROT_WRITE), *closed = words_map(PROT_READ);

	change_add(open, OLD, NEW, PROT_READ);
	change_add(closed, OLD, NEW, PROT_READ | PROT_WRITE);
	changes_run(HA_WINDOW_GO);
	assert_ok(changes_result(changes));
	ck_assert_uint_eq(*open, NEW);
	ck_assert_uint_eq(*closed, NEW);
	ck_assert(is_writable(open));
	ck_assert(!is_writable(closed));
}
END_TEST

START_TEST(leaves_out_pages_that_cannot_be_opened)
{
	uint64_t *words = words_map(PROT_READ | PROT_WRITE);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	const uint64_t *refused = mmap(NULL, HA_PAGE, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t kept;

	ck_assert_ptr_ne(refused, MAP_FAILED);
	close(fd);
	kept = *refused;
	change_add(refused, kept, NEW, PROT_READ);
	change_add(words, OLD, NEW, PROT_READ | PROT_WRITE);
	changes_run(HA_WINDOW_GO);
	assert_fails(changes_result(changes), ERROR_DENIED);
	ck_assert_int_eq(changes->page[0].error, -EACCES);
	ck_assert_uint_eq(*refused, kept);
	ck_assert_uint_eq(*words, NEW);
}
END_TEST

START_TEST(changes_nothing_without_go)
{
	uint64_t *words = words_map(PROT_READ | PROT_WRITE);

	change_add(words, OLD, NEW, PROT_READ | PROT_WRITE);
	changes_run(HA_WINDOW_ABORT);
	assert_fails(changes_result(changes), ERROR_BUSY);
	ck_assert_uint_eq(*words, OLD);
}
END_TEST

static void *mixture_look(void *word)
{
	uint64_t value;

	do
		value = __atomic_load_n((uint64_t *)word, __ATOMIC_RELAXED);
	while (value == OLD || value == NEW);
	return value ? word : NULL; /* 0 ends it */
}

/* The offset in its page is one at which the kernel's copy does it byte by byte. */
START_TEST(no_thread_sees_a_mixture)
{
	uint64_t *word = words_map(PROT_READ) + 3;
	pthread_t reader;
	void *mixture;

	ck_assert_int_eq(pthread_create(&reader, NULL, mixture_look, word), 0);
	for (int i = 0; i < 30000; i++)
		change_add(word, i & 1 ? NEW : OLD, i & 1 ? OLD : NEW, PROT_READ);
	change_add(word, OLD, 0, PROT_READ);
	changes_run(HA_WINDOW_GO);
	assert_ok(changes_result(changes));
	ck_assert_int_eq(pthread_join(reader, &mixture), 0);
	ck_assert_ptr_null(mixture);
}
END_TEST

START_TEST(window_times_out)
{
	boot->window_timeout_us = 3000;
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	assert_done(HA_BOOT_UNLOCKED);
	ck_assert_uint_eq(boot->window, HA_WINDOW_TIMED_OUT);
	ck_assert_uint_ge(boot->end_ns - boot->loaded_ns, 3000000);
	assert_put_back();
}
END_TEST

/* The time-outs here are longer than the test's own. */
START_TEST(dead_injector_ends_the_window_at_once)
{
	boot->window_timeout_us = 100000000;
	if (_i)
		close(sock);
	boot_begin();
	if (!_i) {
		assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
		close(sock);
	}
	assert_put_back();
	ck_assert_uint_eq(boot->window, HA_WINDOW_TIMED_OUT);
	ck_assert_int_eq(pthread_mutex_trylock(&lock), 0);
}
END_TEST

static void boot_go_through(void)
{
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	window_close(HA_WINDOW_GO);
	assert_done(HA_BOOT_UNLOCKED);
}

START_TEST(without_a_frame_the_thread_waits)
{
	boot->sigframe = 0;
	boot_go_through();
	usleep(20000);
	ck_assert_uint_eq(boot->restore, HA_RESTORE_NOBODY);
	ck_assert_int_eq(pthread_tryjoin_np(thread, NULL), EBUSY);
}
END_TEST

START_TEST(thread_that_was_taken_over_waits_and_outlives_the_injector)
{
	uint32_t nobody = HA_RESTORE_NOBODY;

	boot->done_timeout_us = 10000000;
	boot_go_through();
	ck_assert(__atomic_compare_exchange_n(&boot->restore, &nobody, HA_RESTORE_INJECTOR, false,
					      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	usleep(100000);
	ck_assert_uint_eq(boot->restore, HA_RESTORE_INJECTOR);
	ck_assert_int_eq(pthread_tryjoin_np(thread, NULL), EBUSY);
	assert_put_back();
}
END_TEST

static uint8_t *page_make(void)
{
	uint8_t *page =
		mmap(NULL, HA_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(page, MAP_FAILED);
	page[0] = 7;
	return page;
}

/* VmFlags of the mapping that begins at @page has "dd": it is not dumped. */
static bool is_left_out_of_dumps(const uint8_t *page)
{
	CLEANUP(freep) char *text = tests_read_file("/proc/self/smaps");
	char start[32];
	const char *flags;

	ck_assert_ptr_nonnull(text);
	snprintf(start, sizeof(start), "\n%lx-", (unsigned long)page);
	flags = strstr(text, start);
	ck_assert_ptr_nonnull(flags);
	flags = strstr(flags, "VmFlags:");
	ck_assert_ptr_nonnull(flags);
	return memmem(flags, strcspn(flags, "\n"), " dd", 3) != NULL;
}

/* A number that boot is told, and something else behind it. */
static void fd_replace(int fd)
{
	int own = open("/dev/null", O_RDONLY);

	ck_assert_int_eq(dup2(own, fd), fd);
	close(own);
}

/* It closed all that it had not opened, and opened files of its own. */
START_TEST(descriptors_that_are_the_programs_by_now_are_left_alone)
{
	int own[2];
	char byte = 0;

	boot->mode = HA_BOOT_LOCK_ONLY;
	boot->peer_fd = open("/dev/zero", O_RDONLY);
	boot->peer_file = file_of(boot->peer_fd);
	fd_replace(boot->peer_fd);
	fd_replace(boot->close_fds[0]);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, own), 0);
	ck_assert_int_eq(send(own[0], "x", 1, 0), 1);
	ck_assert_int_eq(dup2(own[1], boot->sock_fd), boot->sock_fd);
	boot_begin();
	while (!__atomic_load_n(&boot->done, __ATOMIC_ACQUIRE))
		usleep(100);
	ck_assert_int_ge(fcntl(boot->peer_fd, F_GETFD), 0);
	ck_assert_int_ge(fcntl(boot->close_fds[0], F_GETFD), 0);
	ck_assert_int_eq(recv(boot->sock_fd, &byte, 1, MSG_DONTWAIT), 1);
	ck_assert_int_eq(send(own[0], "y", 1, 0), 1);
	ck_assert_int_eq(pthread_mutex_trylock(&lock), 0);
	pthread_mutex_unlock(&lock);
}
END_TEST

START_TEST(peer_is_closed_and_mappings_are_advised_first)
{
	uint8_t *wiped = page_make(), *kept = page_make();
	int status;
	pid_t child;

	boot->peer_fd = open("/dev/null", O_RDONLY);
	ck_assert_int_ge(boot->peer_fd, 0);
	boot->peer_file = file_of(boot->peer_fd);
	boot->wipe = address(wiped);
	boot->wipe_size = boot->hide_size = HA_PAGE;
	boot->hide = address(kept);
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	ck_assert_int_eq(fcntl(boot->peer_fd, F_GETFD), -1);
	ck_assert(is_left_out_of_dumps(kept));
	child = fork();
	if (child == 0)
		_exit(wiped[0] * 10 + kept[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(WEXITSTATUS(status), 7);
	window_close(HA_WINDOW_GO);
	assert_done(HA_BOOT_UNLOCKED);
	assert_put_back();
}
END_TEST

START_TEST(mapping_is_emptied_last)
{
	uint8_t *emptied = page_make();

	boot->empty = address(emptied);
	boot->empty_size = HA_PAGE;
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	ck_assert_uint_eq(emptied[0], 7);
	window_close(HA_WINDOW_GO);
	assert_done(HA_BOOT_UNLOCKED);
	ck_assert_uint_eq(emptied[0], 0);
	assert_put_back();
}
END_TEST

/* It uses its processor while it watches, and none while it sleeps. */
START_TEST(thread_watches_before_it_sleeps)
{
	struct timespec used = {0};
	clockid_t clock;

	boot->watch_us = 8000000;
	boot_begin();
	assert_message(HA_MESSAGE_HELLO, HA_BOOT_LOCKED);
	ck_assert_int_eq(pthread_getcpuclockid(thread, &clock), 0);
	while (used.tv_sec == 0 && used.tv_nsec < 50000000) {
		usleep(1000);
		ck_assert_int_eq(clock_gettime(clock, &used), 0);
	}
	ck_assert_uint_eq(boot->window, HA_WINDOW_WAITING);
	boot->watch_us = 0;
	window_close(HA_WINDOW_GO);
	assert_done(HA_BOOT_UNLOCKED);
	assert_put_back();
}
END_TEST

START_TEST(mapping_that_cannot_be_advised_is_a_failure)
{
	boot->wipe = address(region); /* shared: fork cannot wipe it */
	boot->wipe_size = HA_PAGE;
	boot_begin();
	assert_done(HA_BOOT_FAILED);
	ck_assert_str_eq(boot->message, "madvise is refused");
	ck_assert_uint_eq(boot->lock_tries, 0);
	assert_put_back();
}
END_TEST

Suite *boot_suite(void)
{
	Suite *suite = suite_create("boot");
	TCase *tcase = tcase_create("boot");

	tcase_add_checked_fixture(tcase, boot_setup, NULL);
	tcase_set_timeout(tcase, 20);
	tcase_add_test(tcase, header_of_core_is_as_the_contract_says);
	tcase_add_test(tcase, loads_entry_and_holds_the_lock_until_go);
	tcase_add_test(tcase, lock_only_loads_nothing);
	tcase_add_test(tcase, aborted_window_is_left_at_once);
	tcase_add_test(tcase, word_alone_is_seen);
	tcase_add_test(tcase, busy_lock_is_tried_once_without_a_timeout);
	tcase_add_test(tcase, busy_lock_is_tried_until_the_timeout);
	tcase_add_test(tcase, lock_that_gets_free_is_taken);
	tcase_add_test(tcase, unknown_lock_is_left_out);
	tcase_add_test(tcase, failed_dlopen_is_explained);
	tcase_add_test(tcase, long_explanation_is_cut);
	tcase_add_test(tcase, changes_words_wherever_they_are);
	tcase_add_test(tcase, finds_out_itself_which_pages_are_closed);
	tcase_add_test(tcase, leaves_out_pages_that_cannot_be_opened);
	tcase_add_test(tcase, changes_nothing_without_go);
	tcase_add_test(tcase, no_thread_sees_a_mixture);
	tcase_add_test(tcase, window_times_out);
	tcase_add_test(tcase, peer_is_closed_and_mappings_are_advised_first);
	tcase_add_test(tcase, descriptors_that_are_the_programs_by_now_are_left_alone);
	tcase_add_test(tcase, mapping_is_emptied_last);
	tcase_add_test(tcase, thread_watches_before_it_sleeps);
	tcase_add_test(tcase, mapping_that_cannot_be_advised_is_a_failure);
	tcase_add_loop_test(tcase, dead_injector_ends_the_window_at_once, 0, 2);
	tcase_add_test(tcase, without_a_frame_the_thread_waits);
	tcase_add_test(tcase, thread_that_was_taken_over_waits_and_outlives_the_injector);
	suite_add_tcase(suite, tcase);
	return suite;
}
