/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Real servers for the tests, as Debian builds them: each listens on a free
 * port of 127.0.0.1 or a socket in the test's folder, with its data there, and
 * is put under load.
 */
#ifndef TESTS_SERVER_H
#define TESTS_SERVER_H

#include "tests/e2e.h"

struct server {
	struct child child;
	const struct folder *folder;
	pid_t target;	    /* the process to attach to: it or a worker of it */
	int port;	    /* 0: none */
	const char *module; /* how the file name of the server's own object begins */
	bool changes;	    /* it opens files and sets signal handlers when it likes */
	void (*load_start)(struct server *server); /* NULL: it works by itself */
	struct child load;  /* fills the server with work; ends if an answer is wrong */
	struct child check; /* checks each answer; pid 0: the load does */
};

void server_start_redis(struct server *ret, const struct folder *folder);
/* Without a load, until server_load_begin(). */
void server_start_idle_redis(struct server *ret, const struct folder *folder);
void server_start_nginx(struct server *ret, const struct folder *folder);
/* The target is a backend, which is there while there is a load. */
void server_start_postgres(struct server *ret, const struct folder *folder);
void server_start_mariadb(struct server *ret, const struct folder *folder);
/* A script that works and checks its results by itself; every object from malloc. */
void server_start_python(struct server *ret, const struct folder *folder);
/* The same with one table in memory that rows are inserted into and deleted from. */
void server_start_sqlite(struct server *ret, const struct folder *folder);
void server_start_node(struct server *ret, const struct folder *folder);

/* The server_start functions have done it once; again after server_expect_all_answered(). */
void server_load_begin(struct server *server);
/* The server and its load are at work and no answer was wrong so far. */
void server_expect_alive(struct server *server);
/* End the load: no answer was wrong and there were some. Its connections are closed. */
void server_expect_all_answered(struct server *server);
/* End the server by a signal: it ends well. */
void server_expect_clean_end(struct server *server);
void server_end(struct server *server);

/* A port that nobody listens on now. */
int free_port(void);

#endif
