/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Preloaded into heapattach: its n-th step goes wrong, counted over the program
 * and its workers. A step is a call of one of the functions below, by which all
 * that it does to a target is done; to look again, without waiting, after a look
 * that saw nothing, is none.
 *
 *	HEAPATTACH_FAULT_FILE  shared counter, and what happened: struct fault
 */
#include "tests/targets/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fault *fault;
static enum fault_step in_vain; /* the last step, if it was a look that saw nothing */

__attribute__((constructor)) static void fault_begin(void)
{
	const char *path = getenv("HEAPATTACH_FAULT_FILE");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	fault = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fault == MAP_FAILED)
		fault = NULL;
	close(fd);
}

/* True if this step is to fail; does not return if it is the last. */
static int step(enum fault_step kind)
{
	in_vain = FAULT_NONE;
	if (!fault)
		return 0;
	if (__atomic_add_fetch(&fault->steps, 1, __ATOMIC_RELAXED) != fault->at)
		return 0;
	fault->happened = kind;
	if (fault->how == FAULT_KILL)
		kill(getpid(), SIGKILL);
	errno = EIO;
	return 1;
}

long ptrace(int request, ...)
{
	va_list args;
	long pid, address, data, peeked, result;

	va_start(args, request);
	pid = va_arg(args, long);
	address = va_arg(args, long);
	data = va_arg(args, long);
	va_end(args);
	if (step(FAULT_PTRACE))
		return -1;
	/* PTRACE_PEEKTEXT to PEEKUSER: the kernel stores what glibc returns. */
	if (request >= 1 && request <= 3) {
		result = syscall(SYS_ptrace, (long)request, pid, address, &peeked);
		return result < 0 ? result : peeked;
	}
	return syscall(SYS_ptrace, (long)request, pid, address, data);
}

ssize_t pread(int fd, void *buf, size_t size, off_t offset)
{
	return step(FAULT_PREAD) ? -1 : syscall(SYS_pread64, fd, buf, size, offset);
}

ssize_t pwrite(int fd, const void *buf, size_t size, off_t offset)
{
	return step(FAULT_PWRITE) ? -1 : syscall(SYS_pwrite64, fd, buf, size, offset);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
			 const struct iovec *remote, unsigned long remote_count,
			 unsigned long flags)
{
	if (step(FAULT_READV))
		return -1;
	return syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	pid_t result;

	if (!(in_vain == FAULT_WAIT && options & WNOHANG) && step(FAULT_WAIT))
		return -1;
	result = (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
	in_vain = result ? FAULT_NONE : FAULT_WAIT;
	return result;
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	return step(FAULT_POLL) ? -1 : (int)syscall(SYS_poll, fds, count, timeout);
}

ssize_t recv(int fd, void *buf, size_t size, int flags)
{
	ssize_t result;

	if (!(in_vain == FAULT_RECV && flags & MSG_DONTWAIT) && step(FAULT_RECV))
		return -1;
	result = syscall(SYS_recvfrom, fd, buf, size, flags, NULL, NULL);
	in_vain = result < 0 && errno == EAGAIN ? FAULT_RECV : FAULT_NONE;
	return result;
}

ssize_t send(int fd, const void *buf, size_t size, int flags)
{
	return step(FAULT_SEND) ? -1 : syscall(SYS_sendto, fd, buf, size, flags, NULL, 0);
}
