/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * System calls in which a thread may be borrowed: they block in the kernel or
 * do plain I/O, and the C library makes them in wrappers that hold no lock of
 * its own.
 *
 * Not here, on purpose: what the allocator calls (brk, mmap, munmap, mremap,
 * madvise, mprotect), what starts or ends threads and processes (clone, fork,
 * execve, exit), and what changes signal handling (rt_sigaction,
 * rt_sigprocmask: made inside of abort, fork, pthread_create).
 */
#ifndef INJECTOR_ARCH_X86_64_SYSCALLS_H
#define INJECTOR_ARCH_X86_64_SYSCALLS_H

#include <stdint.h>
#include <sys/syscall.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static const int16_t safe_syscalls[] = {
	/* waiting for events */
	SYS_epoll_wait,
	SYS_epoll_pwait,
	SYS_epoll_pwait2,
	SYS_poll,
	SYS_ppoll,
	SYS_select,
	SYS_pselect6,
	SYS_pause,
	SYS_nanosleep,
	SYS_clock_nanosleep,
	SYS_futex,
	SYS_futex_waitv,
	SYS_rt_sigsuspend,
	SYS_rt_sigtimedwait,
	SYS_wait4,
	SYS_waitid,
	SYS_sched_yield,
	SYS_io_getevents,
	SYS_io_pgetevents,
	SYS_io_uring_enter,
	SYS_semop,
	SYS_semtimedop,
	SYS_msgrcv,
	SYS_msgsnd,
	SYS_mq_timedreceive,
	SYS_mq_timedsend,
	/* files and sockets */
	SYS_read,
	SYS_pread64,
	SYS_readv,
	SYS_preadv,
	SYS_preadv2,
	SYS_write,
	SYS_pwrite64,
	SYS_writev,
	SYS_pwritev,
	SYS_pwritev2,
	SYS_sendfile,
	SYS_splice,
	SYS_tee,
	SYS_copy_file_range,
	SYS_fsync,
	SYS_fdatasync,
	SYS_sync_file_range,
	SYS_flock,
	SYS_fcntl,
	SYS_ioctl,
	SYS_open,
	SYS_openat,
	SYS_close,
	SYS_lseek,
	SYS_stat,
	SYS_fstat,
	SYS_lstat,
	SYS_newfstatat,
	SYS_statx,
	SYS_ftruncate,
	SYS_fallocate,
	SYS_unlink,
	SYS_unlinkat,
	SYS_rename,
	SYS_accept,
	SYS_accept4,
	SYS_connect,
	SYS_recvfrom,
	SYS_recvmsg,
	SYS_recvmmsg,
	SYS_sendto,
	SYS_sendmsg,
	SYS_sendmmsg,
	SYS_shutdown,
	SYS_socket,
	SYS_setsockopt,
	SYS_getsockopt,
	SYS_epoll_ctl,
	SYS_restart_syscall,
};

#endif
