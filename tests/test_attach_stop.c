/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Before and after: what `check` says without touching anything, what `stop`
 * and the next attach make of what a killed program or another version has left,
 * and children that were forked while their parent was recorded.
 */
#include "payload/protocol.h"
#include "resolver/cleanup.h"
#include "tests/e2e.h"
#include "tests/procstate.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static struct folder folder;
static struct child target;
static struct run run, recorder;
static struct procstate before, after;

static void setup(void)
{
	folder_create(&folder);
}

static void teardown(void)
{
	run_deinit(&run);
	run_deinit(&recorder);
	child_end(&target);
	procstate_deinit(&before);
	procstate_deinit(&after);
	folder_remove(&folder);
}

static void record_start(const char *name)
{
	run_start(&recorder, &folder, "-p %d --exact -q -o %s", target.pid,
		  folder_file(&folder, "%s", name));
	run_wait_attached(&recorder, target.pid);
}

/*
 * The same where a killed program has left its mappings, which look like ours:
 * here the program says when it is attached.
 */
static void record_start_again(const char *name)
{
	uint64_t end = now_ms() + 60000;

	run_start(&recorder, &folder, "-p %d --exact -o %s", target.pid,
		  folder_file(&folder, "%s", name));
	for (;;) {
		CLEANUP(freep) char *said = tests_read_file(recorder.err_path);

		if (said && strstr(said, "attached to"))
			return;
		ck_assert_msg(now_ms() < end, "not attached: %s", said ? said : "");
		wait_ms(5);
	}
}

static void record_end(void)
{
	ck_assert_int_eq(kill(recorder.child.pid, SIGINT), 0);
	run_finish(&recorder, 120);
	ck_assert_msg(recorder.status == 0, "ended with %d: %s", recorder.status, recorder.err);
}

/* As by the kernel's OOM killer. */
static void record_kill(void)
{
	ck_assert_int_eq(kill(recorder.child.pid, SIGKILL), 0);
	run_finish(&recorder, 20);
	wait_ms(100);
}

static void stop(pid_t pid, const char *answer)
{
	run_program(&run, &folder, "stop -p %d", pid);
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	ck_assert_msg(strstr(run.out, answer) != NULL, "%s", run.out);
	run_deinit(&run);
}

/* ---- check */

START_TEST(check_tells_the_plan_and_changes_nothing)
{
	child_start_target(&target, &folder, "storm -t 2 -w");
	procstate_read(target.pid, &before);
	run_program(&run, &folder, "check -p %d", target.pid);
	procstate_read(target.pid, &after);
	ck_assert_int_eq(run.status, 0);
	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(strncmp(run.out, "YES: heapattach can attach to storm", 35), 0);
	ck_assert_ptr_nonnull(strstr(run.out, "Threads     3: "));
	ck_assert_ptr_nonnull(strstr(run.out, "malloc 3, free 3, calloc 3, realloc 3"));
	ck_assert_ptr_null(strstr(run.out, "Left over"));
	ck_assert_ptr_nonnull(strstr(run.out, "Way in      dlopen"));
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	ck_assert_uint_eq(procstate_mapped(target.pid, "heapattach"), 0);
}
END_TEST

START_TEST(check_refuses_for_the_reason_of_an_attach)
{
	child_start_target(&target, &folder, "storm_static -t 1 -w");
	run_program(&run, &folder, "check -p %d", target.pid);
	ck_assert_int_eq(run.status, 1);
	ck_assert_int_eq(strncmp(run.out, "NO: ", 4), 0);
	ck_assert_ptr_nonnull(strstr(run.out, "statically linked"));
	ck_assert_ptr_nonnull(strstr(run.out, "Process     storm_static"));
}
END_TEST

/* ---- stop */

static void check_tells_of_leftovers(bool some)
{
	run_program(&run, &folder, "check -p %d", target.pid);
	ck_assert_int_eq(run.status, 0);
	ck_assert_int_eq(strstr(run.out, "Left over   3 mappings") != NULL, some);
	run_deinit(&run);
}

static void stop_cleans_up(const char *loader)
{
	child_start_target(&target, &folder, "storm -t 4 -w");
	procstate_read(target.pid, &before);
	run_start(&recorder, &folder, "-p %d --exact -q --loader %s -o %s", target.pid, loader,
		  folder_file(&folder, "killed.hap"));
	run_wait_attached(&recorder, target.pid);
	run_program(&run, &folder, "stop -p %d", target.pid);
	ck_assert_int_eq(run.status, 1);
	ck_assert_ptr_nonnull(strstr(run.err, "is being profiled by heapattach process"));
	run_deinit(&run);
	record_kill();
	ck_assert_uint_gt(procstate_mapped(target.pid, "memfd:heapattach ("), 0);
	child_expect(&target, "check", "ok");
	check_tells_of_leftovers(true);
	stop(target.pid, "12 slots put back, 3 mappings removed");
	procstate_expect_left(target.pid);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	child_expect(&target, "check", "ok");
	check_tells_of_leftovers(false);
	stop(target.pid, "nothing of heapattach");
	record_start("again.hap");
	record_end();
	child_expect_clean_end(&target);
}

START_TEST(stop_cleans_up_after_a_killed_program)
{
	stop_cleans_up("dlopen");
}
END_TEST

START_TEST(stop_cleans_up_after_a_killed_program_by_the_map_loader)
{
	stop_cleans_up("map");
}
END_TEST

START_TEST(stop_has_nothing_to_do_in_a_process_never_attached_to)
{
	child_start_target(&target, &folder, "storm -t 1 -w");
	procstate_read(target.pid, &before);
	stop(target.pid, "nothing of heapattach");
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
}
END_TEST

START_TEST(next_attach_takes_over_after_killed_programs)
{
	child_start_target(&target, &folder, "storm -t 4 -w");
	procstate_read(target.pid, &before);
	for (int i = 0; i < 5; i++) {
		record_start_again("killed.hap");
		record_kill();
		run_deinit(&recorder);
		unlink(folder_file(&folder, "killed.hap"));
		child_expect(&target, "check", "ok");
	}
	record_start_again("last.hap");
	record_end();
	procstate_expect_left(target.pid);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	child_expect_clean_end(&target);
}
END_TEST

/* ---- other versions */

/* Make the entry object in the target one of this version. */
static void entry_set_abi(uint32_t abi)
{
	char path[32];
	int fd;

	procstate_deinit(&after);
	procstate_read(target.pid, &after);
	snprintf(path, sizeof(path), "/proc/%d/mem", target.pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	for (size_t i = 0; i < after.mapping_count; i++) {
		const struct procstate_mapping *map = &after.mapping[i];

		if (strstr(map->path, "memfd:heapattach-entry") && map->protection[1] == 'w') {
			ck_assert_int_eq(
				pwrite(fd, &abi, sizeof(abi),
				       (off_t)(map->start + offsetof(struct ha_entry, abi))),
				sizeof(abi));
			close(fd);
			return;
		}
	}
	ck_abort_msg("there is no entry object");
}

START_TEST(stubs_of_another_version_do_not_matter)
{
	static const char *const loaders[] = {"dlopen", "map"};

	child_start_target(&target, &folder, "storm -t 4 -w");
	record_start("first.hap");
	record_end();
	run_deinit(&recorder);
	entry_set_abi(HA_ABI - 1);
	procstate_read(target.pid, &before);
	for (int turn = 0; turn < 2; turn++) {
		run_program(&run, &folder, "-p %d --exact -q -d 0.2 --loader %s -o %s", target.pid,
			    loaders[_i], folder_file(&folder, "second%d.hap", turn));
		ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
		run_deinit(&run);
		procstate_expect_left(target.pid);
		ck_assert_uint_eq(procstate_mapped(target.pid, "memfd:heapattach-entry"),
				  2 * HA_ENTRY_SIZE);
	}
	procstate_deinit(&after);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	child_expect_clean_end(&target);
}
END_TEST

START_TEST(hooks_of_another_version_are_left_to_it)
{
	static const char *const commands[] = {"-p %d -q -d 1 -o never.hap", "stop -p %d",
					       "check -p %d"};

	child_start_target(&target, &folder, "storm -t 4 -w");
	procstate_read(target.pid, &before);
	record_start("killed.hap");
	record_kill();
	entry_set_abi(HA_ABI - 1);
	for (int i = 0; i < 3; i++) {
		const char *said;

		run_program(&run, &folder, commands[i], target.pid);
		said = i < 2 ? run.err : run.out;
		ck_assert_int_eq(run.status, 1);
		ck_assert_msg(strstr(said, "has the hooks of another version of heapattach") !=
				      NULL,
			      "%s", said);
		run_deinit(&run);
		child_expect(&target, "check", "ok");
	}
	entry_set_abi(HA_ABI);
	stop(target.pid, "12 slots put back, 3 mappings removed");
	procstate_expect_left(target.pid);
	procstate_deinit(&after);
	procstate_read(target.pid, &after);
	procstate_expect_same(&before, &after, PROCSTATE_HEAP);
	child_expect_clean_end(&target);
}
END_TEST

/* ---- children */

static uint64_t kept_blocks(const struct json *report)
{
	const struct json *sites = json_get(report, "sites", JSON_ARRAY);
	uint64_t count = 0;

	for (size_t i = 0; i < sites->count; i++) {
		const struct json *frames = json_get(&sites->item[i], "frames", JSON_ARRAY);
		const struct json *function;

		function =
			frames->count ? json_get(&frames->item[0], "function", JSON_STRING) : NULL;
		if (function && !strcmp(function->string, "keep_block"))
			count += json_count(&sites->item[i], "inuse_count");
	}
	return count;
}

START_TEST(thousand_forks_leave_the_parents_figures_exact)
{
	child_start_target(&target, &folder, "forker -t 8");
	record_start("forks.hap");
	child_expect(&target, "churn 1000", "churned");
	record_end();
	CLEANUP(json_freep)
	struct json *report = run_report_json(&folder, folder_file(&folder, "forks.hap"));
	ck_assert_uint_eq(kept_blocks(report), 1000);
	child_expect(&target, "clean", "clean");
	child_expect(&target, "churn 100", "churned");
	child_expect_clean_end(&target);
}
END_TEST

START_TEST(living_children_are_clean_after_the_stop)
{
	pid_t child = 0;

	child_start_target(&target, &folder, "forker");
	record_start("forks.hap");
	ck_assert_int_eq(sscanf(child_ask(&target, "stay 6"), "staying %d", &child), 1);
	child_expect(&target, "check", "ok");
	child_expect(&target, "clean", "hooked");
	record_end();
	child_expect(&target, "clean", "clean");
	procstate_expect_left(child);
	child_expect_clean_end(&target);
}
END_TEST

START_TEST(forked_child_can_be_attached_to_while_its_parent_is)
{
	int child = 0;

	child_start_target(&target, &folder, "forker");
	record_start("parent.hap");
	ck_assert_int_eq(sscanf(child_ask(&target, "stay 1"), "staying %d", &child), 1);
	run_program(&run, &folder, "-p %d --exact -d 1 -q -o %s", child,
		    folder_file(&folder, "child.hap"));
	ck_assert_msg(run.status == 0, "ended with %d: %s", run.status, run.err);
	CLEANUP(json_freep)
	struct json *report = run_report_json(&folder, folder_file(&folder, "child.hap"));
	ck_assert_uint_gt(json_count(report, "totals.alloc_count"), 1000);
	child_expect(&target, "check", "ok");
	record_end();
	child_expect(&target, "clean", "clean");
	child_expect_clean_end(&target);
}
END_TEST

Suite *attach_stop_suite(void)
{
	Suite *suite = suite_create("attach_stop");
	TCase *check = tcase_create("check"), *stop_case = tcase_create("stop");
	TCase *forked = tcase_create("forked");

	tcase_add_checked_fixture(check, setup, teardown);
	tcase_set_timeout(check, 30);
	tcase_add_test(check, check_tells_the_plan_and_changes_nothing);
	tcase_add_test(check, check_refuses_for_the_reason_of_an_attach);
	suite_add_tcase(suite, check);

	tcase_add_checked_fixture(stop_case, setup, teardown);
	tcase_set_timeout(stop_case, 60);
	tcase_add_test(stop_case, stop_cleans_up_after_a_killed_program);
	tcase_add_test(stop_case, stop_cleans_up_after_a_killed_program_by_the_map_loader);
	tcase_add_test(stop_case, stop_has_nothing_to_do_in_a_process_never_attached_to);
	tcase_add_test(stop_case, next_attach_takes_over_after_killed_programs);
	tcase_add_loop_test(stop_case, stubs_of_another_version_do_not_matter, 0, 2);
	tcase_add_test(stop_case, hooks_of_another_version_are_left_to_it);
	suite_add_tcase(suite, stop_case);

	tcase_add_checked_fixture(forked, setup, teardown);
	tcase_set_timeout(forked, 120);
	tcase_add_test(forked, thousand_forks_leave_the_parents_figures_exact);
	tcase_add_test(forked, living_children_are_clean_after_the_stop);
	tcase_add_test(forked, forked_child_can_be_attached_to_while_its_parent_is);
	suite_add_tcase(suite, forked);
	return suite;
}
