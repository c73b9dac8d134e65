/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Ten attaches to each of several real servers under load: all requests are
 * answered, the process is left as it was, and the stacks make sense.
 */
#include "resolver/cleanup.h"
#include "tests/procstate.h"
#include "tests/server.h"

#include <string.h>

#define CYCLES 10

/* What may go wrong, per million allocations. */
#define TRUNCATED_MAX	 1000
#define MISSED_FREES_MAX 1000

static struct folder folder;
static struct server server;
static struct run run;
static struct procstate before, after;

static void setup(void)
{
	folder_create(&folder);
	runs_come_first();
}

static void teardown(void)
{
	run_deinit(&run);
	server_end(&server);
	procstate_deinit(&before);
	procstate_deinit(&after);
	folder_remove(&folder);
}

/* Sums over the cycles. */
static struct {
	uint64_t alloc_bytes, own_bytes; /* all, and those with a frame of the server's own */
	uint64_t allocations, truncated, missed, untracked, nested;
} sums;

static bool has_own_frame(const struct json *site, const char *module)
{
	const struct json *frames = json_get(site, "frames", JSON_ARRAY);

	for (size_t i = 0; i < frames->count; i++) {
		const char *path = json_text(&frames->item[i], "module");
		const char *slash = strrchr(path, '/');

		if (strncmp(slash ? slash + 1 : path, module, strlen(module)) == 0)
			return true;
	}
	return false;
}

static void sums_add(const struct json *report)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);

	for (size_t i = 0; i < sites->count; i++) {
		uint64_t bytes = json_count(&sites->item[i], "alloc_bytes");

		sums.alloc_bytes += bytes;
		if (has_own_frame(&sites->item[i], server.module))
			sums.own_bytes += bytes;
	}
	sums.allocations += json_count(report, "totals.alloc_count");
	sums.truncated += json_count(report, "coverage.truncated_stacks");
	sums.missed += json_count(report, "coverage.missed_frees");
	sums.untracked += json_count(report, "coverage.untracked");
	sums.nested += json_count(report, "coverage.nested_duplicates");
}

static void expect_good_stacks(void)
{
	ck_assert_uint_gt(sums.allocations, 0);
	ck_assert_msg(sums.own_bytes * 100 >= sums.alloc_bytes * 95,
		      "only %lu of %lu bytes have a frame in %s", sums.own_bytes, sums.alloc_bytes,
		      server.module);
	ck_assert_msg(sums.truncated * 1000000 <= sums.allocations * TRUNCATED_MAX,
		      "%lu of %lu stacks are truncated", sums.truncated, sums.allocations);
	ck_assert_msg(sums.missed * 1000000 <= sums.allocations * MISSED_FREES_MAX,
		      "%lu of %lu frees were missed", sums.missed, sums.allocations);
	ck_assert_uint_eq(sums.untracked, 0);
	ck_assert_uint_eq(sums.nested, 0);
}

static void attach_ten_times(void)
{
	wait_ms(1000);
	for (int i = 0; i < CYCLES; i++) {
		const char *file = folder_file(&folder, "cycle-%d.hap", i);

		server_expect_alive(&server);
		run_program(&run, &folder, "-p %d --exact -d 0.3 -q -o %s", server.target, file);
		ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
		run_deinit(&run);
		CLEANUP(json_freep) struct json *report = run_report_json(&folder, file);
		sums_add(report);
	}
	wait_ms(500);
}

static void check_server(void (*start)(struct server *, const struct folder *))
{
	unsigned int ignore = PROCSTATE_HEAP | PROCSTATE_THREADS | PROCSTATE_MASKS;

	start(&server, &folder);
	wait_ms(500);
	if (server.changes) {
		ignore |= PROCSTATE_FDS | PROCSTATE_HANDLERS;
		procstate_read(server.target, &before);
	} else {
		/* Without connections, but with all that the first requests open. */
		server_expect_all_answered(&server);
		procstate_read(server.target, &before);
		server_load_begin(&server);
	}
	attach_ten_times();
	if (server.changes)
		procstate_read(server.target, &after);
	server_expect_all_answered(&server);
	if (!server.changes)
		procstate_read(server.target, &after);
	expect_good_stacks();
	procstate_expect_same(&before, &after, ignore);
	server_expect_clean_end(&server);
}

START_TEST(redis_answers_through_ten_attaches)
{
	check_server(server_start_redis);
}
END_TEST

START_TEST(nginx_answers_through_ten_attaches)
{
	check_server(server_start_nginx);
}
END_TEST

START_TEST(postgres_backend_answers_through_ten_attaches)
{
	check_server(server_start_postgres);
}
END_TEST

START_TEST(mariadb_answers_through_ten_attaches)
{
	check_server(server_start_mariadb);
}
END_TEST

START_TEST(python_computes_right_through_ten_attaches)
{
	check_server(server_start_python);
}
END_TEST

START_TEST(node_answers_through_ten_attaches)
{
	check_server(server_start_node);
}
END_TEST

Suite *attach_servers_suite(void)
{
	Suite *suite = suite_create("attach_servers");
	TCase *tcase = tcase_create("servers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 240);
	tcase_add_test(tcase, redis_answers_through_ten_attaches);
	tcase_add_test(tcase, nginx_answers_through_ten_attaches);
	tcase_add_test(tcase, postgres_backend_answers_through_ten_attaches);
	tcase_add_test(tcase, mariadb_answers_through_ten_attaches);
	tcase_add_test(tcase, python_computes_right_through_ten_attaches);
	tcase_add_test(tcase, node_answers_through_ten_attaches);
	suite_add_tcase(suite, tcase);
	return suite;
}
