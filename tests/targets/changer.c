/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * changer: watches itself (witness.h) and does on command what changes a
 * process. Each answers "ok", or says what went wrong.
 *
 *	local, deepbind, space	load libouter.so, which finds libinner.so by
 *				RUNPATH $ORIGIN, with RTLD_LOCAL, RTLD_DEEPBIND,
 *				or by dlmopen into a name space of its own
 *	nss, iconv		have the C library load its own modules
 *	fork, vfork, spawn, popen, system	processes
 *	fibers, altstack, threads	stacks
 *	close, setuid, setuids, chroot DIR	what a daemon does; one thread becomes
 *				another user, or all of them, which interrupts calls
 *	undumpable		as after exec of a set-user-ID program
 *	closing, closed		begin and end to close all unknown descriptors
 *				again and again, to open and use others, and to load
 *	check, keep N, stop	as witness
 *	exec			become this program anew: "ready" again
 *	daemonise PATH		the process ends, a grandchild runs on with all
 *				descriptors closed; it says "ok" and goes on on a
 *				connection to the socket PATH
 */
#include "tests/targets/witness.h"

#include <dlfcn.h>
#include <iconv.h>
#include <limits.h>
#include <netdb.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <ucontext.h>

#define ROUNDS 50
#define NOBODY 65534

extern char **environ;

NOINLINE static void keep_blocks(int count)
{
	for (int i = 0; i < count; i++) {
		void *block = malloc(100);

		KEEP(block);
	}
}

/* ---- libraries */

static const char *own_file(const char *name)
{
	static char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);

	if (length < 0)
		target_fail("readlink");
	path[length] = '\0';
	strcpy(strrchr(path, '/') + 1, name);
	return path;
}

static bool outer_use(void *library)
{
	int (*work)(int) = library ? (int (*)(int))dlsym(library, "outer_work") : NULL;
	bool good = work && work(ROUNDS) == ROUNDS;

	if (!library)
		target_say("%s", dlerror());
	/* It is nobody else's. */
	return good && !dlsym(RTLD_DEFAULT, "outer_work") && dlclose(library) == 0;
}

static bool run_local(const char *argument)
{
	return outer_use(dlopen(own_file("libouter.so"), RTLD_NOW | RTLD_LOCAL));
}

static bool run_deepbind(const char *argument)
{
	return outer_use(dlopen(own_file("libouter.so"), RTLD_LAZY | RTLD_DEEPBIND));
}

static bool run_space(const char *argument)
{
	return outer_use(dlmopen(LM_ID_NEWLM, own_file("libouter.so"), RTLD_NOW));
}

static bool run_nss(const char *argument)
{
	struct addrinfo *found = NULL;
	const struct passwd *account = getpwnam("nobody");
	bool good = account && account->pw_uid == NOBODY;

	if (getaddrinfo("127.0.0.1", "80", NULL, &found) == 0)
		freeaddrinfo(found);
	return good && !getpwnam("no such user");
}

static bool run_iconv(const char *argument)
{
	iconv_t to = iconv_open("EUC-JP", "UTF-8"), back = iconv_open("UTF-8", "EUC-JP");
	char text[] = "\xe3\x81\x82\xe3\x81\x84", packed[16] = "", again[16] = "";
	char *from = text, *out = packed;
	size_t left = sizeof(text), room = sizeof(packed);

	if (to == (iconv_t)-1 || back == (iconv_t)-1 || iconv(to, &from, &left, &out, &room))
		return false;
	from = packed;
	out = again;
	left = sizeof(packed) - room;
	room = sizeof(again);
	return iconv(back, &from, &left, &out, &room) == 0 && strcmp(text, again) == 0 &&
	       iconv_close(to) == 0 && iconv_close(back) == 0;
}

/* ---- processes */

static bool ended_with(pid_t pid, int code)
{
	int status;

	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == code;
}

static bool run_fork(const char *argument)
{
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			keep_blocks(1000);
			_exit(7);
		}
		if (!ended_with(pid, 7))
			return false;
	}
	return true;
}

static bool run_vfork(const char *argument)
{
	static char *const argv[] = {"true", NULL};

	for (int i = 0; i < 10; i++) {
		pid_t pid = vfork();

		if (pid == 0) {
			execve("/bin/true", argv, environ);
			_exit(1);
		}
		if (!ended_with(pid, 0))
			return false;
	}
	return true;
}

static bool run_spawn(const char *argument)
{
	static char *const argv[] = {"false", NULL};

	for (int i = 0; i < 10; i++) {
		pid_t pid;

		if (posix_spawnp(&pid, "false", NULL, NULL, argv, environ) || !ended_with(pid, 1))
			return false;
	}
	return true;
}

static bool run_popen(const char *argument)
{
	for (int i = 0; i < 10; i++) {
		char line[64] = "";
		FILE *pipe = popen("echo said by a shell", "re");

		if (!pipe || !fgets(line, sizeof(line), pipe) || pclose(pipe) != 0 ||
		    strcmp(line, "said by a shell\n") != 0)
			return false;
	}
	return true;
}

/*
 * system() blocks SIGCHLD in its thread, so that the kernel does not drop it but
 * looks for another thread: on a busy machine the one in epoll_wait, whose call
 * that ends, whether we are there or not.
 */
static bool run_system(const char *argument)
{
	witness.eintr_allowed = true;
	for (int i = 0; i < 10; i++) {
		int status = system("exit 3");

		if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
			return false;
	}
	return true;
}

/* ---- stacks */

#define FIBERS	    4
#define FIBER_STACK 16384

static ucontext_t scheduler, fibers[FIBERS];
static int fiber_rounds;

static void fiber_main(int number)
{
	for (int i = 0; i < ROUNDS; i++) {
		unsigned char *block = malloc(500), *other = calloc(3, 100);

		memset(block, number, 500);
		swapcontext(&fibers[number], &scheduler);
		fiber_rounds += block[0] == number && block[499] == number && other[299] == 0;
		free(block);
		free(other);
	}
}

static bool run_fibers(const char *argument)
{
	char *stacks = malloc(FIBERS * FIBER_STACK);

	fiber_rounds = 0;
	for (int i = 0; i < FIBERS; i++) {
		getcontext(&fibers[i]);
		fibers[i].uc_stack.ss_sp = stacks + i * FIBER_STACK;
		fibers[i].uc_stack.ss_size = FIBER_STACK;
		fibers[i].uc_link = &scheduler;
		makecontext(&fibers[i], (void (*)(void))fiber_main, 1, i);
	}
	for (int i = 0; i < FIBERS * (ROUNDS + 1); i++)
		swapcontext(&scheduler, &fibers[i % FIBERS]);
	free(stacks);
	return fiber_rounds == FIBERS * ROUNDS;
}

static volatile int handled;

static void alternate_handler(int number)
{
	char *block = malloc(2000);

	memset(block, 1, 2000);
	handled += realloc(block, 3000) != NULL;
}

static bool run_altstack(const char *argument)
{
	static char stack[32768];
	const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	const stack_t none = {.ss_flags = SS_DISABLE};
	struct sigaction action = {.sa_handler = alternate_handler, .sa_flags = SA_ONSTACK}, old;

	handled = 0;
	if (sigaltstack(&alternate, NULL) || sigaction(SIGUSR2, &action, &old))
		return false;
	for (int i = 0; i < ROUNDS; i++)
		pthread_kill(pthread_self(), SIGUSR2);
	return handled == ROUNDS && !sigaction(SIGUSR2, &old, NULL) && !sigaltstack(&none, NULL);
}

static void *short_main(void *arg)
{
	char *block = malloc(1000);

	memset(block, 2, 1000);
	free(block);
	return malloc(10);
}

static bool run_threads(const char *argument)
{
	for (int i = 0; i < 20; i++) {
		pthread_t thread[10];
		void *block;

		for (int k = 0; k < 10; k++) {
			if (pthread_create(&thread[k], NULL, short_main, NULL))
				return false;
		}
		for (int k = 0; k < 10; k++) {
			pthread_join(thread[k], &block);
			free(block);
		}
	}
	return true;
}

/* ---- what a daemon does */

/* All that it does not use itself. */
static bool run_close(const char *argument)
{
	for (int fd = 3; fd < 1024; fd++) {
		if (fd >= WITNESS_FDS || !witness.fd_open[fd])
			close(fd);
	}
	return true;
}

static bool run_setuid(const char *argument)
{
	/* For the calling thread alone: the C library's own would interrupt all of them. */
	bool good = !syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return good;
}

/* By the C library: each thread gets a signal for it, which interrupts its call. */
static bool run_setuids(const char *argument)
{
	bool good;

	witness.eintr_allowed = true;
	good = !setresuid(NOBODY, NOBODY, NOBODY);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return good;
}

static bool run_undumpable(const char *argument)
{
	return !prctl(PR_SET_DUMPABLE, 0);
}

static bool run_chroot(const char *argument)
{
	return !chroot(argument) && !chdir("/");
}

/* Closes whatever it may have inherited; a daemon does it once. */
static void close_unknown(void)
{
	for (int fd = 3; fd < WITNESS_FDS; fd++) {
		if (!witness.fd_open[fd])
			close(fd);
	}
	close_range(WITNESS_FDS, ~0u, 0);
}

/* Sockets like ours, at numbers that were ours: nobody else may close or read them. */
static void use_descriptors(void)
{
	struct stat before[2], after[2];
	char byte = 0;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) ||
	    send(pair[0], "x", 1, 0) != 1 || send(pair[1], "y", 1, 0) != 1 ||
	    fstat(pair[0], &before[0]) || fstat(pair[1], &before[1]))
		witness_violate("sockets cannot be used");
	usleep(300);
	for (int i = 0; i < 2; i++) {
		if (fstat(pair[i], &after[i]) || before[i].st_ino != after[i].st_ino)
			witness_violate("a descriptor was closed");
		else if (recv(pair[i], &byte, 1, MSG_DONTWAIT) != 1 || byte != (i ? 'x' : 'y'))
			witness_violate("a message was lost");
		close(pair[i]);
	}
}

static pthread_t closer;
static bool closer_ends;

/* It would be stuck if the loader's lock were left behind. */
static void *closer_main(void *arg)
{
	unsigned int round = 0;

	while (!__atomic_load_n(&closer_ends, __ATOMIC_RELAXED)) {
		void *library = round++ % 32 ? NULL : dlopen("libm.so.6", RTLD_NOW);

		if (library)
			dlclose(library);
		close_unknown();
		use_descriptors();
	}
	return NULL;
}

static bool run_closing(const char *argument)
{
	witness.fds_change = true;
	closer_ends = false;
	return !pthread_create(&closer, NULL, closer_main, NULL);
}

static bool run_closed(const char *argument)
{
	__atomic_store_n(&closer_ends, true, __ATOMIC_RELAXED);
	pthread_join(closer, NULL);
	witness.fds_change = false;
	return true;
}

/* The parent is gone when this returns in the child. */
static void fork_and_leave(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		target_fail("fork");
	if (pid > 0)
		_exit(0);
	while (getppid() == parent)
		usleep(1000);
}

static bool connect_as_input(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	return fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
	       dup2(fd, STDIN_FILENO) == STDIN_FILENO && dup2(fd, STDOUT_FILENO) == STDOUT_FILENO &&
	       !close(fd);
}

static bool run_daemonise(const char *path)
{
	witness_end();
	fork_and_leave();
	setsid();
	fork_and_leave();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (chdir("/") || close_range(0, ~0u, 0) || open("/dev/null", O_RDWR) != STDIN_FILENO ||
	    dup(STDIN_FILENO) != STDOUT_FILENO || dup(STDIN_FILENO) != STDERR_FILENO ||
	    !connect_as_input(path))
		_exit(1);
	witness_start();
	return true;
}

static bool run_exec(const char *argument)
{
	execl("/proc/self/exe", "changer", NULL);
	return false;
}

static const struct {
	const char *name;
	bool (*run)(const char *argument);
} commands[] = {
	{"local", run_local},	  {"deepbind", run_deepbind},
	{"space", run_space},	  {"nss", run_nss},
	{"iconv", run_iconv},	  {"fork", run_fork},
	{"vfork", run_vfork},	  {"spawn", run_spawn},
	{"popen", run_popen},	  {"system", run_system},
	{"fibers", run_fibers},	  {"altstack", run_altstack},
	{"threads", run_threads}, {"close", run_close},
	{"setuid", run_setuid},	  {"chroot", run_chroot},
	{"exec", run_exec},	  {"daemonise", run_daemonise},
	{"closing", run_closing}, {"closed", run_closed},
	{"setuids", run_setuids}, {"undumpable", run_undumpable},
};

static const char *answer(char *line)
{
	char *argument = strchr(line, ' ');

	if (argument)
		*argument++ = '\0';
	if (!strcmp(line, "keep")) {
		keep_blocks(atoi(argument));
		return "kept";
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (!strcmp(line, commands[i].name))
			return commands[i].run(argument) ? "ok" : "it went wrong";
	}
	return witness_check();
}

int main(void)
{
	char line[256];

	target_begin();
	witness_start();
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		const char *text = answer(line);

		target_say("%s", text ? text : "ok");
	}
	witness_end();
	target_say("ended");
	return 0;
}
