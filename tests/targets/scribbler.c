/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * scribbler WHAT [SEED]: a program that does not want to be looked at. As soon
 * as memory of heapattach's is mapped into it, a thread writes there without
 * end; and any socket that it did not open gets messages that make no sense.
 *
 *	words	random words at random places of shm
 *	counts	large numbers where small ones should be: the first pages of shm
 *	zeros	nothing but zeros
 *	entry	random words in entry's data, and in shm
 *	talk	messages on sockets that are not its own; shm is left alone
 *	fork	the same, but it forks a child that keeps them open
 *
 *	check	"ok"
 *	stop	ends; it may have crashed before: that is its own fault
 */
#include "tests/targets/target.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define MAPS_SIZE (1 << 16)

static const char *what;
static uint64_t random_state;

struct area {
	uint64_t low, high;
};

/* Without the C library, whose calls are hooked. */
static struct area area_find(const char *name, const char *protection)
{
	static char maps[MAPS_SIZE];
	struct area found = {0};
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t got;

	while (fd >= 0 && size + 1 < sizeof(maps) &&
	       (got = read(fd, maps + size, sizeof(maps) - 1 - size)) > 0)
		size += (size_t)got;
	close(fd);
	maps[size] = '\0';
	for (char *line = maps; line && *line; line = strchr(line, '\n')) {
		char *end;

		line += *line == '\n';
		end = strchr(line, '\n');
		if (!end)
			break;
		*end = '\0';
		if (strstr(line, name) && strstr(line, protection))
			sscanf(line, "%lx-%lx", &found.low, &found.high);
		*end = '\n';
	}
	return found;
}

static uint64_t next_value(void)
{
	uint64_t value = target_random(&random_state);

	if (!strcmp(what, "zeros"))
		return 0;
	/* Offsets and counts that are nearly right hurt more. */
	return value & 1 ? value : value >> (value >> 1 & 63);
}

static void area_scribble(struct area area, uint64_t size)
{
	if (size > area.high - area.low)
		size = area.high - area.low;
	for (int i = 0; i < 4096 && size; i++) {
		uint64_t at = area.low + target_random(&random_state) % size / 8 * 8;

		__atomic_store_n((uint64_t *)at, next_value(), __ATOMIC_RELAXED);
	}
}

static void sockets_talk(void)
{
	uint64_t message[4] = {0x3130744168656168u, next_value() % 4, next_value(), next_value()};

	for (int fd = 3; fd < 64; fd++) {
		size_t size = target_random(&random_state) % sizeof(message);

		send(fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		message[0] ^= target_random(&random_state) & 1;
	}
}

/* One for each time that there is one. */
static void sockets_keep(void)
{
	static struct stat kept;
	struct stat info;

	for (int fd = 3; fd < 64; fd++) {
		if (fstat(fd, &info) || !S_ISSOCK(info.st_mode) || info.st_ino == kept.st_ino)
			continue;
		kept = info;
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			sleep(60);
			_exit(0);
		}
		usleep(5000);
	}
}

static void *scribble_main(void *arg)
{
	for (;;) {
		if (!strcmp(what, "fork")) {
			sockets_keep();
			continue;
		}
		if (!strcmp(what, "talk")) {
			sockets_talk();
			usleep(20);
			continue;
		}
		area_scribble(area_find("memfd:heapattach (", "rw-s"),
			      !strcmp(what, "counts") ? 65536 : UINT64_C(1) << 31);
		if (!strcmp(what, "entry"))
			area_scribble(area_find("memfd:heapattach-entry", "rw-p"), 4096);
	}
	return NULL;
}

static void *work_main(void *arg)
{
	for (uint64_t i = 0;; i++) {
		void *block = malloc(i % 1000 + 1);

		KEEP(block);
		if (i % 10)
			free(block);
		usleep(100);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char line[32];

	target_begin();
	if (argc < 2)
		return 2;
	what = argv[1];
	random_state = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
	if (pthread_create(&thread, NULL, scribble_main, NULL) ||
	    pthread_create(&thread, NULL, work_main, NULL))
		target_fail("pthread_create");
	target_say("ready");
	while (target_command(line, sizeof(line)) && strcmp(line, "stop") != 0)
		target_say("ok");
	return 0;
}
