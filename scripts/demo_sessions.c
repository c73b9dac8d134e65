/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The program of `make demo`: a module for redis-server that remembers the
 * last 500 sessions, and forgets to free one part of those that it drops.
 *
 *	SESSION.TOUCH ID
 */
#include <stdlib.h>
#include <string.h>

/* ---- as much of redis's module interface as is needed; redis hands out its
 * functions by name, through the first word of the context */

struct module_context;
struct module_string;
typedef int (*module_command)(struct module_context *, struct module_string **argv, int argc);

static int (*get_api)(const char *name, void *function);
static int (*set_attributes)(struct module_context *, const char *name, int version, int api);
static int (*create_command)(struct module_context *, const char *name, module_command command,
			     const char *flags, int first_key, int last_key, int key_step);
static const char *(*string_text)(const struct module_string *, size_t *length);
static int (*reply_number)(struct module_context *, long long number);

/* ---- the sessions */

#define SESSIONS_MAX 500

struct session {
	char *id;
	char *history; /* pages visited */
	size_t history_size;
};

static struct session *sessions[SESSIONS_MAX];
static size_t next_session;
static long long touched;

static char *history_create(const char *id, size_t size)
{
	char *history = malloc(size); /* the planted leak: see session_drop() */

	if (history) {
		memset(history, 0, size);
		strncpy(history, id, size - 1);
	}
	return history;
}

static struct session *session_create(const char *id)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->id = strdup(id);
	session->history_size = 512;
	session->history = history_create(id, session->history_size);
	return session;
}

static void session_drop(struct session *session)
{
	if (!session)
		return;
	free(session->id);
	free(session); /* and session->history? */
}

static int session_touch(struct module_context *context, struct module_string **argv, int argc)
{
	if (argc > 1) {
		session_drop(sessions[next_session]);
		sessions[next_session] = session_create(string_text(argv[1], NULL));
		next_session = (next_session + 1) % SESSIONS_MAX;
	}
	return reply_number(context, ++touched);
}

int RedisModule_OnLoad(struct module_context *context, struct module_string **argv, int argc);

int RedisModule_OnLoad(struct module_context *context, struct module_string **argv, int argc)
{
	(void)argv;
	(void)argc;
	memcpy(&get_api, context, sizeof(get_api));
	if (get_api("RedisModule_SetModuleAttribs", &set_attributes) ||
	    get_api("RedisModule_CreateCommand", &create_command) ||
	    get_api("RedisModule_StringPtrLen", &string_text) ||
	    get_api("RedisModule_ReplyWithLongLong", &reply_number))
		return 1;
	set_attributes(context, "sessions", 1, 1);
	return create_command(context, "session.touch", session_touch, "write", 0, 0, 0);
}
