// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Stacks as they are recorded in real programs, against libunwind on the same
 * state: none may differ.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "resolver/cleanup.h"
#include "tests/e2e.h"
#include "tests/server.h"

/* All programs together. */
#define COMPARED_MIN 10000
#define DISTINCT_MIN 1000

/* A loaded machine gets more time, up to three runs of these lengths. */
static const unsigned int seconds[] = {3, 10, 40};
#define RUNS (sizeof(seconds) / sizeof(seconds[0]))

static struct folder folder;
static struct server server;
static struct child target, extra;
static struct run run;

struct counts {
	uint64_t compared, distinct;
};

static void setup(void)
{
	folder_create(&folder);
	runs_come_first();
}

static void teardown(void)
{
	run_deinit(&run);
	child_end(&extra);
	child_end(&target);
	server_end(&server);
	folder_remove(&folder);
}

/* ---- one run */

/* What the run says at its end; a report of all sites takes much longer to read. */
static struct counts finished_counts(void)
{
	static const char format[] =
		"selfcheck: %lu stacks compared with libunwind, %lu distinct, %lu different";
	unsigned long compared, distinct, different;
	const char *line;
	struct counts counts;

	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	line = strstr(run.err, "selfcheck: ");
	ck_assert_ptr_nonnull(line);
	ck_assert_int_eq(sscanf(line, format, &compared, &distinct, &different), 3);
	ck_assert_uint_eq(different, 0);
	run_deinit(&run);
	counts.compared = compared;
	counts.distinct = distinct;
	return counts;
}

static struct counts check_once(pid_t pid, unsigned int run_seconds)
{
	static unsigned int number;

	run_program(&run, &folder, "-p %d --exact --selfcheck -d %u -o %s", pid, run_seconds,
		    folder_file(&folder, "check-%u.hap", number++));
	return finished_counts();
}

/* Runs until @wanted are compared in one of them; prints and adds what the last one gave. */
static void check(const char *name, pid_t pid, uint64_t wanted, struct counts *sum)
{
	struct counts counts = {0};

	for (size_t i = 0; i < RUNS && counts.compared < wanted; i++)
		counts = check_once(pid, seconds[i]);
	fprintf(stderr, "selfcheck: %s: %lu stacks compared, %lu distinct\n", name,
		(unsigned long)counts.compared, (unsigned long)counts.distinct);
	sum->compared += counts.compared;
	sum->distinct += counts.distinct;
}

/* ---- programs */

/* Commands that take other ways through redis than the benchmark's. */
static const char redis_commands[] =
	"DEL l z h s x st\n"
	"RPUSH l 3 1 2 30 20\n"
	"SORT l LIMIT 0 3 DESC\n"
	"SORT l BY w_* GET # STORE sorted\n"
	"ZADD z 1 a 2 b 3 c\n"
	"ZRANGE z 0 -1 WITHSCORES\n"
	"ZUNIONSTORE zz 2 z z WEIGHTS 2 3\n"
	"ZRANGEBYLEX z - +\n"
	"HSET h a 1 b 2 c 3\n"
	"HGETALL h\n"
	"HSCAN h 0\n"
	"SADD s a b c\n"
	"SINTERSTORE ss s s\n"
	"SPOP s\n"
	"PFADD p a b c\n"
	"PFCOUNT p\n"
	"GEOADD g 13.361389 38.115556 Palermo\n"
	"GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC\n"
	"XADD st * a 1\n"
	"XRANGE st - +\n"
	"XGROUP CREATE st g1 $\n"
	"BITFIELD bf SET u8 0 255 GET u4 0\n"
	"SETRANGE sr 1000 x\n"
	"APPEND sr yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\n"
	"DUMP h\n"
	"OBJECT ENCODING l\n"
	"MEMORY USAGE l\n"
	"MEMORY STATS\n"
	"INFO\n"
	"CLIENT LIST\n"
	"CONFIG GET *\n"
	"COMMAND DOCS get\n"
	"SLOWLOG GET\n"
	"KEYS *\n"
	"SCAN 0 COUNT 100\n"
	"MULTI\n"
	"SET m 1\n"
	"INCR m\n"
	"LPUSH l 9\n"
	"EXEC\n"
	"EVAL \"return redis.call('set', KEYS[1], ARGV[1])\" 1 k v\n"
	"EVAL \"local t = {} for i = 1, 50 do t[i] = tostring(i) .. 'x' end return t\" 0\n"
	"EVAL \"return cjson.encode(cjson.decode('{\\\"a\\\":[1,2,{\\\"b\\\":null}]}'))\" 0\n"
	"EVAL \"return cmsgpack.pack({1, 'a', {b = 2}})\" 0\n"
	"EVAL \"return redis.pcall('hgetall', 'h')\" 0\n"
	"EVAL \"return string.rep('a', 1000):gsub('a', 'bb')\" 0\n"
	"EVAL \"table.sort({3, 1, 2}); return struct.pack('>I', 7)\" 0\n"
	"EVAL \"return error('x')\" 0\n"
	"EVAL \"syntax error\" 0\n"
	"SCRIPT LOAD \"return 1\"\n"
	"PUBLISH channel x\n";

static void extra_start(const char *script)
{
	const char *const argv[] = {"sh", "-c", script, NULL};

	child_start(&extra, &folder, NULL, argv);
}

static void check_redis(struct counts *sum)
{
	char script[200];

	server_start_redis(&server, &folder);
	folder_write(&folder, "commands", redis_commands);
	snprintf(script, sizeof(script),
		 "while :; do redis-cli -h 127.0.0.1 -p %d <commands >/dev/null 2>&1; done",
		 server.port);
	extra_start(script);
	check("redis-server", server.target, 6000, sum);
	child_end(&extra);
	server_expect_alive(&server);
	server_end(&server);
}

static void check_target(const char *command, uint64_t wanted, struct counts *sum)
{
	child_start_target(&target, &folder, "%s", command);
	check(command, target.pid, wanted, sum);
	child_end(&target);
}

/* The chain works when told to, and then checks itself. */
static void check_leak_chain(struct counts *sum)
{
	const char *recording = folder_file(&folder, "chain.hap");
	struct counts counts;

	child_start_target(&target, &folder, "leak_chain -t 4 -r 3000");
	run_start(&run, &folder, "-p %d --exact --selfcheck -o %s", target.pid, recording);
	run_wait_attached(&run, target.pid);
	child_expect(&target, "go", "done");
	ck_assert_int_eq(kill(run.child.pid, SIGINT), 0);
	run_finish(&run, 120);
	counts = finished_counts();
	child_expect(&target, "check", "ok");
	child_end(&target);
	CLEANUP(json_freep) struct json *report = run_report_json(&folder, recording);
	ck_assert_uint_eq(json_count(report, "selfcheck.compared"), counts.compared);
	ck_assert_uint_eq(json_count(report, "selfcheck.distinct"), counts.distinct);
	ck_assert_uint_eq(json_count(report, "selfcheck.different"), 0);
	ck_assert_uint_ge(counts.distinct, 10);
	sum->compared += counts.compared;
	sum->distinct += counts.distinct;
}

/* Recursion in C, callbacks, and everything that is built in. */
static const char python_script[] =
	"import collections, copy, csv, decimal, functools, io, itertools, json, pickle\n"
	"import random, re\n"
	"print('ready', flush=True)\n"
	"def nested(n):\n"
	"    v = [1, 'x' * n]\n"
	"    for i in range(n):\n"
	"        v = [v, i] if i % 3 else {'k': v, 'n': i}\n"
	"    return v\n"
	"class Point:\n"
	"    def __init__(self, x): self.x = x\n"
	"    def __lt__(self, other): return str(self.x) < str(other.x)\n"
	"    def __repr__(self): return 'P(%s)' % [self.x]\n"
	"    def __eq__(self, other): return [self.x] == [other.x]\n"
	"    def __hash__(self): return hash((self.x, 'p'))\n"
	"    def __getattr__(self, name): return [name] * 3\n"
	"    def __call__(self, x): return sorted([x, str(x)], key=repr)\n"
	"i = 0\n"
	"while True:\n"
	"    i += 1\n"
	"    n = i % 60\n"
	"    v = nested(n)\n"
	"    json.loads(json.dumps(v))\n"
	"    json.dumps(v, indent=1)\n"
	"    json.loads('[' * (1 + i % 400) + ']' * (1 + i % 400))\n"
	"    pickle.loads(pickle.dumps(v))\n"
	"    copy.deepcopy(v)\n"
	"    repr(v)\n"
	"    sorted([Point(random.random()) for _ in range(8)])\n"
	"    re.sub(r'(\\w+)-(\\d+)', lambda m: m.group(1) * 2, 'abc-12 def-34' * 3)\n"
	"    re.compile('(a|b)*c{%d}[x-z]' % n)\n"
	"    functools.reduce(lambda a, b: a + [b], range(5), [])\n"
	"    dict(zip('abc', itertools.chain([1], [2, 3])))\n"
	"    collections.Counter('hello').most_common(2)\n"
	"    compile('def f(a, b=%d):\\n  return [a for a in b if a]\\n' % n, 'x', 'exec')\n"
	"    list(csv.reader(io.StringIO('a,b\\nc,d')))\n"
	"    str(decimal.Decimal(i) / 7)\n"
	"    [{Point(1): 1}, Point(1).zz, Point(1)(n), *map(Point(2), range(3))]\n"
	"    try: int('x' * 3)\n"
	"    except ValueError as e: str(e)\n";

static void check_python(struct counts *sum)
{
	const char *const argv[] = {"env", "PYTHONMALLOC=malloc", "/usr/bin/python3", "deep.py",
				    NULL};

	folder_write(&folder, "deep.py", python_script);
	child_start(&target, &folder, NULL, argv);
	ck_assert_str_eq(child_line(&target), "ready");
	check("python3", target.pid, 800, sum);
	child_end(&target);
}

/* One at a time, since all of them want a processor for themselves. */
static const char *const shapes[] = {
	"stacks -a mixed",    "stacks -a alloca",  "stacks -a aligned",
	"stacks -a noreturn", "stacks -a signals",
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

START_TEST(no_stack_in_ten_thousand_differs_from_libunwinds)
{
	struct counts sum = {0};

	check_redis(&sum);
	check_target("alloc_bench -t 2 -s 2000", 3000, &sum);
	for (size_t i = 0; i < SHAPES; i++)
		check_target(shapes[i], 400, &sum);
	check_leak_chain(&sum);
	check_python(&sum);
	ck_assert_uint_ge(sum.compared, COMPARED_MIN);
	ck_assert_uint_ge(sum.distinct, DISTINCT_MIN);
}
END_TEST

START_TEST(no_stack_with_huge_frames_or_handlers_on_their_own_stack_differs)
{
	struct counts sum = {0};

	check_target("stacks -a huge", 100, &sum);
	check_target("stacks -a signals_alternate", 100, &sum);
	ck_assert_uint_ge(sum.compared, 200);
}
END_TEST

static const struct {
	const char *name;
	void (*start)(struct server *, const struct folder *);
} servers[] = {
	{"nginx", server_start_nginx},
	{"postgres", server_start_postgres},
	{"mariadbd", server_start_mariadb},
	{"node", server_start_node},
};
#define SERVERS (sizeof(servers) / sizeof(servers[0]))

START_TEST(no_stack_of_a_server_differs_from_libunwinds)
{
	struct counts sum = {0};

	servers[_i].start(&server, &folder);
	check(servers[_i].name, server.target, 300, &sum);
	ck_assert_uint_ge(sum.compared, 100);
	server_expect_alive(&server);
}
END_TEST

Suite *attach_selfcheck_suite(void)
{
	Suite *suite = suite_create("attach_selfcheck");
	TCase *tcase = tcase_create("programs");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 600);
	tcase_add_test(tcase, no_stack_in_ten_thousand_differs_from_libunwinds);
	tcase_add_test(tcase, no_stack_with_huge_frames_or_handlers_on_their_own_stack_differs);
	tcase_add_loop_test(tcase, no_stack_of_a_server_differs_from_libunwinds, 0, SERVERS);
	suite_add_tcase(suite, tcase);
	return suite;
}
