// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "resolver/cleanup.h"

#define DEFAULT_NAMES_MAX 10000

struct outfile {
	char *path;
	int fd; /* -1 once it is closed */
	dev_t device;
	ino_t inode;
	bool committed;
};

static struct error *create_error(int errnum, const char *path)
{
	struct error *err;
	struct stat st;

	if (errnum != EEXIST && errnum != ELOOP)
		return error_hint(error_os(errnum, "cannot create %s", path),
				  "choose another place with -o");
	if (!lstat(path, &st) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) {
		err = error_os(EEXIST, "cannot create %s, where %s is", path,
			       S_ISDIR(st.st_mode) ? "a directory" : "a device or socket");
		return error_hint(err, "give -o the name of a file that does not exist yet");
	}
	err = error_os(EEXIST, "cannot create %s, and nothing is ever overwritten", path);
	return error_hint(err, "choose another name with -o, or remove that file first");
}

struct error *outfile_create(const char *path, struct outfile **ret)
{
	struct outfile *file = calloc(1, sizeof(*file));
	struct stat st;
	int errnum;

	if (!file)
		return error_memory();
	file->path = strdup(path);
	if (!file->path) {
		free(file);
		return error_memory();
	}
	file->fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0600);
	if (file->fd < 0 || fstat(file->fd, &st)) {
		errnum = errno;
		file->committed = true; /* nothing of ours to remove */
		outfile_free(file);
		return create_error(errnum, path);
	}
	file->device = st.st_dev;
	file->inode = st.st_ino;
	*ret = file;
	return NULL;
}

static bool is_safe(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("._+-", c));
}

static void make_safe(char *name)
{
	for (char *c = name; *c; c++)
		if (!is_safe(*c))
			*c = '_';
}

struct error *outfile_create_default(const char *comm, pid_t pid, struct outfile **ret)
{
	CLEANUP(freep) char *safe = strdup(comm && *comm ? comm : "target");

	if (!safe)
		return error_memory();
	make_safe(safe);
	for (unsigned int i = 0;; i++) {
		CLEANUP(freep) char *path = NULL;
		char suffix[16] = "";
		struct error *err;

		if (i)
			snprintf(suffix, sizeof(suffix), ".%u", i);
		if (asprintf(&path, "heapattach.%s.%d.hap%s", safe, (int)pid, suffix) < 0) {
			path = NULL;
			return error_memory();
		}
		err = outfile_create(path, ret);
		if (!err || error_errno(err) != EEXIST || i >= DEFAULT_NAMES_MAX)
			return err;
		error_free(err);
	}
}

int outfile_fd(const struct outfile *file)
{
	return file->fd;
}

const char *outfile_path(const struct outfile *file)
{
	return file->path;
}

struct error *outfile_commit(struct outfile *file)
{
	int fd = take_fd(&file->fd);

	if (close(fd))
		return error_os(errno, "cannot write %s", file->path);
	file->committed = true;
	return NULL;
}

void outfile_free(struct outfile *file)
{
	struct stat st;

	if (!file)
		return;
	if (file->fd >= 0)
		close(file->fd);
	/* Only what is still our file: somebody may have put another one there. */
	if (!file->committed && !lstat(file->path, &st) && st.st_dev == file->device &&
	    st.st_ino == file->inode)
		unlink(file->path);
	free(file->path);
	free(file);
}

void outfile_freep(struct outfile **file)
{
	outfile_free(*file);
}
