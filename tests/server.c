/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/server.h"

#include "resolver/cleanup.h"

#include <dirent.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Longer than any test: the load is ended by us. */
#define LOAD_SECONDS "3600"

int free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t length = sizeof(address);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	close(fd);
	return ntohs(address.sin_port);
}

static void start_words(struct child *ret, const struct folder *folder, const char *user,
			const char *format, ...) PRINTF(4, 5);

static void start_words(struct child *ret, const struct folder *folder, const char *user,
			const char *format, ...)
{
	const char *argv[32];
	char line[1024], *save, *word;
	size_t count = 0;
	va_list args;

	va_start(args, format);
	ck_assert_int_lt(vsnprintf(line, sizeof(line), format, args), (int)sizeof(line));
	va_end(args);
	for (word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[count++] = word;
	argv[count] = NULL;
	child_start(ret, folder, user, argv);
}

static void start_check(struct server *server, const char *kind, const char *path)
{
	CLEANUP(freep) char *script = tests_source_path("tests/load.py");

	start_words(&server->check, server->folder, NULL, "/usr/bin/python3 %s %s %d %s", script,
		    kind, server->port, path);
	ck_assert_str_eq(child_line(&server->check), "ready");
}

static bool proc_text_has(const char *pid, const char *file, const char *part)
{
	char path[64], text[512] = "";

	snprintf(path, sizeof(path), "/proc/%.10s/%s", pid, file);
	CLEANUP(fclosep) FILE *in = fopen(path, "re");
	if (in)
		text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
	return strstr(text, part) != NULL;
}

/* A process whose parent is @parent and whose command line has @part; waits for it. */
static pid_t find_child(pid_t parent, const char *part)
{
	uint64_t deadline = now_ms() + 30000;
	char ppid[32];

	snprintf(ppid, sizeof(ppid), "\nPPid:\t%d\n", parent);
	while (now_ms() < deadline) {
		DIR *proc = opendir("/proc");
		struct dirent *entry;
		pid_t found = 0;

		while (!found && (entry = readdir(proc))) {
			if (atoi(entry->d_name) > 0 &&
			    proc_text_has(entry->d_name, "status", ppid) &&
			    proc_text_has(entry->d_name, "cmdline", part))
				found = atoi(entry->d_name);
		}
		closedir(proc);
		if (found)
			return found;
		wait_ms(20);
	}
	ck_abort_msg("process %d has no child \"%s\"", parent, part);
	return 0;
}

static void load_redis(struct server *server)
{
	start_check(server, "redis", "");
	start_words(&server->load, server->folder, NULL,
		    "redis-benchmark -h 127.0.0.1 -p %d -c 10 -l -q -d 100 -r 10000 -n 100000 "
		    "-t set,get,lpush,lpop,sadd,hset",
		    server->port);
}

static bool listens(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons((uint16_t)port)};
	CLEANUP(closep) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

void server_start_idle_redis(struct server *ret, const struct folder *folder)
{
	char conf[512];

	ret->folder = folder;
	ret->port = free_port();
	ret->module = "redis-"; /* redis-server may be a link to redis-check-rdb */
	ret->load_start = load_redis;
	snprintf(conf, sizeof(conf), "bind 127.0.0.1\nport %d\nsave \"\"\nappendonly no\ndir %s\n",
		 ret->port, folder->path);
	folder_write(folder, "redis.conf", conf);
	start_words(&ret->child, folder, NULL, "redis-server %s",
		    folder_file(folder, "redis.conf"));
	ret->target = ret->child.pid;
	for (int i = 0; !listens(ret->port); i++) {
		ck_assert_int_lt(i, 1500);
		wait_ms(20);
	}
}

void server_start_redis(struct server *ret, const struct folder *folder)
{
	server_start_idle_redis(ret, folder);
	server_load_begin(ret);
}

static void load_nginx(struct server *server)
{
	start_check(server, "http", "/page.txt");
	start_words(&server->load, server->folder, NULL,
		    "wrk -t 1 -c 10 -d " LOAD_SECONDS " -H Accept-Encoding:gzip "
		    "http://127.0.0.1:%d/page.txt",
		    server->port);
}

void server_start_nginx(struct server *ret, const struct folder *folder)
{
	/* All files are relative to the prefix (-p), which is the test's folder. */
	static const char format[] =
		"daemon off;\nuser root;\nworker_processes 1;\npid nginx.pid;\n"
		"error_log error.log;\nevents { worker_connections 256; }\n"
		"http {\naccess_log off;\nkeepalive_requests 1000000000;\n"
		"keepalive_timeout 1h;\nopen_file_cache max=10 inactive=1h;\n"
		"open_file_cache_valid 1h;\nclient_body_temp_path body;\n"
		"proxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\n"
		"uwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\ngzip on;\ngzip_types *;\n"
		"server { listen 127.0.0.1:%d; location / { root %s; } } }\n";
	char conf[sizeof(format) + 128];

	ret->folder = folder;
	ret->port = free_port();
	ret->module = "nginx";
	ret->load_start = load_nginx;
	snprintf(conf, sizeof(conf), format, ret->port, folder->path);
	folder_write(folder, "nginx.conf", conf);
	folder_write(folder, "page.txt",
		     "a page that is long enough to be compressed, "
		     "a page that is long enough to be compressed\n");
	start_words(&ret->child, folder, NULL, "nginx -p %s/ -e early.log -c %s", folder->path,
		    folder_file(folder, "nginx.conf"));
	ret->target = find_child(ret->child.pid, "nginx: worker");
	server_load_begin(ret);
}

static const char *postgres_tool(const char *name)
{
	static char path[64];

	for (int version = 30; version > 8; version--) {
		snprintf(path, sizeof(path), "/usr/lib/postgresql/%d/bin/%s", version, name);
		if (access(path, X_OK) == 0)
			return path;
	}
	ck_abort_msg("%s is not installed: run scripts/setup test", name);
	return NULL;
}

static void data_folder_create(const struct folder *folder, const char *user)
{
	const struct passwd *account = getpwnam(user);
	const char *path = folder_file(folder, "data");

	ck_assert_msg(account != NULL, "there is no user %s", user);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(chown(path, account->pw_uid, account->pw_gid), 0);
	ck_assert_int_eq(chown(folder->path, account->pw_uid, account->pw_gid), 0);
}

static void load_postgres(struct server *server)
{
	start_words(&server->load, server->folder, "postgres",
		    "pgbench -h %s -c 1 -T " LOAD_SECONDS " postgres", server->folder->path);
	/* Its first connection only looks at the tables. */
	wait_ms(1000);
	server->target = find_child(server->child.pid, "postgres: postgres postgres");
}

void server_start_postgres(struct server *ret, const struct folder *folder)
{
	const char *data = folder_file(folder, "data"), *path = folder->path;

	ret->folder = folder;
	ret->module = "postgres";
	ret->changes = true;
	ret->load_start = load_postgres;
	data_folder_create(folder, "postgres");
	free(command_run(folder, "postgres", 60, "%s -D %s -A trust --no-sync",
			 postgres_tool("initdb"), data));
	start_words(&ret->child, folder, "postgres",
		    "%s -D %s -k %s -c listen_addresses= -c fsync=off", postgres_tool("postgres"),
		    data, path);
	for (int i = 0; access(folder_file(folder, ".s.PGSQL.5432"), F_OK) != 0; i++) {
		ck_assert_int_lt(i, 1000);
		wait_ms(20);
	}
	wait_ms(500);
	free(command_run(folder, "postgres", 60, "pgbench -h %s -i -q postgres", path));
	server_load_begin(ret);
}

static void load_mariadb(struct server *server)
{
	start_words(&server->load, server->folder, "mysql",
		    "mariadb-slap --no-defaults --socket=%s/db.sock -u root --concurrency=2 "
		    "--iterations=100000 --auto-generate-sql --auto-generate-sql-load-type=mixed "
		    "--number-of-queries=2000",
		    server->folder->path);
}

void server_start_mariadb(struct server *ret, const struct folder *folder)
{
	const char *data = folder_file(folder, "data"), *path = folder->path;

	ret->folder = folder;
	ret->module = "mariadbd";
	ret->changes = true;
	ret->load_start = load_mariadb;
	data_folder_create(folder, "mysql");
	free(command_run(folder, "mysql", 120,
			 "mariadb-install-db --no-defaults --datadir=%s "
			 "--auth-root-authentication-method=normal --skip-test-db",
			 data));
	start_words(&ret->child, folder, "mysql",
		    "mariadbd --no-defaults --datadir=%s --socket=%s/db.sock --skip-networking "
		    "--pid-file=%s/db.pid --innodb-flush-log-at-trx-commit=0",
		    data, path, path);
	ret->target = ret->child.pid;
	for (int i = 0; access(folder_file(folder, "db.sock"), F_OK) != 0; i++) {
		ck_assert_int_lt(i, 1500);
		wait_ms(20);
	}
	server_load_begin(ret);
}

/* Works until it reads something; "check" is answered with "ok". */
#define SCRIPT_ASKED                                         \
	"    if select.select([sys.stdin], [], [], 0)[0]:\n" \
	"        if sys.stdin.readline() != 'check\\n':\n"   \
	"            sys.exit(0)\n"                          \
	"        print('ok', flush=True)\n"

static void start_script(struct server *ret, const struct folder *folder, const char *script)
{
	folder_write(folder, "work.py", script);
	start_words(&ret->child, folder, NULL, "env PYTHONMALLOC=malloc /usr/bin/python3 %s",
		    folder_file(folder, "work.py"));
	ret->target = ret->child.pid;
	ret->module = "python3.";
	ck_assert_str_eq(child_line(&ret->child), "ready");
}

void server_start_python(struct server *ret, const struct folder *folder)
{
	start_script(ret, folder,
		     "import json, select, sys\n"
		     "data = {'list': list(range(50)), 'text': ['x' * n for n in range(60)],\n"
		     "        'nested': {str(n): {'a': [n, None, 1.5]} for n in range(40)}}\n"
		     "print('ready', flush=True)\n"
		     "rounds, kept = 0, []\n"
		     "while True:\n"
		     "    text = json.dumps(data)\n"
		     "    if json.loads(text) != data:\n"
		     "        print('bad', flush=True)\n"
		     "    rounds += 1\n"
		     "    kept = [text] + kept[:100]\n" SCRIPT_ASKED);
}

void server_start_sqlite(struct server *ret, const struct folder *folder)
{
	start_script(
		ret, folder,
		"import select, sqlite3, sys\n"
		"db = sqlite3.connect(':memory:')\n"
		"db.execute('create table t (n integer primary key, text)')\n"
		"db.execute('create index i on t (text)')\n"
		"print('ready', flush=True)\n"
		"n = 0\n"
		"while True:\n"
		"    for i in range(100):\n"
		"        db.execute('insert into t values (?, ?)', (n + i, 'row %d' % (n + i)))\n"
		"    db.execute('delete from t where n < ?', (n - 5000,))\n"
		"    db.commit()\n"
		"    n += 100\n"
		"    if n % 10000 == 0:\n"
		"        sum, = db.execute('select sum(n) from t').fetchone()\n"
		"        low = max(0, n - 5100)\n"
		"        if sum != (low + n - 1) * (n - low) // 2:\n"
		"            print('bad', flush=True)\n" SCRIPT_ASKED);
}

static void load_node(struct server *server)
{
	start_check(server, "http", "/");
	start_words(&server->load, server->folder, NULL,
		    "wrk -t 1 -c 4 -d " LOAD_SECONDS " http://127.0.0.1:%d/", server->port);
}

void server_start_node(struct server *ret, const struct folder *folder)
{
	static const char script[] =
		"const http = require('http'), zlib = require('zlib');\n"
		"http.createServer((request, response) => {\n"
		"  const list = [];\n"
		"  for (let i = 0; i < 200; i++) list.push({i, text: 'x'.repeat(i)});\n"
		"  const body = Buffer.from(JSON.stringify(list));\n"
		"  zlib.deflate(body, (error, packed) =>\n"
		"    zlib.inflate(packed, (error, whole) => response.end(whole)));\n"
		"}).listen(Number(process.argv[2]), '127.0.0.1');\n";

	ret->port = free_port();
	ret->folder = folder;
	ret->module = "node";
	ret->changes = true;
	ret->load_start = load_node;
	folder_write(folder, "server.js", script);
	start_words(&ret->child, folder, NULL, "node %s %d", folder_file(folder, "server.js"),
		    ret->port);
	ret->target = ret->child.pid;
	server_load_begin(ret);
}

void server_load_begin(struct server *server)
{
	if (server->load_start)
		server->load_start(server);
}

void server_expect_alive(struct server *server)
{
	ck_assert_msg(child_wait(&server->child, 0) == -1, "the server ended");
	if (server->load.pid)
		ck_assert_msg(child_wait(&server->load, 0) == -1, "the load ended");
	if (server->check.pid)
		ck_assert_msg(child_wait(&server->check, 0) == -1, "the check of answers ended");
	if (!server->load_start)
		child_expect(&server->child, "check", "ok");
}

void server_expect_all_answered(struct server *server)
{
	unsigned long answered, failed;

	server_expect_alive(server);
	if (server->check.pid) {
		ck_assert_int_eq(sscanf(child_ask(&server->check, "stop"),
					"answered %lu failed %lu", &answered, &failed),
				 2);
		ck_assert_uint_gt(answered, 0);
		ck_assert_uint_eq(failed, 0);
	}
	child_end(&server->check);
	child_end(&server->load);
	/* The server closes its ends. */
	wait_ms(500);
}

/* Fast shutdown in PostgreSQL's words; a plain end for the others. */
static int end_ask(const struct server *server)
{
	bool fast = server->module && strcmp(server->module, "postgres") == 0;

	return kill(server->child.pid, fast ? SIGINT : SIGTERM);
}

void server_expect_clean_end(struct server *server)
{
	int status;

	ck_assert_int_eq(end_ask(server), 0);
	status = child_wait(&server->child, 30000);
	ck_assert_msg(status == 0 || status == 128 + SIGTERM, "the server ended with %d", status);
}

void server_end(struct server *server)
{
	child_end(&server->check);
	child_end(&server->load);
	/* A worker outlives a master that is killed. */
	if (server->child.pid && server->target != server->child.pid) {
		end_ask(server);
		child_wait(&server->child, 5000);
	}
	child_end(&server->child);
}
