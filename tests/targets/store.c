/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * store PORT: a small key-value server on 127.0.0.1, single-threaded, around
 * poll. Each line is a request and gets one line as its answer:
 *
 *	set KEY VALUE   keeps both        get KEY    VALUE, or "none"
 *	open NAME       keeps a session   log TEXT   keeps TEXT in a ring
 *	index N         keeps an index of N words
 *
 * Five places keep memory; a line with SITE:name in a comment is one of them.
 */
#include "tests/targets/target.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define BUCKETS	    1024
#define CLIENTS_MAX 64
#define LOG_RING    512
#define LINE_MAX_   4096

struct entry {
	struct entry *next;
	char *key, *value;
};

struct session {
	struct session *next;
	char name[64];
	char scratch[4000];
};

struct client {
	size_t have;
	char line[LINE_MAX_];
};

static struct entry *buckets[BUCKETS];
static struct session *sessions;
static char *log_ring[LOG_RING];
static unsigned int log_next;
static uint32_t *indexes[BUCKETS];
static unsigned int indexes_count;
static struct pollfd fds[CLIENTS_MAX + 1];
static struct client clients[CLIENTS_MAX + 1];
static int fd_count;

static unsigned int hash(const char *text)
{
	unsigned int h = 5381;

	while (*text)
		h = h * 33 + (unsigned char)*text++;
	return h % BUCKETS;
}

static inline char *text_copy(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = malloc(size); /* SITE:text */

	if (!copy)
		abort();
	return memcpy(copy, text, size);
}

static NOINLINE struct entry *entry_create(const char *key)
{
	struct entry *entry = calloc(1, sizeof(*entry)); /* SITE:entry */

	if (!entry)
		abort();
	entry->key = text_copy(key); /* SITE:key */
	entry->next = buckets[hash(key)];
	buckets[hash(key)] = entry;
	return entry;
}

static struct entry *entry_find(const char *key)
{
	struct entry *entry = buckets[hash(key)];

	while (entry && strcmp(entry->key, key))
		entry = entry->next;
	return entry;
}

static NOINLINE const char *request_set(char *key)
{
	char *value = strchr(key, ' ');
	struct entry *entry;

	if (!value)
		return "what value?";
	*value++ = '\0';
	entry = entry_find(key);
	if (!entry)
		entry = entry_create(key);
	free(entry->value);
	entry->value = text_copy(value); /* SITE:value */
	return "ok";
}

static NOINLINE const char *request_get(const char *key)
{
	struct entry *entry = entry_find(key);

	return entry ? entry->value : "none";
}

static NOINLINE const char *request_open(const char *name)
{
	struct session *session = malloc(sizeof(*session)); /* SITE:session */

	if (!session)
		abort();
	strncpy(session->name, name, sizeof(session->name) - 1);
	session->name[sizeof(session->name) - 1] = '\0';
	session->next = sessions;
	sessions = session;
	return "ok";
}

static NOINLINE const char *request_log(const char *text)
{
	free(log_ring[log_next % LOG_RING]);
	log_ring[log_next % LOG_RING] = strdup(text); /* SITE:log */
	log_next++;
	return "ok";
}

static NOINLINE const char *request_index(const char *words)
{
	size_t count = strtoul(words, NULL, 10);

	if (indexes_count == BUCKETS || !count || count > 1000000)
		return "no";
	indexes[indexes_count] = realloc(NULL, count * sizeof(uint32_t)); /* SITE:index */
	if (!indexes[indexes_count])
		abort();
	memset(indexes[indexes_count++], 1, count * sizeof(uint32_t));
	return "ok";
}

static const struct {
	const char *word;
	const char *(*run)(char *rest);
} requests[] = {
	{"set ", request_set},
	{"get ", (const char *(*)(char *))request_get},
	{"open ", (const char *(*)(char *))request_open},
	{"log ", (const char *(*)(char *))request_log},
	{"index ", (const char *(*)(char *))request_index},
};

static NOINLINE const char *request_run(char *line)
{
	size_t i;

	for (i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		size_t length = strlen(requests[i].word);

		if (!strncmp(line, requests[i].word, length))
			return requests[i].run(line + length);
	}
	return "what?";
}

/* In one segment: the client acknowledges a second one late. */
static bool client_answer(int fd, const char *text)
{
	struct iovec parts[] = {
		{.iov_base = (void *)text, .iov_len = strlen(text)},
		{.iov_base = "\n", .iov_len = 1},
	};

	return writev(fd, parts, 2) >= 0;
}

static NOINLINE bool client_serve(int i)
{
	struct client *client = &clients[i];
	ssize_t n = read(fds[i].fd, client->line + client->have,
			 sizeof(client->line) - 1 - client->have);
	char *end;

	if (n <= 0)
		return false;
	client->have += (size_t)n;
	client->line[client->have] = '\0';
	while ((end = strchr(client->line, '\n'))) {
		*end = '\0';
		if (!client_answer(fds[i].fd, request_run(client->line)))
			return false;
		client->have -= (size_t)(end + 1 - client->line);
		memmove(client->line, end + 1, client->have + 1);
	}
	return client->have < sizeof(client->line) - 1;
}

static void client_drop(int i)
{
	close(fds[i].fd);
	fds[i] = fds[--fd_count];
	clients[i] = clients[fd_count];
}

static void client_accept(void)
{
	int fd = accept(fds[0].fd, NULL, NULL);

	if (fd < 0)
		return;
	if (fd_count > CLIENTS_MAX) {
		close(fd);
		return;
	}
	fds[fd_count] = (struct pollfd){.fd = fd, .events = POLLIN};
	clients[fd_count++].have = 0;
}

static NOINLINE void serve(void)
{
	int i;

	for (;;) {
		poll(fds, (nfds_t)fd_count, -1);
		for (i = fd_count - 1; i > 0; i--) {
			if (fds[i].revents && !client_serve(i))
				client_drop(i);
		}
		if (fds[0].revents)
			client_accept();
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int on = 1;

	target_begin();
	if (argc < 2)
		return 2;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10));
	fds[0].fd = socket(AF_INET, SOCK_STREAM, 0);
	fds[0].events = POLLIN;
	fd_count = 1;
	setsockopt(fds[0].fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fds[0].fd, (struct sockaddr *)&address, sizeof(address)) || listen(fds[0].fd, 16))
		target_fail("listen");
	target_say("ready");
	serve();
}
