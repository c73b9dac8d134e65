/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A server that was built with -O2 -g and stripped, with its debug file where
 * a distribution puts it: what it keeps is named by function and line.
 */
#include "resolver/cleanup.h"
#include "tests/procstate.h"
#include "tests/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct folder folder;
static struct child store;
static struct run run;
static int connection = -1;

static void setup(void)
{
	folder_create(&folder);
}

static void teardown(void)
{
	if (connection >= 0)
		close(connection);
	run_deinit(&run);
	child_end(&store);
	folder_remove(&folder);
}

/* "0123ab..." of the stripped program, as readelf tells it. */
static void build_id_read(const char *program, char build_id[64])
{
	CLEANUP(freep)
	char *text = command_run(&folder, NULL, 20, "readelf -n %s", program);
	const char *id = strstr(text, "Build ID: ");

	ck_assert_ptr_nonnull(id);
	ck_assert_int_eq(sscanf(id, "Build ID: %63[0-9a-f]", build_id), 1);
}

/*
 * Start the stripped server in a mount namespace of its own, in which
 * /usr/lib/debug has nothing but its debug file.
 */
static void store_start(int port)
{
	CLEANUP(freep) char *program = tests_build_path("targets/store.stripped");
	CLEANUP(freep) char *debug = tests_build_path("targets/store.debug");
	char build_id[64], script[1024];
	const char *argv[] = {"unshare", "-m", "sh", "-c", script, NULL};

	build_id_read(program, build_id);
	snprintf(script, sizeof(script),
		 "mkdir -p /usr/lib/debug && mount -t tmpfs none /usr/lib/debug && "
		 "mkdir -p /usr/lib/debug/.build-id/%.2s && "
		 "cp %s /usr/lib/debug/.build-id/%.2s/%s.debug && exec %s %d",
		 build_id, debug, build_id, build_id + 2, program, port);
	child_start(&store, &folder, NULL, argv);
	ck_assert_str_eq(child_line(&store), "ready");
}

static void store_connect(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	connection = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(connection, (struct sockaddr *)&address, sizeof(address)), 0);
}

static PRINTF(1, 2) void store_ask(const char *format, ...)
{
	char line[4096], answer[64];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	ck_assert_int_eq(write(connection, line, (size_t)length), length);
	ck_assert_int_eq(recv(connection, answer, 3, MSG_WAITALL), 3);
	ck_assert_int_eq(memcmp(answer, "ok\n", 3), 0);
}

/* The known work: what is kept afterwards is in the table below. */
static void store_work(void)
{
	char value[1001];
	int i;

	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	for (i = 0; i < 10; i++)
		store_ask("index %d\n", 50000);
	for (i = 0; i < 200; i++)
		store_ask("open session-%d\n", i);
	for (i = 0; i < 700; i++)
		store_ask("log %.*s\n", 199, value);
	for (i = 0; i < 300; i++)
		store_ask("set key-%03d %s\n", i, value);
}

/* What is kept, most first: function, SITE, blocks and bytes. */
static const struct {
	const char *function, *site;
	uint64_t blocks, bytes;
} kept[] = {
	{"request_index", "index", 10, 10 * 200000}, {"request_open", "session", 200, 200 * 4072},
	{"request_set", "value", 300, 300 * 1001},   {"request_log", "log", 512, 512 * 200},
	{"entry_create", "entry", 300, 300 * 24},
};

/* Number of the source line that has SITE:name. */
static unsigned int site_line(const char *name)
{
	CLEANUP(freep) char *path = tests_source_path("tests/targets/store.c");
	CLEANUP(freep) char *text = tests_read_file(path);
	char mark[64];
	const char *at;
	unsigned int line = 1;

	snprintf(mark, sizeof(mark), "/* SITE:%s */", name);
	at = strstr(text, mark);
	ck_assert_msg(at != NULL, "no %s in %s", mark, path);
	for (const char *c = text; c < at; c++)
		line += *c == '\n';
	return line;
}

/* The first frame of a site that is in this function, or NULL. */
static const struct json *frame_of(const struct json *site, const char *function)
{
	const struct json *frames = json_get(site, "frames", JSON_ARRAY);

	for (size_t i = 0; i < frames->count; i++) {
		if (!strcmp(json_text(&frames->item[i], "function"), function))
			return &frames->item[i];
	}
	return NULL;
}

static void expect_kept(const struct json *report)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);

	ck_assert_uint_ge(sites->count, 5);
	for (size_t i = 0; i < 5; i++) {
		const struct json *site = &sites->item[i];
		const struct json *frame = frame_of(site, kept[i].function);

		ck_assert_msg(frame != NULL, "site %zu is not in %s", i + 1, kept[i].function);
		ck_assert_uint_eq(json_count(frame, "line"), site_line(kept[i].site));
		ck_assert_ptr_nonnull(strstr(json_text(frame, "file"), "tests/targets/store.c"));
		ck_assert_uint_eq(json_count(site, "inuse_bytes"), kept[i].bytes);
		ck_assert_uint_eq(json_count(site, "inuse_count"), kept[i].blocks);
	}
}

START_TEST(stripped_server_is_named_by_its_debug_file)
{
	const char *file = folder_file(&folder, "store.hap");
	int port = free_port();

	store_start(port);
	store_connect(port);
	run_start(&run, &folder, "-p %d --exact -q -o %s", store.pid, file);
	run_wait_attached(&run, store.pid);
	store_work();
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 60);
	ck_assert_msg(run.status == 0, "%s", run.err);
	store_ask("open %s\n", "after");
	CLEANUP(json_freep) struct json *report = run_report_json(&folder, file);
	expect_kept(report);
	ck_assert_uint_eq(json_count(report, "coverage.missed_frees"), 0);
	ck_assert_uint_eq(json_count(report, "coverage.untracked"), 0);
}
END_TEST

Suite *attach_symbols_suite(void)
{
	Suite *suite = suite_create("attach_symbols");
	TCase *tcase = tcase_create("attach_symbols");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 240);
	tcase_add_test(tcase, stripped_server_is_named_by_its_debug_file);
	suite_add_tcase(suite, tcase);
	return suite;
}
