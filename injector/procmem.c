// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/procmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "resolver/cleanup.h"

/* The line "Name:   123 kB" anywhere in the text. */
static uint64_t field_bytes(const char *text, const char *name)
{
	size_t length = strlen(name);
	const char *line = text;

	while (line) {
		if (!strncmp(line, name, length) && line[length] == ':')
			return strtoull(line + length + 1, NULL, 10) * 1024;
		line = strchr(line, '\n');
		if (line)
			line++;
	}
	return 0;
}

void procmem_parse(const char *text, struct procmem *ret)
{
	ret->rss_bytes = field_bytes(text, "VmRSS");
	ret->anon_bytes = field_bytes(text, "RssAnon");
	ret->file_bytes = field_bytes(text, "RssFile");
	ret->shmem_bytes = field_bytes(text, "RssShmem");
	ret->locked_bytes = field_bytes(text, "VmLck");
}

struct error *procmem_read(const struct target *target, struct procmem *ret)
{
	CLEANUP(closep) int fd = -1;
	struct error *err;
	char text[8192];
	ssize_t n;

	err = target_open_file(target, "status", O_RDONLY, &fd);
	if (err)
		return err;
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return error_os(errno, "cannot read the status of process %d", target_pid(target));
	text[n] = '\0';
	procmem_parse(text, ret);
	return NULL;
}
