// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Threads that stay where a thread may or may not be borrowed. Each has its
 * place for a name, which it takes when it is there.
 */
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "tests/targets/target.h"

#define STACK (256 * 1024)

static int never[2]; /* a pipe that nobody writes to */

static void arrive(const char *place)
{
	prctl(PR_SET_NAME, place);
}

NOINLINE static void stay(const char *place)
{
	arrive(place);
	for (;;)
		pause();
}

static void *in_loop(void *unused)
{
	volatile uint64_t rounds = 0;

	arrive("loop");
	for (;;)
		rounds++;
	return unused;
}

static void *in_epoll(void *unused)
{
	struct epoll_event event;
	int fd = epoll_create1(0);

	arrive("epoll");
	for (;;)
		epoll_wait(fd, &event, 1, -1);
	return unused;
}

static void *in_read(void *unused)
{
	char byte;

	arrive("read");
	while (read(never[0], &byte, 1) < 0)
		;
	return unused;
}

static void *in_stdio(void *unused)
{
	FILE *file = fdopen(never[0], "r");

	arrive("stdio");
	fgetc(file);
	return unused;
}

static pthread_mutex_t locked = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t free_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void *in_mutex(void *unused)
{
	arrive("mutex");
	pthread_mutex_lock(&locked);
	return unused;
}

static void *in_condition(void *unused)
{
	pthread_mutex_lock(&free_mutex);
	arrive("cond");
	for (;;)
		pthread_cond_wait(&condition, &free_mutex);
	return unused;
}

static void *in_syscall(void *unused)
{
	static int word;

	arrive("syscall");
	for (;;)
		syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
	return unused;
}

static void on_signal(int number)
{
	(void)number;
	stay("signal");
}

static void *in_signal(void *unused)
{
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	return unused;
}

static void once(void)
{
	stay("once");
}

static void *in_once(void *unused)
{
	static pthread_once_t control = PTHREAD_ONCE_INIT;

	pthread_once(&control, once);
	return unused;
}

static int compare(const void *a, const void *b)
{
	stay("qsort");
	return a < b;
}

static void *in_qsort(void *unused)
{
	int numbers[] = {3, 2, 1};

	qsort(numbers, 3, sizeof(numbers[0]), compare);
	return unused;
}

static void destroy(void *unused)
{
	(void)unused;
	stay("destructor");
}

static void *in_destructor(void *unused)
{
	pthread_key_t key;

	pthread_key_create(&key, destroy);
	pthread_setspecific(key, &locked);
	return unused;
}

static void fiber(void)
{
	stay("fiber");
}

static void *in_fiber(void *unused)
{
	static char stack[STACK];
	static ucontext_t context, caller;

	getcontext(&context);
	context.uc_stack.ss_sp = stack;
	context.uc_stack.ss_size = sizeof(stack);
	context.uc_link = &caller;
	makecontext(&context, fiber, 0);
	swapcontext(&caller, &context);
	return unused;
}

static void *in_loader(void *path)
{
	dlopen(path, RTLD_NOW);
	return NULL;
}

static int cloned(void *unused)
{
	(void)unused;
	stay("clone");
	return 0;
}

static void start_clone(void)
{
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED ||
	    clone(cloned, stack + STACK,
		  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
		  NULL) < 0)
		target_fail("clone");
}

static void in_exit(void)
{
	stay("exit");
}

int main(int argc, char **argv)
{
	static void *(*const places[])(void *) = {
		in_loop,   in_epoll, in_read,  in_stdio,      in_mutex, in_condition, in_syscall,
		in_signal, in_once,  in_qsort, in_destructor, in_fiber, in_loader,
	};
	static char path[4096];
	pthread_t thread;
	const char *slash = strrchr(argv[0], '/');

	target_begin();
	snprintf(path, sizeof(path), "%.*s/libpausing.so", slash ? (int)(slash - argv[0]) : 1,
		 slash ? argv[0] : ".");
	if (pipe(never) != 0 || pthread_mutex_lock(&locked) != 0)
		target_fail("set-up");
	start_clone();
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (pthread_create(&thread, NULL, places[i], path) != 0)
			target_fail("pthread_create");
	}
	atexit(in_exit);
	target_say("ready");
	return argc > 1;
}
