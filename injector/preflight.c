// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/preflight.h"

#include "injector/arch.h"
#include "injector/clock.h"
#include "injector/procfacts.h"
#include "resolver/cleanup.h"
#include "resolver/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MAPS_NEEDED	    128u /* that an attach adds: its own, and for a moment parts of others */
#define FDS_NEEDED	    5u	 /* socket, core, shm, entry, and dlopen's own of entry */
#define SECCOMP_STRICT	    1u
#define OTHER_LIMIT_MS	    20000 /* an attach or an end of another heapattach takes less */
#define OTHER_WAIT_MS	    5
#define CAP_SYS_PTRACE_MASK (1u << CAP_SYS_PTRACE)

/* One run of the checks. */
struct check {
	const char *proc;
	const struct preflight_options *options;
	struct procfacts facts;
	pid_t tid; /* through which files are read: another thread's if the main one has ended */
	struct preflight *result;
	const char *comm; /* printable */
};

/* ---- exists, and is a process */

static struct error *check_exists(struct check *check, pid_t pid)
{
	struct error *err = procfacts_read(check->proc, pid, &check->facts);

	if (!error_is(err, ERROR_NOT_FOUND))
		return err;
	/* With /proc mounted hidepid= it exists all the same. */
	if (!check->options->proc && (kill(pid, 0) == 0 || errno == EPERM)) {
		error_free(err);
		return error_hint(
			error_create(ERROR_DENIED, "process %d is hidden from you in /proc", pid),
			"run: sudo heapattach -p %d", pid);
	}
	return error_hint(err, "find the number of a running process with: pgrep -a NAME");
}

static char *read_comm(const struct check *check, pid_t pid)
{
	char *comm = NULL;

	error_free(procfacts_file(&comm, NULL, "%s/%d/comm", check->proc, pid));
	if (comm)
		comm[strcspn(comm, "\n")] = '\0';
	return comm;
}

/*
 * Another heapattach lets go soon, and what it leaves says more than that it
 * was there: it records, or has ended.
 */
static struct error *wait_for_heapattach(struct check *check)
{
	const struct timespec wait = {.tv_nsec = OTHER_WAIT_MS * 1000000l};
	uint64_t deadline_ns = clock_now_ns() + OTHER_LIMIT_MS * 1000000ull;
	struct error *err = NULL;

	while (!err && check->facts.tracer && clock_now_ns() < deadline_ns) {
		CLEANUP(freep) char *comm = read_comm(check, check->facts.tracer);

		if (!comm || strcmp(comm, "heapattach") != 0)
			break;
		nanosleep(&wait, NULL);
		err = procfacts_read(check->proc, check->result->pid, &check->facts);
	}
	return err;
}

static struct error *check_kind(const struct check *check)
{
	pid_t pid = check->result->pid;
	const struct procfacts *facts = &check->facts;

	if (facts->tgid != pid)
		return error_hint(error_create(ERROR_UNSUPPORTED,
					       "%d is a thread of process %d (%s)", pid,
					       facts->tgid, check->comm),
				  "run: heapattach -p %d", facts->tgid);
	if (facts->kernel_thread)
		return error_hint(error_create(ERROR_UNSUPPORTED, "%d (%s) is a kernel thread", pid,
					       check->comm),
				  "choose a program's process: a kernel thread has no heap");
	if ((facts->state == 'Z' && facts->threads <= 1) || facts->state == 'X')
		return error_hint(error_create(ERROR_GONE,
					       "process %d (%s) has ended, only its parent "
					       "has not noticed",
					       pid, check->comm),
				  "its parent is process %d", facts->parent);
	return NULL;
}

/* /proc of another namespace would have us attach to somebody else. */
static struct error *check_namespace(const struct check *check)
{
	CLEANUP(freep) char *path = NULL;
	char self[32] = "";

	if (asprintf(&path, "%s/self", check->proc) < 0) {
		path = NULL;
		return error_memory();
	}
	if (readlink(path, self, sizeof(self) - 1) > 0 && atoi(self) == getpid())
		return NULL;
	return error_hint(error_create(ERROR_UNSUPPORTED,
				       "%s shows another PID namespace than the one we run in",
				       check->proc),
			  "mount it anew: mount -t proc proc /proc");
}

/* ---- permissions */

static bool have_cap_sys_ptrace(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};

	return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & CAP_SYS_PTRACE_MASK);
}

#define USER_NAME 64

static const char *user_name(uid_t uid, char buf[USER_NAME])
{
	const struct passwd *entry = getpwuid(uid); /* static: the next call overwrites it */

	if (entry)
		snprintf(buf, USER_NAME, "%s", entry->pw_name);
	else
		snprintf(buf, USER_NAME, "%u", uid);
	return buf;
}

static bool is_our_user(const struct procfacts *facts)
{
	for (int i = 0; i < 3; i++) {
		if (facts->uid[i] != geteuid() || facts->gid[i] != getegid())
			return false;
	}
	return true;
}

/* Root without the capability is root of a container. */
static struct error *hint_privilege(struct error *err, pid_t pid)
{
	if (geteuid() == 0)
		return error_hint(err, "give the container the capability: docker run --cap-add "
				       "SYS_PTRACE, or securityContext.capabilities.add "
				       "[SYS_PTRACE]");
	return error_hint(err, "run: sudo heapattach -p %d", pid);
}

static bool is_descendant(const struct check *check)
{
	struct procfacts facts = check->facts;

	for (int i = 0; i < 64 && facts.parent > 1; i++) {
		struct error *err;

		if (facts.parent == getpid())
			return true;
		err = procfacts_read(check->proc, facts.parent, &facts);
		if (err) {
			error_free(err);
			return false;
		}
	}
	return false;
}

/* procfs gives the files of a process that may not be dumped to root. */
static bool is_undumpable(const struct check *check)
{
	CLEANUP(freep) char *path = NULL;
	struct stat st;

	if (asprintf(&path, "%s/%d/status", check->proc, check->tid) < 0) {
		path = NULL;
		return false;
	}
	return stat(path, &st) == 0 && st.st_uid != check->facts.uid[1];
}

static struct error *explain_denied(const struct check *check)
{
	pid_t pid = check->result->pid;
	int yama = check->result->yama;
	char owner[USER_NAME], self[USER_NAME];

	if (!is_our_user(&check->facts))
		return hint_privilege(error_create(ERROR_DENIED,
						   "process %d (%s) belongs to user '%s', you are "
						   "'%s'",
						   pid, check->comm,
						   user_name(check->facts.uid[0], owner),
						   user_name(geteuid(), self)),
				      pid);
	if (is_undumpable(check))
		return hint_privilege(error_create(ERROR_DENIED,
						   "process %d (%s) has gained privileges or made "
						   "itself undumpable",
						   pid, check->comm),
				      pid);
	if (yama == 1 && !is_descendant(check))
		return error_hint(error_create(ERROR_DENIED,
					       "kernel.yama.ptrace_scope is 1: only a parent may "
					       "attach to process %d (%s)",
					       pid, check->comm),
				  "run: sudo heapattach -p %d", pid);
	if (yama == 2)
		return hint_privilege(error_create(ERROR_DENIED,
						   "kernel.yama.ptrace_scope is 2: attaching needs "
						   "CAP_SYS_PTRACE"),
				      pid);
	return error_hint(
		error_create(ERROR_DENIED,
			     "the kernel does not let us read the memory of process %d (%s)", pid,
			     check->comm),
		"a security module (SELinux, AppArmor) or a user namespace denies it; see "
		"the kernel log: dmesg");
}

/* Opening the memory asks the kernel just what attaching asks: user, Yama, security modules. */
static struct error *check_permission(const struct check *check)
{
	CLEANUP(freep) char *path = NULL;
	CLEANUP(closep) int fd = -1;

	if (check->result->yama == 3)
		return error_hint(
			error_create(ERROR_DENIED, "kernel.yama.ptrace_scope is 3: nobody "
						   "may attach to any process"),
			"set it to 1 in /etc/sysctl.d and reboot: it cannot be lowered at "
			"run time");
	if (!is_our_user(&check->facts) && !have_cap_sys_ptrace())
		return explain_denied(check);
	if (asprintf(&path, "%s/%d/mem", check->proc, check->tid) < 0) {
		path = NULL;
		return error_memory();
	}
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		return NULL;
	if (errno == EACCES || errno == EPERM)
		return explain_denied(check);
	return error_os(errno, "cannot open %s", path);
}

static struct error *check_tracer(const struct check *check)
{
	CLEANUP(freep) char *comm = NULL, *shown = NULL;
	pid_t tracer = check->facts.tracer;

	if (!tracer)
		return NULL;
	comm = read_comm(check, tracer);
	shown = text_printable(comm ? comm : "?");
	return error_hint(
		error_create(ERROR_BUSY, "process %d (%s) is being traced by process %d (%s)",
			     check->result->pid, check->comm, tracer, shown ? shown : "?"),
		"end or detach process %d first: a process can have one tracer", tracer);
}

/* ---- what it is */

static struct error *check_machine(const struct check *check)
{
	CLEANUP(freep) char *path = NULL;
	CLEANUP(closep) int fd = -1, self = -1;
	Elf64_Ehdr ehdr, ours;

	if (asprintf(&path, "%s/%d/exe", check->proc, check->tid) < 0) {
		path = NULL;
		return error_memory();
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_os(errno, "cannot open %s", path);
	if (pread(fd, &ehdr, sizeof(ehdr), 0) != (ssize_t)sizeof(ehdr) ||
	    memcmp(ehdr.e_ident, ELFMAG, SELFMAG) != 0)
		return error_create(ERROR_FORMAT, "%s is no ELF file", path);
	if (ehdr.e_ident[EI_CLASS] != ELFCLASS64)
		return error_hint(error_create(ERROR_UNSUPPORTED,
					       "process %d (%s) is a 32-bit program",
					       check->result->pid, check->comm),
				  "only 64-bit programs can be profiled");
	if (self >= 0 && pread(self, &ours, sizeof(ours), 0) == (ssize_t)sizeof(ours) &&
	    ours.e_machine != ehdr.e_machine)
		return error_hint(
			error_create(ERROR_UNSUPPORTED,
				     "process %d (%s) is a program for another machine (ELF "
				     "machine %u)",
				     check->result->pid, check->comm, ehdr.e_machine),
			"use a heapattach that was built for that machine");
	return NULL;
}

static struct error *check_sandbox(const struct check *check)
{
	if (check->facts.seccomp != SECCOMP_STRICT)
		return NULL;
	return error_hint(
		error_create(ERROR_UNSUPPORTED,
			     "process %d (%s) runs under strict seccomp: it may not map memory",
			     check->result->pid, check->comm),
		"run it without PR_SET_SECCOMP's strict mode");
}

static struct error *check_frozen(const struct check *check)
{
	if (!procfacts_is_frozen(check->proc, check->tid))
		return NULL;
	return error_hint(error_create(ERROR_BUSY, "process %d (%s) is frozen by its cgroup",
				       check->result->pid, check->comm),
			  "let it run first: docker unpause, or echo 0 into its cgroup.freeze");
}

/* ---- room */

/* Soft limit @name in /proc/PID/limits; UINT64_MAX = unlimited. */
static struct error *read_limit(const struct check *check, const char *name, uint64_t *ret)
{
	CLEANUP(freep) char *limits = NULL;
	struct error *err;
	const char *line;
	char *end;

	err = procfacts_file(&limits, NULL, "%s/%d/limits", check->proc, check->tid);
	if (err)
		return err;
	*ret = UINT64_MAX;
	line = strstr(limits, name);
	if (!line)
		return NULL;
	line += strlen(name);
	*ret = strtoull(line, &end, 10);
	if (end == line)
		*ret = UINT64_MAX;
	return NULL;
}

static uint64_t count_lines(const char *text)
{
	uint64_t lines = 0;

	for (; (text = strchr(text, '\n')); text++)
		lines++;
	return lines;
}

/* What we map, its own mmap() cannot have: half of what is left stays with the program. */
static struct error *check_address_space(const struct check *check)
{
	const struct preflight *result = check->result;
	uint64_t limit, left, needed = check->options->virtual_size;
	struct error *err;

	err = read_limit(check, "Max address space", &limit);
	if (err)
		return err;
	left = limit > result->virtual_bytes ? limit - result->virtual_bytes : 0;
	if (left / 2 >= needed)
		return NULL;
	return error_hint(
		error_create(ERROR_UNSUPPORTED,
			     "process %d (%s) may map %llu MiB in all (RLIMIT_AS) and maps "
			     "%llu already; heapattach needs %llu, and leaves as many to it",
			     result->pid, check->comm, (unsigned long long)(limit >> 20),
			     (unsigned long long)(result->virtual_bytes >> 20),
			     (unsigned long long)(needed >> 20)),
		"raise it: prlimit --pid %d --as=unlimited", result->pid);
}

/* Descriptors below @limit that are in use: a new one must be below it. */
static struct error *count_fds(const struct check *check, uint64_t limit, uint64_t *ret)
{
	CLEANUP(freep) char *path = NULL;
	const struct dirent *entry;
	DIR *dir;

	if (asprintf(&path, "%s/%d/fd", check->proc, check->tid) < 0) {
		path = NULL;
		return error_memory();
	}
	dir = opendir(path);
	if (!dir)
		return error_os(errno, "cannot list %s", path);
	*ret = 0;
	while ((entry = readdir(dir)))
		*ret += entry->d_name[0] != '.' && strtoull(entry->d_name, NULL, 10) < limit;
	closedir(dir);
	return NULL;
}

static struct error *check_descriptors(const struct check *check)
{
	const struct preflight *result = check->result;
	uint64_t limit, used = 0;
	struct error *err;

	err = read_limit(check, "Max open files", &limit);
	if (!err)
		err = count_fds(check, limit, &used);
	if (err || limit - used >= FDS_NEEDED)
		return err;
	return error_hint(error_create(ERROR_UNSUPPORTED,
				       "process %d (%s) has %llu of at most %llu files open "
				       "(RLIMIT_NOFILE); %u more are needed for a moment",
				       result->pid, check->comm, (unsigned long long)used,
				       (unsigned long long)limit, FDS_NEEDED),
			  "raise it: prlimit --pid %d --nofile=%llu", result->pid,
			  (unsigned long long)limit + FDS_NEEDED);
}

static struct error *check_map_count(const struct check *check)
{
	CLEANUP(freep) char *maps = NULL, *max = NULL;
	struct preflight *result = check->result;
	struct error *err;

	err = procfacts_file(&maps, NULL, "%s/%d/maps", check->proc, check->tid);
	if (err)
		return err;
	result->map_count = count_lines(maps);
	err = procfacts_file(&max, NULL, "%s/sys/vm/max_map_count", check->proc);
	if (err) { /* not in every container: then nothing is known */
		error_free(err);
		return NULL;
	}
	result->map_count_max = strtoull(max, NULL, 10);
	if (result->map_count + MAPS_NEEDED <= result->map_count_max)
		return NULL;
	return error_hint(error_create(ERROR_UNSUPPORTED,
				       "process %d (%s) has %llu of at most %llu mappings "
				       "(vm.max_map_count)",
				       result->pid, check->comm,
				       (unsigned long long)result->map_count,
				       (unsigned long long)result->map_count_max),
			  "raise it: sudo sysctl vm.max_map_count=%llu",
			  (unsigned long long)result->map_count_max * 2);
}

static struct error *check_memory(const struct check *check)
{
	static const char name[] = "MemAvailable:";
	CLEANUP(freep) char *meminfo = NULL;
	uint64_t free_bytes, needed = check->options->resident_size;
	const char *line;
	struct error *err;

	err = procfacts_file(&meminfo, NULL, "%s/meminfo", check->proc);
	if (err) {
		error_free(err);
		return NULL;
	}
	line = strstr(meminfo, name);
	if (!line)
		return NULL;
	free_bytes = strtoull(line + sizeof(name) - 1, NULL, 10) * 1024;
	if (free_bytes >= needed)
		return NULL;
	return error_hint(
		error_create(ERROR_MEMORY,
			     "%llu MiB of memory are free on this machine, %llu MiB are needed",
			     (unsigned long long)(free_bytes >> 20),
			     (unsigned long long)(needed >> 20)),
		"free some memory first: profiling must not drive the machine out of it");
}

/* ---- facts */

static bool same_namespace(const struct check *check, const char *name)
{
	CLEANUP(freep) char *path = NULL;
	char theirs[64] = "", ours[64] = "", self[32];

	snprintf(self, sizeof(self), "/proc/self/ns/%s", name);
	if (asprintf(&path, "%s/%d/ns/%s", check->proc, check->tid, name) < 0) {
		path = NULL;
		return true;
	}
	if (readlink(path, theirs, sizeof(theirs) - 1) <= 0 ||
	    readlink(self, ours, sizeof(ours) - 1) <= 0)
		return true;
	return strcmp(theirs, ours) == 0;
}

static char *read_text(const struct check *check, pid_t pid, const char *name, size_t *size)
{
	char *text = NULL;
	struct error *err = procfacts_file(&text, size, "%s/%d/%s", check->proc, pid, name);

	if (!err)
		return text;
	error_free(err);
	*size = 0;
	return strdup("");
}

static char *read_exe(const struct check *check)
{
	static const char deleted[] = " (deleted)";
	CLEANUP(freep) char *path = NULL;
	char target[4096];
	ssize_t length = -1;

	if (asprintf(&path, "%s/%d/exe", check->proc, check->tid) < 0)
		path = NULL;
	else
		length = readlink(path, target, sizeof(target) - 1);
	target[length < 0 ? 0 : length] = '\0';
	if (length >= (ssize_t)sizeof(deleted) &&
	    strcmp(target + length - (sizeof(deleted) - 1), deleted) == 0) {
		check->result->deleted = true;
		target[length - (ssize_t)(sizeof(deleted) - 1)] = '\0';
	}
	return strdup(target);
}

/* Some thread that still has files under /proc when the main one has ended. */
static pid_t living_thread(const struct check *check)
{
	CLEANUP(freep) char *path = NULL;
	const struct dirent *entry;
	pid_t pid = check->result->pid, found = pid;
	DIR *dir;

	if (check->facts.state != 'Z' || asprintf(&path, "%s/%d/task", check->proc, pid) < 0) {
		path = NULL;
		return pid;
	}
	dir = opendir(path);
	while (dir && (entry = readdir(dir)) && found == pid) {
		if (atoi(entry->d_name) > 0)
			found = atoi(entry->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

static struct error *collect_facts(struct check *check)
{
	struct preflight *result = check->result;
	const struct procfacts *facts = &check->facts;
	size_t size;

	check->tid = living_thread(check);
	result->uid = facts->uid[0];
	result->gid = facts->gid[0];
	result->ns_pid = facts->ns_pid;
	result->threads = facts->threads;
	result->state = facts->state;
	result->seccomp = facts->seccomp;
	result->no_new_privs = facts->no_new_privs;
	result->start_time = facts->start_time;
	result->rss_bytes = facts->rss_bytes;
	result->virtual_bytes = facts->virtual_bytes;
	result->other_pid_ns = !same_namespace(check, "pid");
	result->other_mnt_ns = !same_namespace(check, "mnt");
	result->other_user_ns = !same_namespace(check, "user");
	result->comm = read_text(check, facts->tgid, "comm", &size);
	result->cmdline = read_text(check, check->tid, "cmdline", &size);
	result->exe = read_exe(check);
	if (!result->comm || !result->cmdline || !result->exe)
		return error_memory();
	result->comm[strcspn(result->comm, "\n")] = '\0';
	for (size_t i = 0; i + 1 < size; i++) {
		if (!result->cmdline[i])
			result->cmdline[i] = ' ';
	}
	/* Programs that write their title there leave blanks behind it. */
	while (size && (!result->cmdline[size - 1] || result->cmdline[size - 1] == ' '))
		result->cmdline[--size] = '\0';
	return NULL;
}

static int read_yama(const char *proc)
{
	CLEANUP(freep) char *text = NULL;
	struct error *err = procfacts_file(&text, NULL, "%s/sys/kernel/yama/ptrace_scope", proc);

	if (!err)
		return atoi(text);
	error_free(err);
	return -1;
}

/* What a process lacks that ends while we look is not what it is refused for. */
static struct error *ended_or(const struct check *check, struct error *err)
{
	struct procfacts now;
	struct error *gone;

	/* ESRCH is ERROR_GONE, too, but in the words of a call. */
	if (!err || (error_is(err, ERROR_GONE) && !error_errno(err)))
		return err;
	gone = procfacts_read(check->proc, check->result->pid, &now);
	if (!gone && (now.virtual_bytes || now.kernel_thread))
		return err;
	error_free(gone);
	error_free(err);
	return error_create(ERROR_GONE, "process %d (%s) has ended", check->result->pid,
			    check->comm);
}

struct error *preflight_process(pid_t pid, const struct preflight_options *options,
				struct preflight *ret)
{
	/* In this order: the first that fails is the cause that is named. */
	static struct error *(*const checks[])(const struct check *) = {
		check_kind,	   check_namespace, check_permission, check_tracer,
		check_machine,	   check_sandbox,   check_frozen,     check_address_space,
		check_descriptors, check_map_count, check_memory,
	};
	CLEANUP(freep) char *comm = NULL;
	struct check check = {
		.proc = options->proc ? options->proc : "/proc",
		.options = options,
		.result = ret,
	};
	struct error *err;

	*ret = (struct preflight){.pid = pid, .yama = read_yama(check.proc)};
	err = check_exists(&check, pid);
	if (!err)
		err = wait_for_heapattach(&check);
	if (!err)
		err = collect_facts(&check);
	if (err)
		return err;
	check.comm = comm = text_printable(ret->comm);
	if (!comm)
		return error_memory();
	for (size_t i = 0; !err && i < sizeof(checks) / sizeof(checks[0]); i++)
		err = checks[i](&check);
	return ended_or(&check, err);
}

void preflight_deinit(struct preflight *preflight)
{
	free(preflight->comm);
	free(preflight->exe);
	free(preflight->cmdline);
	free(preflight->allocator_path);
	*preflight = (struct preflight){0};
}
