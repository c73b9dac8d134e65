/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * prefork [-w WORKERS]: a server in the old manner. The master forks workers
 * that share a listening socket, and a new one for each that dies: after some
 * requests half of them exit, half are killed. A client asks without end.
 *
 *	check	"ok" if since the last check requests were answered and workers
 *		died and were replaced, and if no answer was ever wrong or missing
 *	keep N	the master allocates N blocks of 100 bytes in keep_blocks(): "kept"
 *	count	from now on, the master keeps a block of each fork in
 *		fork_counted(), and every second worker that it forks stays: "ok"
 *	counted	no longer, once those are there: "N", how many forks that were
 *	clean	"clean" if neither the master nor a worker calls malloc through anybody
 *	stay	no more workers die: "staying PID ...", those that were forked meanwhile
 *	stop	"ended", if each worker ended as it was meant to
 *
 * Built so that calls go through the same word that &malloc is read from.
 */
#include "tests/targets/forked.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define WORKERS_MAX    16
#define REQUEST_BLOCKS 64
#define LIFE_MIN       4 /* requests */
#define LIFE_SPREAD    16

struct worker {
	pid_t pid;
	bool stays;	   /* forked to stay */
	uint64_t requests; /* of all workers at this place */
	bool hooked;	   /* as of its last request */
};

static struct {
	struct worker worker[WORKERS_MAX];
	uint64_t answered;
	bool wrong; /* an answer was, or there was none */
	bool staying;
} * shared;

static int listener, worker_count = 4;
static pid_t client;
static uint64_t forks, forks_seen, answered_seen, random_state = 1;
static bool counting, ended_badly;
static uint64_t counted;

NOINLINE static void keep_blocks(int count)
{
	for (int i = 0; i < count; i++) {
		void *block = malloc(100);

		KEEP(block);
	}
}

/* ---- a worker */

/* Needs memory, and is wrong if another block got into it. */
static uint32_t request_serve(uint32_t request)
{
	unsigned char *block[REQUEST_BLOCKS];
	uint32_t sum = request;

	for (uint32_t i = 0; i < REQUEST_BLOCKS; i++) {
		size_t size = 16 + (request + i * 37) % 1500;

		block[i] = realloc(malloc(size / 2), size);
		memset(block[i], (int)i, size);
	}
	for (uint32_t i = 0; i < REQUEST_BLOCKS; i++) {
		sum += block[i][0];
		free(block[i]);
	}
	return sum;
}

#define REQUEST_SUM (REQUEST_BLOCKS * (REQUEST_BLOCKS - 1) / 2)

__attribute__((noreturn)) static void worker_main(struct worker *self, uint64_t life)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint64_t i = 0; i < life || self->stays || shared->staying; i++) {
		int fd = accept(listener, NULL, NULL);
		uint32_t request;

		if (fd < 0 || read(fd, &request, sizeof(request)) != sizeof(request))
			_exit(3);
		request = request_serve(request);
		if (write(fd, &request, sizeof(request)) != sizeof(request))
			_exit(4);
		close(fd);
		self->hooked = forked_is_hooked();
		__atomic_fetch_add(&self->requests, 1, __ATOMIC_RELEASE);
	}
	if (life % 2)
		raise(SIGKILL);
	_exit(0);
}

/* ---- the client */

static bool request_send(const struct sockaddr_un *address, socklen_t length, uint32_t request)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint32_t answer = 0;
	bool good = fd >= 0 && !connect(fd, (const struct sockaddr *)address, length) &&
		    write(fd, &request, sizeof(request)) == sizeof(request) &&
		    read(fd, &answer, sizeof(answer)) == sizeof(answer);

	close(fd);
	return good && answer == request + REQUEST_SUM;
}

__attribute__((noreturn)) static void client_main(const struct sockaddr_un *address,
						  socklen_t length)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t request = 0;; request++) {
		if (!request_send(address, length, request))
			shared->wrong = true;
		__atomic_fetch_add(&shared->answered, 1, __ATOMIC_RELAXED);
		usleep(500);
	}
}

/* ---- the master */

static pid_t worker_fork(struct worker *worker)
{
	uint64_t life = LIFE_MIN + target_random(&random_state) % LIFE_SPREAD;
	pid_t pid;

	worker->stays = counting && (worker - shared->worker) % 2 == 0;
	pid = fork();
	if (pid < 0)
		target_fail("fork");
	if (pid == 0)
		worker_main(worker, life);
	forks++;
	return pid;
}

NOINLINE static pid_t fork_counted(struct worker *worker)
{
	void *block = malloc(100);

	KEEP(block);
	counted++;
	return worker_fork(worker);
}

static void worker_start(struct worker *worker)
{
	worker->pid = counting ? fork_counted(worker) : worker_fork(worker);
}

static void workers_replace(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		ended_badly |= status != 0 && status != SIGKILL;
		for (int i = 0; i < worker_count; i++) {
			if (shared->worker[i].pid == pid)
				worker_start(&shared->worker[i]);
		}
	}
}

/* Serve until @condition, for ten seconds at most. */
static bool serve_until(bool (*condition)(void))
{
	uint64_t start = target_now_ns();

	while (!condition()) {
		if (target_now_ns() - start > UINT64_C(10000000000))
			return false;
		workers_replace();
		poll(NULL, 0, 1);
	}
	return true;
}

static bool has_moved(void)
{
	return (shared->staying || forks >= forks_seen + 4) &&
	       __atomic_load_n(&shared->answered, __ATOMIC_RELAXED) >= answered_seen + 20;
}

static const char *check(void)
{
	bool moved = serve_until(has_moved);

	forks_seen = forks;
	answered_seen = __atomic_load_n(&shared->answered, __ATOMIC_RELAXED);
	if (shared->wrong)
		return "an answer was wrong";
	if (ended_badly)
		return "a worker ended badly";
	return moved ? "ok" : "stuck";
}

static uint64_t requests_seen[WORKERS_MAX];

/* Each has answered twice: the first may have begun before. */
static bool have_all_served(void)
{
	for (int i = 0; i < worker_count; i++) {
		if (__atomic_load_n(&shared->worker[i].requests, __ATOMIC_ACQUIRE) <
		    requests_seen[i] + 2)
			return false;
	}
	return true;
}

static const char *clean(void)
{
	bool hooked = forked_is_hooked();

	for (int i = 0; i < worker_count; i++)
		requests_seen[i] = __atomic_load_n(&shared->worker[i].requests, __ATOMIC_ACQUIRE);
	if (!serve_until(have_all_served))
		return "stuck";
	for (int i = 0; i < worker_count; i++)
		hooked |= shared->worker[i].hooked;
	return hooked ? "hooked" : "clean";
}

static bool have_some_come_to_stay(void)
{
	for (int i = 0; i < worker_count; i += 2) {
		if (!shared->worker[i].stays)
			return false;
	}
	return true;
}

static void stay(void)
{
	char text[WORKERS_MAX * 12 + 16] = "staying";

	shared->staying = true;
	for (int i = 0; i < worker_count; i += 2)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %d",
			 shared->worker[i].pid);
	target_say("%s", text);
}

static void answer(const char *line)
{
	if (!strncmp(line, "keep ", 5)) {
		keep_blocks(atoi(line + 5));
		target_say("kept");
	} else if (!strcmp(line, "count")) {
		counting = true;
		target_say("ok");
	} else if (!strcmp(line, "counted")) {
		if (!serve_until(have_some_come_to_stay))
			target_fail("counted");
		counting = false;
		target_say("%lu", counted);
	} else if (!strcmp(line, "stay")) {
		stay();
	} else {
		target_say("%s", !strcmp(line, "clean") ? clean() : check());
	}
}

static void end(void)
{
	kill(client, SIGKILL);
	waitpid(client, NULL, 0);
	for (int i = 0; i < worker_count; i++) {
		kill(shared->worker[i].pid, SIGKILL);
		waitpid(shared->worker[i].pid, NULL, 0);
	}
}

static void start(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(address);

	/* The kernel chooses a name that nobody has. */
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address.sun_family)) ||
	    listen(listener, 64) || getsockname(listener, (struct sockaddr *)&address, &length))
		target_fail("listen");
	client = fork();
	if (client == 0)
		client_main(&address, length);
	for (int i = 0; i < worker_count; i++)
		worker_start(&shared->worker[i]);
}

int main(int argc, char **argv)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	char line[64];
	int option;

	target_begin();
	while ((option = getopt(argc, argv, "w:")) != -1)
		worker_count = option == 'w' ? atoi(optarg) : 0;
	if (worker_count < 1 || worker_count > WORKERS_MAX)
		return 2;
	shared = forked_share(sizeof(*shared));
	start();
	target_say("ready");
	for (;;) {
		workers_replace();
		if (poll(&input, 1, 1) <= 0)
			continue;
		if (!target_command(line, sizeof(line)) || !strcmp(line, "stop"))
			break;
		answer(line);
	}
	end();
	target_say(ended_badly ? "a worker ended badly" : "ended");
	return 0;
}
