// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/procfacts.h"

#include "resolver/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

#define FILE_MAX   (16u << 20)
#define PF_KTHREAD 0x00200000ul /* <linux/sched.h>, not exported */

/* Reads by doubling, as procfs files have no size. */
static struct error *read_all(int fd, const char *path, char **ret, size_t *size_ret)
{
	CLEANUP(freep) char *text = NULL;
	size_t size = 0, room = 4096;

	for (;;) {
		char *grown = realloc(text, room);
		ssize_t got;

		if (!grown)
			return error_memory();
		text = grown;
		got = read(fd, text + size, room - size - 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_os(errno, "cannot read %s", path);
		size += (size_t)got;
		if (got == 0)
			break;
		if (room - size < 2 && room >= FILE_MAX)
			return error_create(ERROR_FORMAT, "%s is larger than %u bytes", path,
					    FILE_MAX);
		if (room - size < 2)
			room *= 2;
	}
	text[size] = '\0';
	if (size_ret)
		*size_ret = size;
	*ret = take(text);
	return NULL;
}

struct error *procfacts_file(char **ret, size_t *size_ret, const char *format, ...)
{
	CLEANUP(freep) char *path = NULL;
	CLEANUP(closep) int fd = -1;
	va_list args;
	int length;

	va_start(args, format);
	length = vasprintf(&path, format, args);
	va_end(args);
	if (length < 0) {
		path = NULL;
		return error_memory();
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_os(errno, "cannot open %s", path);
	return read_all(fd, path, ret, size_ret);
}

/* The value behind "@name:" at a line's start, or NULL. */
static const char *find_field(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			return line + length + 1 + strspn(line + length + 1, " \t");
	}
	return NULL;
}

static uint64_t field_number(const char *text, const char *name)
{
	const char *value = find_field(text, name);

	return value ? strtoull(value, NULL, 10) : 0;
}

static void field_ids(const char *text, const char *name, uint32_t ids[3])
{
	const char *value = find_field(text, name);
	char *end;

	for (int i = 0; value && i < 3; i++) {
		ids[i] = (uint32_t)strtoul(value, &end, 10);
		if (end == value)
			break;
		value = end;
	}
}

/* NSpid has one number for each namespace, the innermost last. */
static pid_t innermost_pid(const char *text)
{
	const char *value = find_field(text, "NSpid");
	pid_t pid = 0;

	while (value && *value && *value != '\n') {
		char *end;
		long number = strtol(value, &end, 10);

		if (end == value)
			break;
		pid = (pid_t)number;
		value = end + strspn(end, " \t");
	}
	return pid;
}

void procfacts_parse_status(const char *text, struct procfacts *ret)
{
	const char *state = find_field(text, "State");

	ret->state = state ? *state : '\0';
	ret->tgid = (pid_t)field_number(text, "Tgid");
	ret->parent = (pid_t)field_number(text, "PPid");
	ret->tracer = (pid_t)field_number(text, "TracerPid");
	ret->ns_pid = innermost_pid(text);
	ret->threads = (unsigned int)field_number(text, "Threads");
	ret->seccomp = (unsigned int)field_number(text, "Seccomp");
	ret->no_new_privs = field_number(text, "NoNewPrivs") != 0;
	ret->virtual_bytes = field_number(text, "VmSize") * 1024;
	ret->rss_bytes = field_number(text, "VmRSS") * 1024;
	field_ids(text, "Uid", ret->uid);
	field_ids(text, "Gid", ret->gid);
}

/* The second field, the name, is in parentheses and may hold any byte. */
bool procfacts_parse_stat(const char *text, struct procfacts *ret)
{
	const char *at = strrchr(text, ')');

	if (!at)
		return false;
	for (int field = 3; field <= 22; field++) {
		at = strchr(at, ' ');
		if (!at)
			return false;
		at++;
		if (field == 9)
			ret->kernel_thread = strtoul(at, NULL, 10) & PF_KTHREAD;
		if (field == 22)
			ret->start_time = strtoull(at, NULL, 10);
	}
	return true;
}

struct error *procfacts_read(const char *proc, pid_t pid, struct procfacts *ret)
{
	CLEANUP(freep) char *status = NULL, *stat = NULL;
	struct procfacts facts = {0};
	struct error *err;

	err = procfacts_file(&status, NULL, "%s/%d/status", proc, pid);
	if (!err)
		err = procfacts_file(&stat, NULL, "%s/%d/stat", proc, pid);
	if (err && (error_errno(err) == ENOENT || error_is(err, ERROR_GONE))) {
		error_free(err);
		return error_create(ERROR_NOT_FOUND, "there is no process %d", pid);
	}
	if (err)
		return err;
	procfacts_parse_status(status, &facts);
	if (!facts.tgid || !procfacts_parse_stat(stat, &facts))
		return error_create(ERROR_FORMAT, "%s/%d/status makes no sense", proc, pid);
	*ret = facts;
	return NULL;
}

/*
 * Names of functions in kernel/signal.c (cgroup v2) and kernel/freezer.c (v1);
 * do_freezer_trap() may be inlined into its only caller, in which a thread can
 * sleep for no other reason with state S.
 */
bool procfacts_is_frozen(const char *proc, pid_t tid)
{
	static const char *const traps[] = {"do_freezer_trap", "get_signal", "__refrigerator"};
	CLEANUP(freep) char *wchan = NULL, *status = NULL;
	struct procfacts facts = {0};
	struct error *err;

	err = procfacts_file(&wchan, NULL, "%s/%d/wchan", proc, tid);
	if (!err)
		err = procfacts_file(&status, NULL, "%s/%d/status", proc, tid);
	if (err) {
		error_free(err);
		return false;
	}
	procfacts_parse_status(status, &facts);
	for (size_t i = 0; i < sizeof(traps) / sizeof(traps[0]); i++) {
		if (!strcmp(wchan, traps[i]))
			return facts.state == 'S' || facts.state == 'D';
	}
	return false;
}
