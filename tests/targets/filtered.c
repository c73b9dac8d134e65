/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * filtered [thread]: allows itself the few system calls that it needs, by a
 * seccomp filter that kills it for any other one. It allocates at each command.
 * With an argument only one of its threads does that, the one that has run most
 * and has no children.
 */
#include "tests/targets/target.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>

#define ALLOW(call)                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter_install(void)
{
	static struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(read),
		ALLOW(write),
		ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		target_fail("seccomp");
}

static void *thread_main(void *arg)
{
	int *pipe_fds = arg;
	clock_t end = clock() + CLOCKS_PER_SEC / 10;
	char byte;

	while (clock() < end)
		;
	filter_install();
	write(pipe_fds[1], "f", 1);
	for (;;)
		read(pipe_fds[2], &byte, 1);
	return NULL;
}

static void filter_thread(void)
{
	static int pipe_fds[4];
	pthread_t thread;
	char byte;

	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (pipe(pipe_fds) || pipe(pipe_fds + 2) ||
	    pthread_create(&thread, NULL, thread_main, pipe_fds) ||
	    read(pipe_fds[0], &byte, 1) != 1)
		target_fail("a filtered thread");
}

int main(int argc, char **argv)
{
	static void *kept[64];
	char line[64];
	unsigned int n = 0;

	target_begin();
	/* malloc asks for random bytes once; the heap has room for all that follows. */
	for (n = 0; n < 64; n++) {
		kept[n] = malloc(500);
		KEEP(kept[n]);
	}
	while (n)
		free(kept[--n]);
	memset(kept, 0, sizeof(kept));
	if (argc > 1)
		filter_thread();
	else
		filter_install();
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop")) {
		free(kept[n % 64]);
		kept[n++ % 64] = malloc(500);
		target_say("ok");
	}
	return 0;
}
