// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * Our walk against libunwind's, on threads stopped wherever they happen to be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/server.h"
#include "tests/tests.h"
#include "tests/unwind_fixture.h"

/* What libunwind found up to the first frame that it had to guess. */
static size_t oracle_depth(const struct oracle_frame *frames, size_t count)
{
	size_t depth = 0;

	while (depth < count && frames[depth].has_fde)
		depth++;
	return depth < count ? depth + 1 : count;
}

static void print_difference(const struct unwind_stack *ours, const struct oracle_frame *theirs,
			     size_t count)
{
	fprintf(stderr, "ours ends with %d after %zu frames, libunwind after %zu:\n", ours->end,
		ours->count, count);
	for (size_t i = 0; i < ours->count || i < count; i++)
		fprintf(stderr, "  %#16lx sp %#lx module %d kind %d    %#16lx sp %#lx%s\n",
			i < ours->count ? ours->frames[i].pc : 0,
			i < ours->count ? ours->frames[i].sp : 0,
			i < ours->count ? (int)ours->frames[i].module : -1,
			i < ours->count ? (int)ours->frames[i].kind : -1,
			i < count ? theirs[i].pc : 0, i < count ? theirs[i].sp : 0,
			i < count && !theirs[i].has_fde ? " guessed" : "");
}

/*
 * @rewound: how far the pc in the thread's registers, which libunwind reads, is
 * before the one that it was found with: an interrupted call is made again.
 */
static bool is_same(const struct unwind_stack *ours, const struct oracle_frame *theirs,
		    size_t count, uint64_t rewound)
{
	size_t depth = oracle_depth(theirs, count);

	if (ours->count < depth)
		return false;
	for (size_t i = 0; i < depth; i++) {
		if (ours->frames[i].pc - (i == 0 ? rewound : 0) != theirs[i].pc ||
		    ours->frames[i].sp != theirs[i].sp)
			return false;
	}
	return true;
}

/* 0, or the size of the system call instruction. */
static uint64_t rewound_by(const struct safepoint_thread *thread, const struct oracle_frame *first)
{
	uint64_t distance = thread->registers.pc - first->pc;

	return thread->syscall_number >= 0 && distance == 2 ? distance : 0;
}

struct comparison {
	unsigned int captures, complete, vdso, different, frames;
};

/* libunwind-ptrace cannot read the vDSO and guesses there without saying so. */
static bool is_in_vdso(const struct unwind_process *process, const struct unwind_stack *stack)
{
	for (size_t i = 0; i < stack->count; i++) {
		const struct module *module =
			modules_find_code(&process->modules, stack->frames[i].pc);

		if (module && module->is_vdso)
			return true;
	}
	return false;
}

static void compare_thread(struct unwind_process *process, struct oracle *oracle, pid_t tid,
			   struct comparison *comparison)
{
	static struct oracle_frame theirs[UNWIND_FRAMES];
	static struct unwind_stack ours;
	struct borrow *borrow = unwind_stop(process, tid);
	struct safepoint_thread thread;
	size_t count = 0;

	if (!borrow)
		return;
	thread = unwind_thread(borrow);
	unwind_walk(process, borrow, &ours);
	assert_ok(oracle_unwind(oracle, tid, theirs, UNWIND_FRAMES, &count));
	unwind_continue(borrow);
	comparison->captures++;
	comparison->complete += ours.end == WALK_COMPLETE;
	comparison->frames += (unsigned int)ours.count;
	if (is_in_vdso(process, &ours))
		comparison->vdso++;
	else if (!is_same(&ours, theirs, count, rewound_by(&thread, theirs)) &&
		 comparison->different++ < 3)
		print_difference(&ours, theirs, count);
}

static struct comparison compare_process(pid_t pid, unsigned int captures)
{
	struct comparison comparison = {0};
	struct unwind_process process;
	struct threads threads = {0};
	struct oracle *oracle;

	unwind_open(&process, pid);
	assert_ok(oracle_create(&oracle));
	assert_ok(threads_read(process.target, &threads));
	for (unsigned int i = 0; i < captures; i++) {
		compare_thread(&process, oracle, threads.thread[i % threads.count].tid,
			       &comparison);
		usleep(50 + (i * 37) % 500);
	}
	threads_deinit(&threads);
	oracle_free(oracle);
	unwind_close(&process);
	ck_assert_uint_eq(comparison.different, 0);
	ck_assert_uint_ge(comparison.captures - comparison.vdso, captures * 9 / 10);
	return comparison;
}

static void compare_shape(const char *name, unsigned int captures)
{
	struct comparison comparison;
	struct folder folder;
	struct child child;

	folder_create(&folder);
	child_start_target(&child, &folder, "stacks %s", name);
	comparison = compare_process(child.pid, captures);
	ck_assert_uint_ge(comparison.complete, captures * 9 / 10);
	child_end(&child);
	folder_remove(&folder);
}

static const char *const shapes[] = {
	"mixed", "alloca", "aligned", "noreturn", "huge", "library", "signals", "signals_alternate",
};

START_TEST(walks_stacks_as_libunwind_does)
{
	compare_shape(shapes[_i], 300);
}
END_TEST

START_TEST(walks_redis_as_libunwind_does)
{
	struct server server = {0};
	struct folder folder;

	folder_create(&folder);
	server_start_redis(&server, &folder);
	compare_process(server.target, 1500);
	server_end(&server);
	folder_remove(&folder);
}
END_TEST

Suite *stackwalk_oracle_suite(void)
{
	Suite *suite = suite_create("stackwalk_oracle");
	TCase *tcase = tcase_create("live");

	tcase_set_timeout(tcase, 180);
	tcase_add_loop_test(tcase, walks_stacks_as_libunwind_does, 0,
			    sizeof(shapes) / sizeof(shapes[0]));
	tcase_add_test(tcase, walks_redis_as_libunwind_does);
	suite_add_tcase(suite, tcase);
	return suite;
}
