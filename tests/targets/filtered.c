/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * filtered: allows itself the few system calls that it needs, by a seccomp
 * filter that kills it for any other one. It allocates at each command.
 */
#include "tests/targets/target.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
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

int main(void)
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
	filter_install();
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop")) {
		free(kept[n % 64]);
		kept[n++ % 64] = malloc(500);
		target_say("ok");
	}
	return 0;
}
