/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * witness [-i] [SITUATION [ARGUMENT]]: puts itself into a situation, then
 * watches itself (witness.h). With -i, calls may be interrupted.
 *
 *	user		belongs to another user
 *	undumpable	as after exec of a set-user-ID program
 *	chroot DIR	its root is an empty folder
 *	spaces DIR	in user, mount, PID, network, IPC and UTS namespaces of its
 *			own, as process 1, with an empty root; says "pid PID" first
 *	nofile, nofile=N  all descriptors that it may have, or all but N, are in use
 *	as, as=MIB	has no more, or so many MiB of address space left
 *	fsize		may not write files
 *	nproc		may not have more threads or processes
 *	closed		daemonised, without any descriptor but a socket pair's end
 *
 *	check		"ok", or what was wrong
 *	keep N		allocate N blocks of 100 bytes in keep_blocks() for good: "kept"
 *	rounds		how often blocks were allocated or resized so far
 *	fill		allocate and fill blocks of 64 KiB without end
 *	stop		"ended", with status 0
 */
#include "tests/targets/witness.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534

static void must(bool worked, const char *what)
{
	if (!worked)
		target_fail(what);
}

NOINLINE static void keep_blocks(int count)
{
	for (int i = 0; i < count; i++) {
		void *block = malloc(100);

		KEEP(block);
	}
}

NOINLINE __attribute__((noreturn)) static void fill_memory(void)
{
	for (;;) {
		unsigned char *block = malloc(65536);

		must(block != NULL, "malloc");
		memset(block, 1, 65536);
		KEEP(block);
	}
}

static void limit_set(int which, rlim_t value)
{
	const struct rlimit limit = {value, value};

	must(!setrlimit(which, &limit), "setrlimit");
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), path);
	close(fd);
}

static void become_nobody(void)
{
	must(!syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY) && !setresuid(NOBODY, NOBODY, NOBODY),
	     "setresuid");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void root_change(const char *folder)
{
	must(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount");
	must(!mount("none", folder, "tmpfs", 0, NULL), "mount tmpfs");
	must(!chdir(folder) && !syscall(SYS_pivot_root, ".", ".") && !umount2(".", MNT_DETACH) &&
		     !chdir("/"),
	     "pivot_root");
}

static void enter_spaces(const char *folder)
{
	int status;
	pid_t pid;

	must(!unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
		      CLONE_NEWUTS),
	     "unshare");
	write_file("/proc/self/setgroups", "deny");
	write_file("/proc/self/uid_map", "0 0 1");
	write_file("/proc/self/gid_map", "0 0 1");
	pid = fork();
	must(pid >= 0, "fork");
	if (pid) {
		/* In the namespace that we were started in. */
		target_say("pid %d", pid);
		waitpid(pid, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	root_change(folder);
}

static void use_descriptors(int left)
{
	int fd, last = 0;

	limit_set(RLIMIT_NOFILE, WITNESS_FDS);
	while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		last = fd;
	for (; left > 0; left--)
		close(last--);
}

static uint64_t pages_mapped(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	must(file && fscanf(file, "%lu", &pages) == 1, "statm");
	fclose(file);
	return pages;
}

/* Closes all that it was given, like a daemon; answers through descriptors above those. */
static void close_all(void)
{
	setsid();
	must(!chdir("/"), "chdir");
	umask(0);
	for (int fd = 2; fd < 1024; fd++)
		close(fd);
}

static int number_of(const char *situation)
{
	const char *sign = strchr(situation, '=');

	return sign ? atoi(sign + 1) : 0;
}

/* Before there are threads. */
static void situation_enter(const char *name, const char *argument)
{
	if (!strcmp(name, "user") || !strcmp(name, "nproc"))
		become_nobody();
	else if (!strcmp(name, "undumpable"))
		prctl(PR_SET_DUMPABLE, 0);
	else if (!strcmp(name, "chroot"))
		must(!chroot(argument) && !chdir("/"), "chroot");
	else if (!strcmp(name, "spaces"))
		enter_spaces(argument);
	else if (!strcmp(name, "closed"))
		close_all();
}

/* Limits are reached when everything of ours is there. */
static void limits_enter(const char *name)
{
	if (!strncmp(name, "nofile", 6)) {
		use_descriptors(number_of(name));
	} else if (!strncmp(name, "as", 2)) {
		limit_set(RLIMIT_AS, pages_mapped() * 4096 + (rlim_t)number_of(name) * 1048576);
	} else if (!strcmp(name, "fsize")) {
		limit_set(RLIMIT_FSIZE, 0);
	} else if (!strcmp(name, "nproc")) {
		limit_set(RLIMIT_NPROC, 1);
	}
	witness_remember();
}

int main(int argc, char **argv)
{
	char line[64];
	const char *wrong;

	target_begin();
	if (argc > 1 && !strcmp(argv[1], "-i")) {
		witness.eintr_allowed = true;
		argv++;
		argc--;
	}
	situation_enter(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
	witness_start();
	limits_enter(argc > 1 ? argv[1] : "");
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0) {
		if (!strncmp(line, "keep ", 5)) {
			keep_blocks(atoi(line + 5));
			target_say("kept");
		} else if (!strcmp(line, "rounds")) {
			target_say("%lu", witness_rounds());
		} else if (!strcmp(line, "fill")) {
			fill_memory();
		} else {
			wrong = witness_check();
			target_say("%s", wrong ? wrong : "ok");
		}
	}
	witness_end();
	target_say("ended");
	return 0;
}
