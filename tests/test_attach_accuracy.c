/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Debian's redis-server is filled with the same known set twice: once every
 * allocation is recorded, once samples are. Site by site the samples' figures
 * agree with the exact ones within their intervals, and both with what redis
 * says of its memory.
 */
#include "resolver/cleanup.h"
#include "tests/server.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Texts that fill a size class of jemalloc's to the last byte with their header
 * and NUL: redis, which counts usable bytes, and we, who count the requested
 * ones, mean the same there. Each kind has stacks of its own.
 */
#define FILL                                                                                       \
	"for i = 1, 20000 do redis.call('SET', 'text:' .. i, string.rep('x', 4090)) end\n"         \
	"for i = 1, 200 do for j = 1, 200 do\n"                                                    \
	"  redis.call('HSET', 'hash:' .. i, 'field:' .. j, string.rep('y', 506)) end end\n"        \
	"for i = 1, 100 do for j = 1, 400 do\n"                                                    \
	"  redis.call('RPUSH', 'list:' .. i, string.rep('z', 200)) end end\n"                      \
	"for i = 1, 100 do for j = 1, 200 do\n"                                                    \
	"  redis.call('SADD', 'set:' .. i, string.format('%06d', j) .. string.rep('s', 246)) end " \
	"end\n"                                                                                    \
	"for i = 1, 50 do for j = 1, 200 do\n"                                                     \
	"  redis.call('ZADD', 'sorted:' .. i, j, string.format('%06d', j) .. string.rep('s', "     \
	"246)) end end\n"                                                                          \
	"return redis.call('DBSIZE')\n"
#define KEYS	   20450
#define TEXT_BYTES (20000 * 4096.0)

/* redis counts what jemalloc rounds up to: a quarter more at worst, for few of the bytes. */
#define USABLE_MAX     1.03

#define INTERVAL_BYTES 65536
#define SAMPLES_MIN    30 /* below that an interval is Poisson's, not symmetrical */

/*
 * Twice the 95 % interval is 3.92 standard deviations: one site in ten thousand
 * lies beyond it.
 */
#define SURE_WIDTHS 2.0

static struct folder folder;
static struct server server;
static struct run run;

static void setup(void)
{
	folder_create(&folder);
	server_start_idle_redis(&server, &folder);
}

static void teardown(void)
{
	run_deinit(&run);
	server_end(&server);
	folder_remove(&folder);
}

static char *redis_ask(const char *command)
{
	return command_run(&folder, NULL, 60, "redis-cli -h 127.0.0.1 -p %d %s", server.port,
			   command);
}

static double redis_used_memory(void)
{
	CLEANUP(freep) char *info = redis_ask("info memory");
	const char *line = strstr(info, "used_memory:");

	ck_assert_ptr_nonnull(line);
	return strtod(line + strlen("used_memory:"), NULL);
}

/* Fill an empty server while it is recorded; *ret_grown: by how much it says it has grown. */
static struct json *record_filling(const char *mode, double *ret_grown)
{
	const char *file = folder_file(&folder, "%.8s.hap", mode + 2);
	double before;
	char fill[160];

	free(redis_ask("flushall sync"));
	free(redis_ask("memory purge"));
	folder_write(&folder, "fill.lua", FILL);
	snprintf(fill, sizeof(fill), "--eval %s", folder_file(&folder, "fill.lua"));
	run_start(&run, &folder, "-p %d %s -o %s", server.target, mode, file);
	run_wait_attached(&run, server.target);
	before = redis_used_memory();
	CLEANUP(freep) char *keys = redis_ask(fill);
	ck_assert_int_eq(atoi(keys), KEYS);
	*ret_grown = redis_used_memory() - before;

	struct json *report = run_interrupt_json(&run, &folder, file);
	run_deinit(&run);
	return report;
}

static bool is_same_stack(const struct json *a, const struct json *b)
{
	const struct json *left = json_get(a, "frames", JSON_ARRAY);
	const struct json *right = json_get(b, "frames", JSON_ARRAY);

	if (left->count != right->count)
		return false;
	for (size_t i = 0; i < left->count; i++) {
		if (json_count(&left->item[i], "offset") != json_count(&right->item[i], "offset") ||
		    strcmp(json_text(&left->item[i], "module"),
			   json_text(&right->item[i], "module")) != 0)
			return false;
	}
	return true;
}

static const struct json *site_find(const struct json *sites, const struct json *like)
{
	for (size_t i = 0; i < sites->count; i++) {
		if (is_same_stack(&sites->item[i], like))
			return &sites->item[i];
	}
	return NULL;
}

/* How far @truth lies from the estimate, in half widths of its 95 % interval on that side. */
static double widths_off(const struct json *estimate, double truth)
{
	double value = json_number(estimate, "inuse_bytes");
	double end = json_number(estimate, truth < value ? "inuse_bytes_low" : "inuse_bytes_high");

	return truth == value ? 0 : fabs(truth - value) / fabs(end - value);
}

START_TEST(samples_agree_with_exact_figures_and_with_redis)
{
	double exact_grown, sampled_grown, exact_bytes;
	unsigned int compared = 0, within = 0;
	CLEANUP(json_freep) struct json *exact = record_filling("--exact", &exact_grown);
	CLEANUP(json_freep) struct json *sampled = record_filling("--interval 64K", &sampled_grown);
	const struct json *exact_sites = json_get(exact, "sites", JSON_ARRAY);
	const struct json *sampled_sites = json_get(sampled, "sites", JSON_ARRAY);
	const struct json *totals = json_get(sampled, "totals", JSON_OBJECT);

	exact_bytes = json_number(exact, "totals.inuse_bytes");
	ck_assert_msg(exact_bytes > TEXT_BYTES, "only %g bytes in use", exact_bytes);
	ck_assert_msg(exact_grown >= exact_bytes && exact_grown <= exact_bytes * USABLE_MAX,
		      "%g bytes in use, and redis says %g", exact_bytes, exact_grown);
	ck_assert_msg(widths_off(totals, exact_bytes) < SURE_WIDTHS,
		      "samples say %g bytes in use, and exact %g",
		      json_number(totals, "inuse_bytes"), exact_bytes);
	ck_assert_msg(sampled_grown >= json_number(totals, "inuse_bytes_low") &&
			      sampled_grown <= json_number(totals, "inuse_bytes_high") * USABLE_MAX,
		      "samples say %g to %g bytes, and redis %g",
		      json_number(totals, "inuse_bytes_low"),
		      json_number(totals, "inuse_bytes_high"), sampled_grown);

	for (size_t i = 0; i < exact_sites->count; i++) {
		const struct json *site = &exact_sites->item[i], *estimate;
		double truth = json_number(site, "inuse_bytes"), off;

		if (truth < (double)INTERVAL_BYTES * SAMPLES_MIN)
			continue;
		estimate = site_find(sampled_sites, site);
		ck_assert_msg(estimate != NULL, "no sample of a site with %g bytes", truth);
		off = widths_off(estimate, truth);
		ck_assert_msg(off < SURE_WIDTHS, "samples say %g bytes of %g, %.1f intervals off",
			      json_number(estimate, "inuse_bytes"), truth, off);
		compared++;
		within += off <= 1;
	}
	ck_assert_uint_ge(compared, 4);
	/* 95 % of them, were there many. */
	ck_assert_msg(within * 2 > compared, "%u of %u sites within their intervals", within,
		      compared);
	server_expect_clean_end(&server);
}
END_TEST

Suite *attach_accuracy_suite(void)
{
	Suite *suite = suite_create("attach_accuracy");
	TCase *tcase = tcase_create("accuracy");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, samples_agree_with_exact_figures_and_with_redis);
	suite_add_tcase(suite, tcase);
	return suite;
}
