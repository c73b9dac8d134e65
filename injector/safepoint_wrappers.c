// SPDX-License-Identifier: GPL-3.0-or-later
/* Which functions of libc a thread may be borrowed in. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "injector/safepoint.h"

struct name {
	const char *name;
	bool waits;
};

/*
 * Thin wrappers of system calls, without the leading underscores of their
 * aliases; sorted. Those that `wait` can only sleep until an event comes; an
 * allocator does not call them with its own locks held, as it may call read,
 * nanosleep (spin locks) or pthread_mutex_lock.
 */
static const struct name names[] = {
	{"accept", true},
	{"accept4", true},
	{"clock_nanosleep", false},
	{"close", false},
	{"cnd_timedwait", true},
	{"cnd_wait", true},
	{"connect", true},
	{"copy_file_range", false},
	{"epoll_ctl", false},
	{"epoll_pwait", true},
	{"epoll_pwait2", true},
	{"epoll_wait", true},
	{"fallocate", false},
	{"fallocate64", false},
	{"fcntl", false},
	{"fcntl64", false},
	{"fdatasync", false},
	{"flock", false},
	{"fstat", false},
	{"fstat64", false},
	{"fstatat", false},
	{"fstatat64", false},
	{"fsync", false},
	{"ftruncate", false},
	{"ftruncate64", false},
	{"getsockopt", false},
	{"ioctl", false},
	{"lseek", false},
	{"lseek64", false},
	{"lstat", false},
	{"lstat64", false},
	{"mq_receive", true},
	{"mq_send", true},
	{"mq_timedreceive", true},
	{"mq_timedsend", true},
	{"msgrcv", true},
	{"msgsnd", true},
	{"mtx_lock", false},
	{"mtx_timedlock", false},
	{"nanosleep", false},
	{"open", false},
	{"open64", false},
	{"open64_2", false},
	{"open_2", false},
	{"openat", false},
	{"openat64", false},
	{"openat64_2", false},
	{"openat_2", false},
	{"pause", true},
	{"poll", true},
	{"poll_chk", true},
	{"ppoll", true},
	{"ppoll_chk", true},
	{"pread", false},
	{"pread64", false},
	{"pread64_chk", false},
	{"pread_chk", false},
	{"preadv", false},
	{"preadv2", false},
	{"preadv64", false},
	{"preadv64v2", false},
	{"pselect", true},
	{"pthread_barrier_wait", true},
	{"pthread_clockjoin_np", true},
	{"pthread_cond_clockwait", true},
	{"pthread_cond_timedwait", true},
	{"pthread_cond_wait", true},
	{"pthread_join", true},
	{"pthread_mutex_clocklock", false},
	{"pthread_mutex_lock", false},
	{"pthread_mutex_timedlock", false},
	{"pthread_rwlock_clockrdlock", false},
	{"pthread_rwlock_clockwrlock", false},
	{"pthread_rwlock_rdlock", false},
	{"pthread_rwlock_timedrdlock", false},
	{"pthread_rwlock_timedwrlock", false},
	{"pthread_rwlock_wrlock", false},
	{"pthread_timedjoin_np", true},
	{"pthread_yield", false},
	{"pwrite", false},
	{"pwrite64", false},
	{"pwritev", false},
	{"pwritev2", false},
	{"pwritev64", false},
	{"pwritev64v2", false},
	{"read", false},
	{"read_chk", false},
	{"readv", false},
	{"recv", true},
	{"recv_chk", true},
	{"recvfrom", true},
	{"recvfrom_chk", true},
	{"recvmmsg", true},
	{"recvmsg", true},
	{"rename", false},
	{"sched_yield", false},
	{"select", true},
	{"sem_clockwait", true},
	{"sem_timedwait", true},
	{"sem_wait", true},
	{"semop", true},
	{"semtimedop", true},
	{"send", false},
	{"sendfile", false},
	{"sendfile64", false},
	{"sendmmsg", false},
	{"sendmsg", false},
	{"sendto", false},
	{"setsockopt", false},
	{"shutdown", false},
	{"sigpause", true},
	{"sigsuspend", true},
	{"sigtimedwait", true},
	{"sigwait", true},
	{"sigwaitinfo", true},
	{"sleep", false},
	{"socket", false},
	{"splice", false},
	{"stat", false},
	{"stat64", false},
	{"statx", false},
	{"sync_file_range", false},
	{"syscall", false},
	{"tee", false},
	{"thrd_join", true},
	{"thrd_sleep", false},
	{"thrd_yield", false},
	{"unlink", false},
	{"unlinkat", false},
	{"usleep", false},
	{"wait", true},
	{"wait3", true},
	{"wait4", true},
	{"waitid", true},
	{"waitpid", true},
	{"write", false},
	{"writev", false},
};

static int name_compare(const void *key, const void *element)
{
	return strcmp(key, ((const struct name *)element)->name);
}

static const struct name *name_find(const char *name)
{
	while (*name == '_')
		name++;
	return bsearch(name, names, sizeof(names) / sizeof(names[0]), sizeof(names[0]),
		       name_compare);
}

static int wrapper_compare(const void *left, const void *right)
{
	const struct safepoint_wrapper *a = left, *b = right;

	if (a->low != b->low)
		return a->low < b->low ? -1 : 1;
	return strcmp(a->name, b->name);
}

/* Aliases (read, __read) share their code: keep one of each. */
static void sort_wrappers(struct safepoint_context *context)
{
	struct safepoint_wrapper *wrappers = context->wrappers;
	size_t kept = 0;

	qsort(wrappers, context->wrapper_count, sizeof(*wrappers), wrapper_compare);
	for (size_t i = 0; i < context->wrapper_count; i++) {
		if (kept && wrappers[kept - 1].low == wrappers[i].low)
			continue;
		wrappers[kept++] = wrappers[i];
	}
	context->wrapper_count = kept;
}

static void add_symbol(struct safepoint_context *context, uint64_t bias, const Elf64_Sym *symbol,
		       const char *strings, size_t strings_size)
{
	const struct name *name;

	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF ||
	    symbol->st_size == 0 || symbol->st_name >= strings_size ||
	    !memchr(strings + symbol->st_name, '\0', strings_size - symbol->st_name))
		return;
	name = name_find(strings + symbol->st_name);
	if (!name)
		return;
	context->wrappers[context->wrapper_count++] = (struct safepoint_wrapper){
		.low = bias + symbol->st_value,
		.high = bias + symbol->st_value + symbol->st_size,
		.name = name->name,
		.waits = name->waits,
	};
}

struct error *safepoint_add_dynsym(struct safepoint_context *context, uint64_t bias,
				   const void *symbols, size_t count, const char *strings,
				   size_t strings_size)
{
	struct safepoint_wrapper *grown =
		reallocarray(context->wrappers, context->wrapper_count + count + 1, sizeof(*grown));

	if (!grown)
		return error_memory();
	context->wrappers = grown;
	for (size_t i = 0; i < count; i++) {
		Elf64_Sym symbol;

		memcpy(&symbol, (const char *)symbols + i * sizeof(symbol), sizeof(symbol));
		add_symbol(context, bias, &symbol, strings, strings_size);
	}
	sort_wrappers(context);
	return NULL;
}

void safepoint_context_deinit(struct safepoint_context *context)
{
	free(context->wrappers);
	context->wrappers = NULL;
	context->wrapper_count = 0;
}

bool safepoint_is_internal(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *file = slash ? slash + 1 : path;

	return strncmp(file, "libgcc_s.so", strlen("libgcc_s.so")) == 0 ||
	       strncmp(file, "libnss_", strlen("libnss_")) == 0 || strstr(path, "/gconv/") != NULL;
}
