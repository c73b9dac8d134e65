// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/options.h"

#include <string.h>

#include "tests/tests.h"

#define ARGUMENTS_MAX 16

/* Parse "heapattach @line", split at spaces. */
static struct error *parse(const char *line, struct options *ret)
{
	static char words[256];
	char *argv[ARGUMENTS_MAX] = {(char *)"heapattach"}, *save = NULL;
	int argc = 1;

	snprintf(words, sizeof(words), "%s", line);
	for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return options_parse(argc, argv, ret);
}

static struct options parsed(const char *line)
{
	struct options options = {0};

	assert_ok(parse(line, &options));
	return options;
}

/* The line must be refused with this message, and a hint. */
static void refused(const char *line, const char *message)
{
	struct options options = {.pid = -7};
	struct error *err = parse(line, &options);

	ck_assert_msg(err != NULL, "'%s' was accepted", line);
	ck_assert_int_eq(error_code(err), ERROR_USAGE);
	ck_assert_str_eq(error_message(err), message);
	ck_assert_ptr_nonnull(error_hint_text(err));
	ck_assert_int_eq(options.pid, -7);
	error_free(err);
}

START_TEST(attach_has_these_defaults)
{
	struct options options = parsed("-p 4242");

	ck_assert_int_eq(options.command, OPTIONS_ATTACH);
	ck_assert_int_eq(options.pid, 4242);
	ck_assert_uint_eq(options.duration_ms, 0);
	ck_assert_ptr_null(options.output);
	ck_assert_int_eq(options.loader, OPTIONS_LOADER_ANY);
	ck_assert(!options.quiet && !options.exact && !options.selfcheck);
	ck_assert_uint_eq(options.interval, 0);
	ck_assert_uint_eq(options.overhead_permille, 20);
}
END_TEST

START_TEST(attach_takes_all_its_options)
{
	struct options options =
		parsed("-q -p 7 -d 60 -o out.hap --exact --loader map --selfcheck");

	ck_assert_int_eq(options.pid, 7);
	ck_assert_uint_eq(options.duration_ms, 60000);
	ck_assert_str_eq(options.output, "out.hap");
	ck_assert_int_eq(options.loader, OPTIONS_LOADER_MAP);
	ck_assert(options.quiet && options.exact && options.selfcheck);
	ck_assert_int_eq(parsed("-p 7 --loader dlopen").loader, OPTIONS_LOADER_DLOPEN);
}
END_TEST

START_TEST(interval_takes_suffixes)
{
	ck_assert_uint_eq(parsed("-p 1 --interval 1000").interval, 1000);
	ck_assert_uint_eq(parsed("-p 1 --interval=512K").interval, 512 << 10);
	ck_assert_uint_eq(parsed("-p 1 --interval 4M").interval, 4 << 20);
	ck_assert_uint_eq(parsed("-p 1 --interval 256G").interval, 256ull << 30);
	ck_assert_uint_eq(parsed("-p 1 --interval 4M").overhead_permille, 0);
	ck_assert(parsed("-p 1 --interval 1").exact);
	ck_assert(!parsed("-p 1 --interval 2").exact);
	ck_assert_uint_eq(parsed("-p 1 --exact").overhead_permille, 0);
}
END_TEST

START_TEST(overhead_takes_a_decimal)
{
	ck_assert_uint_eq(parsed("-p 1 --overhead 5").overhead_permille, 50);
	ck_assert_uint_eq(parsed("-p 1 --overhead 0.5").overhead_permille, 5);
	ck_assert_uint_eq(parsed("-p 1 --overhead 12.34").overhead_permille, 123);
	ck_assert_uint_eq(parsed("-p 1 --overhead 100").overhead_permille, 1000);
}
END_TEST

START_TEST(sampling_is_said_in_one_way)
{
	refused("-p 1 --interval 0", "--interval needs bytes between samples, like 512K, not '0'");
	refused("-p 1 --interval K", "--interval needs bytes between samples, like 512K, not 'K'");
	refused("-p 1 --interval 257G",
		"--interval needs bytes between samples, like 512K, not '257G'");
	refused("-p 1 --interval 1KB",
		"--interval needs bytes between samples, like 512K, not '1KB'");
	refused("-p 1 --overhead 0", "--overhead needs a percentage from 0.1 to 100, not '0'");
	refused("-p 1 --overhead 0.01",
		"--overhead needs a percentage from 0.1 to 100, not '0.01'");
	refused("-p 1 --overhead 100.1",
		"--overhead needs a percentage from 0.1 to 100, not '100.1'");
	refused("-p 1 --overhead x", "--overhead needs a percentage from 0.1 to 100, not 'x'");
	refused("-p 1 --exact --interval 4K", "--exact and --interval exclude each other");
	refused("-p 1 --overhead 2 --interval 4K", "--interval and --overhead exclude each other");
	refused("-p 1 --overhead 2 --exact", "--exact and --overhead exclude each other");
	refused("report x --interval 4K", "--interval is no option of heapattach report");
}
END_TEST

START_TEST(memory_has_a_bound)
{
	ck_assert_uint_eq(parsed("-p 1").max_memory, 0);
	ck_assert_uint_eq(parsed("-p 1 --max-memory 256M").max_memory, 256u << 20);
	ck_assert_uint_eq(parsed("-p 1 --exact --max-memory=67108864").max_memory, 64u << 20);
	refused("-p 1 --max-memory 63M",
		"--max-memory needs bytes from 64M on, like 256M, not '63M'");
	refused("-p 1 --max-memory 99999G",
		"--max-memory needs bytes from 64M on, like 256M, not '99999G'");
	refused("check -p 1 --max-memory 1G", "--max-memory is no option of heapattach check");
}
END_TEST

START_TEST(values_may_be_joined)
{
	ck_assert_int_eq(parsed("-p7").pid, 7);
	ck_assert_int_eq(parsed("--pid=7").pid, 7);
	ck_assert_int_eq(parsed("--pid 7").pid, 7);
	ck_assert(parsed("-qp7").quiet);
	ck_assert_str_eq(parsed("-p7 -oa=b").output, "a=b");
}
END_TEST

START_TEST(duration_takes_fractions)
{
	ck_assert_uint_eq(parsed("-p 1 -d 0.25").duration_ms, 250);
	ck_assert_uint_eq(parsed("-p 1 -d .5").duration_ms, 500);
	ck_assert_uint_eq(parsed("-p 1 -d 3.").duration_ms, 3000);
	ck_assert_uint_eq(parsed("-p 1 -d 1.0009").duration_ms, 1000);
	ck_assert_uint_eq(parsed("-p 1 -d 315360000").duration_ms, 315360000000);
}
END_TEST

START_TEST(report_has_these_defaults)
{
	struct options options = parsed("report x.hap");

	ck_assert_int_eq(options.command, OPTIONS_REPORT);
	ck_assert_str_eq(options.recording, "x.hap");
	ck_assert_int_eq(options.format, REPORT_TEXT);
	ck_assert_int_eq(options.sort, REPORT_SORT_INUSE);
	ck_assert_uint_eq(options.top, 0);
	ck_assert_ptr_null(options.output);
}
END_TEST

START_TEST(report_takes_all_its_options)
{
	struct options options =
		parsed("report --format pprof x.hap --sort count --top 25 -o heap.pb.gz");

	ck_assert_int_eq(options.format, REPORT_PPROF);
	ck_assert_int_eq(options.sort, REPORT_SORT_COUNT);
	ck_assert_uint_eq(options.top, 25);
	ck_assert_str_eq(options.output, "heap.pb.gz");
	ck_assert_int_eq(parsed("report x --format json").format, REPORT_JSON);
	ck_assert_int_eq(parsed("report x --format folded").format, REPORT_FOLDED);
	ck_assert_int_eq(parsed("report x --format text").format, REPORT_TEXT);
	ck_assert_int_eq(parsed("report x --sort alloc").sort, REPORT_SORT_ALLOC);
	ck_assert_str_eq(parsed("report -- -odd.hap").recording, "-odd.hap");
}
END_TEST

START_TEST(check_and_stop_take_a_process)
{
	ck_assert_int_eq(parsed("check -p 5").command, OPTIONS_CHECK);
	ck_assert_int_eq(parsed("check -p 5").pid, 5);
	ck_assert_int_eq(parsed("check --loader map -p 5").loader, OPTIONS_LOADER_MAP);
	ck_assert_int_eq(parsed("stop --pid=7").command, OPTIONS_STOP);
	ck_assert_int_eq(parsed("stop --pid=7").pid, 7);
}
END_TEST

START_TEST(help_and_version_need_nothing_else)
{
	ck_assert_int_eq(parsed("--help").command, OPTIONS_HELP);
	ck_assert_int_eq(parsed("-h").command, OPTIONS_HELP);
	ck_assert_int_eq(parsed("report --help").command, OPTIONS_HELP);
	ck_assert_int_eq(parsed("--version").command, OPTIONS_VERSION);
	ck_assert_int_eq(parsed("-V").command, OPTIONS_VERSION);
}
END_TEST

START_TEST(help_fits_a_screen)
{
	const char *line = options_help();
	size_t lines = 0;

	for (const char *end; *line; line = end + 1, lines++) {
		end = strchr(line, '\n');
		ck_assert_ptr_nonnull(end);
		ck_assert_int_le(end - line, 79);
	}
	ck_assert_uint_le(lines, 24);
}
END_TEST

START_TEST(refuses_missing_pid)
{
	refused("", "-p PID is missing: which process?");
	refused("-d 5", "-p PID is missing: which process?");
	refused("-p", "--pid needs a process ID");
}
END_TEST

START_TEST(refuses_bad_pids)
{
	refused("-p redis", "--pid needs a process ID, not 'redis'");
	refused("-p 0", "--pid needs a process ID, not '0'");
	refused("-p -5", "--pid needs a process ID, not '-5'");
	refused("-p 5x", "--pid needs a process ID, not '5x'");
	refused("-p 99999999999999999999", "--pid needs a process ID, not '99999999999999999999'");
}
END_TEST

START_TEST(refuses_bad_durations)
{
	refused("-p 1 -d x", "--duration needs a number of seconds, not 'x'");
	refused("-p 1 -d 0", "--duration needs a number of seconds, not '0'");
	refused("-p 1 -d .", "--duration needs a number of seconds, not '.'");
	refused("-p 1 -d 1.2.3", "--duration needs a number of seconds, not '1.2.3'");
	refused("-p 1 -d inf", "--duration needs a number of seconds, not 'inf'");
	refused("-p 1 -d -1", "--duration needs a number of seconds, not '-1'");
	refused("-p 1 -d 315360001", "--duration needs a number of seconds, not '315360001'");
}
END_TEST

START_TEST(refuses_bad_words)
{
	refused("-p 1 --loader gdb", "--loader needs dlopen or map, not 'gdb'");
	refused("report x --format html", "--format needs text, json, folded or pprof, not 'html'");
	refused("report x --sort age", "--sort needs inuse, alloc or count, not 'age'");
	refused("report x --top 0", "--top needs a number of sites, not '0'");
	refused("report x --top all", "--top needs a number of sites, not 'all'");
}
END_TEST

START_TEST(refuses_what_it_does_not_know)
{
	refused("--frobnicate", "there is no option --frobnicate");
	refused("-p 1 -x", "there is no option -x");
	refused("4242", "'4242' is neither an option nor a command");
	refused("-p 1 --quiet=yes", "--quiet takes no value");
	refused("-p 1 -p 2", "--pid is given twice");
	refused("report", "report needs the name of a recording");
	refused("report a b", "report takes one recording, and 'b' is a second");
}
END_TEST

START_TEST(refuses_options_of_the_other_command)
{
	refused("report x -p 5", "--pid is no option of heapattach report");
	refused("check -p 5 -d 3", "--duration is no option of heapattach check");
	refused("stop", "-p PID is missing: which process?");
	refused("check -p 5 x", "check takes no argument like 'x'");
	refused("-p 5 --top 3", "--top is no option of an attach");
}
END_TEST

Suite *options_suite(void)
{
	Suite *suite = suite_create("options");
	TCase *tcase = tcase_create("options");

	tcase_add_test(tcase, attach_has_these_defaults);
	tcase_add_test(tcase, attach_takes_all_its_options);
	tcase_add_test(tcase, values_may_be_joined);
	tcase_add_test(tcase, interval_takes_suffixes);
	tcase_add_test(tcase, overhead_takes_a_decimal);
	tcase_add_test(tcase, sampling_is_said_in_one_way);
	tcase_add_test(tcase, memory_has_a_bound);
	tcase_add_test(tcase, duration_takes_fractions);
	tcase_add_test(tcase, report_has_these_defaults);
	tcase_add_test(tcase, report_takes_all_its_options);
	tcase_add_test(tcase, check_and_stop_take_a_process);
	tcase_add_test(tcase, help_and_version_need_nothing_else);
	tcase_add_test(tcase, help_fits_a_screen);
	tcase_add_test(tcase, refuses_missing_pid);
	tcase_add_test(tcase, refuses_bad_pids);
	tcase_add_test(tcase, refuses_bad_durations);
	tcase_add_test(tcase, refuses_bad_words);
	tcase_add_test(tcase, refuses_what_it_does_not_know);
	tcase_add_test(tcase, refuses_options_of_the_other_command);
	suite_add_tcase(suite, tcase);
	return suite;
}
