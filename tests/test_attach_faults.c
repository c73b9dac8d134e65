/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Each step of an attach and a detach fails once, or is the last of the process
 * that makes it: libfault.so, preloaded into the program, counts the steps of
 * the program and its workers. All of them are tried, or each so many
 * (HEAPATTACH_TESTS_STRIDE). The target must be as it was.
 */
#include "resolver/cleanup.h"
#include "resolver/maps.h"
#include "tests/e2e.h"
#include "tests/procstate.h"

#include "tests/targets/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STRIDE_DEFAULT 11

static struct folder folder;
static struct child target;
static struct run run;
static struct procstate before, after;
static struct fault *fault;

static void fault_create(void)
{
	const char *path = folder_file(&folder, "fault");
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*fault)), 0);
	fault = mmap(NULL, sizeof(*fault), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(fault, MAP_FAILED);
	close(fd);
	setenv("HEAPATTACH_FAULT_FILE", path, 1);
}

static void setup(void)
{
	folder_create(&folder);
	fault_create();
	/* Slots that lazy binding has not filled would be bound by what stop does. */
	setenv("LD_BIND_NOW", "1", 1);
	/* Its only thread waits for commands. */
	child_start_target(&target, &folder, "storm -t 0");
	child_expect(&target, "check", "ok");
}

static void teardown(void)
{
	run_deinit(&run);
	child_end(&target);
	procstate_deinit(&before);
	procstate_deinit(&after);
	folder_remove(&folder);
}

static int stride(void)
{
	const char *text = getenv("HEAPATTACH_TESTS_STRIDE");

	return text ? atoi(text) : STRIDE_DEFAULT;
}

/* ---- the target's memory, as far as nobody but us changes it */

/* dlopen counts in the loader's data, and allocates. */
static bool is_compared(const struct map *map)
{
	const char *slash = strrchr(map->path, '/');
	bool system = slash && (!strncmp(slash + 1, "libc.so", 7) || !strncmp(slash + 1, "ld-", 3));

	return map->inode && map->read && !map->shared && strncmp(map->path, "/memfd:", 7) != 0 &&
	       !(system && map->write);
}

/* FNV-1a over all that is compared. */
static uint64_t memory_hash(pid_t pid)
{
	CLEANUP(maps_deinit) struct maps maps = {0};
	uint64_t hash = 0xcbf29ce484222325u;
	char path[64];
	int fd;

	assert_ok(maps_read(pid, &maps));
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	for (size_t i = 0; i < maps.count; i++) {
		const struct map *map = &maps.map[i];
		size_t size = map->end - map->start;
		CLEANUP(freep) uint64_t *words = malloc(size);

		if (!is_compared(map))
			continue;
		ck_assert_int_eq(pread(fd, words, size, (off_t)map->start), (ssize_t)size);
		for (size_t k = 0; k < size / 8; k++)
			hash = (hash ^ words[k]) * 0x100000001b3u;
	}
	close(fd);
	return hash;
}

/* ---- */

/* One run in which step @at goes wrong; false if there were not so many. */
static bool attach_with_fault(enum fault_how how, uint64_t at, const char *loader)
{
	CLEANUP(freep) char *library = tests_build_path("targets/libfault.so");

	*fault = (struct fault){.at = at, .how = how};
	setenv("LD_PRELOAD", library, 1);
	run_program(&run, &folder, "-p %d --exact --loader %s -d 0.05 -q -o %s", target.pid, loader,
		    folder_file(&folder, "out.hap"));
	unsetenv("LD_PRELOAD");
	unlink(folder_file(&folder, "out.hap"));
	ck_assert_uint_gt(fault->steps, 0);
	return fault->happened != FAULT_NONE;
}

static void expect_as_it_was(uint64_t hash)
{
	unsigned long long at = fault->at;

	child_expect(&target, "check", "ok");
	ck_assert_uint_eq(procstate_status(target.pid, "TracerPid", 10), 0);
	ck_assert_msg(!procstate_mapped(target.pid, "memfd:heapattach (") &&
			      !procstate_mapped(target.pid, "memfd:heapattach-core"),
		      "step %llu (kind %u): mappings are left; ended with %d: %s", at,
		      fault->happened, run.status, run.err);
	if (!hash)
		return;
	ck_assert_msg(memory_hash(target.pid) == hash,
		      "step %llu (kind %u): memory has changed; ended with %d: %s", at,
		      fault->happened, run.status, run.err);
	procstate_read(target.pid, &after);
	/* A page that was being mapped when its maker died has no name to find it by. */
	procstate_expect_same(&before, &after, fault->how == FAULT_KILL ? PROCSTATE_HEAP : 0);
	procstate_deinit(&after);
}

/*
 * What a process that died has left is inert, until somebody cleans up. If it
 * was the program, its worker ends what it has begun and may hold the target.
 */
static void cleaned_up(void)
{
	uint64_t end = now_ms() + 20000;
	struct run stop = {0};

	child_expect(&target, "check", "ok");
	run_program(&stop, &folder, "stop -p %d", target.pid);
	while (stop.status == 1 && strstr(stop.err, "traced by") && now_ms() < end) {
		run_deinit(&stop);
		wait_ms(20);
		run_program(&stop, &folder, "stop -p %d", target.pid);
	}
	ck_assert_msg(stop.status == 0, "step %llu (kind %u): stop ended with %d: %s",
		      (unsigned long long)fault->at, fault->happened, stop.status, stop.err);
	run_deinit(&stop);
}

static void steps_go_wrong(enum fault_how how, const char *loader)
{
	bool by_calls = strcmp(loader, "calls") == 0;
	uint64_t at, hash = by_calls ? 0 : memory_hash(target.pid);
	unsigned int count = 0;

	procstate_read(target.pid, &before);
	for (at = 1; attach_with_fault(how, at, by_calls ? "map" : loader);
	     at += (uint64_t)stride()) {
		if (how == FAULT_KILL)
			cleaned_up();
		else
			ck_assert_msg(run.status == 0 || run.status == 1,
				      "step %llu: ended with %d: %s", (unsigned long long)at,
				      run.status, run.err);
		expect_as_it_was(hash);
		run_deinit(&run);
		count++;
	}
	ck_assert_msg(run.status == 0, "without a fault: ended with %d: %s", run.status, run.err);
	ck_assert_uint_gt(count, 5);
}

START_TEST(failing_step_leaves_the_target_as_it_was)
{
	steps_go_wrong(FAULT_ERROR, _i ? "map" : "dlopen");
}
END_TEST

/*
 * The last one has no lock of the loader: all is done by calls on a stopped thread.
 * Who dies between two of them may leave a page of constants writable: only the
 * mappings of ours and what the target knows of itself are looked at.
 */
START_TEST(death_at_a_step_leaves_what_stop_takes_out)
{
	static const char *const loaders[] = {"dlopen", "map", "calls"};

	if (_i == 2) {
		child_end(&target);
		child_start_target(&target, &folder, "storm_musl -t 0");
		child_expect(&target, "check", "ok");
	}
	steps_go_wrong(FAULT_KILL, loaders[_i]);
}
END_TEST

Suite *attach_faults_suite(void)
{
	Suite *suite = suite_create("attach_faults");
	TCase *tcase = tcase_create("steps");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 900);
	tcase_add_loop_test(tcase, failing_step_leaves_the_target_as_it_was, 0, 2);
	tcase_add_loop_test(tcase, death_at_a_step_leaves_what_stop_takes_out, 0, 3);
	suite_add_tcase(suite, tcase);
	return suite;
}
