// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/check.h"

#include <linux/seccomp.h>
#include <stdarg.h>
#include <string.h>

#include "injector/functions.h"
#include "injector/leftover.h"
#include "injector/session.h"
#include "injector/threads.h"
#include "resolver/cleanup.h"
#include "resolver/human.h"
#include "resolver/text.h"

#define LABEL_WIDTH   12
#define LINE_WIDTH    79
#define THREADS_SHOWN 5u
#define SKIPPED_SHOWN 8u

/* Copies of the functions' addresses are looked for in so much memory. */
#define SAVED_POINTERS_LIMIT (64ull << 20)

/* A line of the table; an empty label goes on with the one above. */
static void PRINTF(3, 4) say(FILE *out, const char *label, const char *format, ...)
{
	CLEANUP(freep) char *text = NULL;
	va_list arguments;

	va_start(arguments, format);
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	fprintf(out, "%-*s", LABEL_WIDTH, label);
	text_print(out, text ? text : "(out of memory)");
	fputc('\n', out);
}

/* ---- the process */

static void say_process(FILE *out, const struct preflight *preflight)
{
	char inner[48] = "";

	if (preflight->ns_pid && preflight->ns_pid != preflight->pid)
		snprintf(inner, sizeof(inner), " (%d in its own PID namespace)", preflight->ns_pid);
	say(out, "Process", "%s, pid %d%s, uid %u", preflight->comm, preflight->pid, inner,
	    preflight->uid);
	if (preflight->cmdline && preflight->cmdline[0])
		say(out, "", "%s", preflight->cmdline);
	if (preflight->exe && preflight->exe[0])
		say(out, "Program", "%s%s", preflight->exe,
		    preflight->deleted ? ", deleted or replaced since: read from memory" : "");
}

static void say_surroundings(FILE *out, const struct preflight *preflight)
{
	static const char *const seccomp[] = {
		"none",
		"strict",
		"a filter: only raw calls would be made, with the filter suspended",
	};

	/* How many there are, not everybody is told. */
	say(out, "Memory", "%s resident, %s mapped%s%s", human_bytes(preflight->rss_bytes).text,
	    human_bytes(preflight->virtual_bytes).text, preflight->map_count ? ", " : "",
	    preflight->map_count ? human_counted(preflight->map_count, "mapping").text : "");
	say(out, "Namespaces", "%s%s%s%s", preflight->other_pid_ns ? "other PID, " : "",
	    preflight->other_mnt_ns ? "other mount, " : "",
	    preflight->other_user_ns ? "other user, " : "",
	    preflight->other_pid_ns || preflight->other_mnt_ns || preflight->other_user_ns
		    ? "files are read through its root"
		    : "ours");
	say(out, "Seccomp", "%s",
	    preflight->seccomp <= SECCOMP_MODE_FILTER ? seccomp[preflight->seccomp] : "unknown");
}

static const char *state_text(char state)
{
	switch (state) {
	case 'R':
		return "running";
	case 'S':
		return "sleeping";
	case 'D':
		return "in uninterruptible sleep";
	case 'T':
		return "stopped by a signal";
	case 't':
		return "stopped by a tracer";
	case 'Z':
	case 'X':
		return "ending";
	case 'I':
		return "idle";
	default:
		return "in another state";
	}
}

static void say_thread_states(FILE *out, const struct threads *threads)
{
	static const char states[] = "RSDTtZXI";
	char text[256] = "";
	size_t length = 0;

	for (const char *state = states; *state; state++) {
		size_t count = 0;

		for (size_t i = 0; i < threads->count; i++)
			count += threads->thread[i].state == *state;
		if (count && length < sizeof(text))
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%zu %s",
						   length ? ", " : "", count, state_text(*state));
	}
	say(out, "Threads", "%s: %s", human_count(threads->count).text, text);
}

/* Which threads could not be asked for a loan, and why. */
static struct error *say_threads(FILE *out, const struct session *session)
{
	CLEANUP(threads_deinit) struct threads threads = {0};
	struct error *err = threads_read(session->target, &threads);
	size_t shown = 0;

	if (err)
		return err;
	say_thread_states(out, &threads);
	for (size_t i = 0; i < threads.count && shown < THREADS_SHOWN; i++) {
		const struct thread *thread = &threads.thread[i];

		if (thread_may_be_borrowed(thread))
			continue;
		say(out, "", "thread %d (%s) cannot be borrowed: %s", thread->tid, thread->comm,
		    thread->kernel ? "it is the kernel's" : state_text(thread->state));
		shown++;
	}
	return NULL;
}

/* ---- the plan */

/* "malloc 13, free 16", in as many lines as it takes. */
static void say_functions(FILE *out, const struct slots *slots)
{
	char text[LINE_WIDTH + 1 - LABEL_WIDTH] = "", item[64];

	for (size_t function = 0; function < functions_count(); function++) {
		size_t count = 0;

		for (size_t i = 0; i < slots->count; i++)
			count += slots->slot[i].function == function;
		if (!count)
			continue;
		snprintf(item, sizeof(item), "%s%s %zu", *text ? ", " : "",
			 functions_get(function)->name, count);
		if (strlen(text) + strlen(item) + 1 >= sizeof(text)) {
			say(out, "", "%s,", text);
			snprintf(text, sizeof(text), "%s", item + 2);
		} else {
			strcat(text, item);
		}
	}
	if (*text)
		say(out, "", "%s", text);
}

static void say_leftover(FILE *out, const struct session *session)
{
	struct journal_mapping left[JOURNAL_LEFT];
	size_t count = leftover_find(&session->memory, &session->maps, &session->modules, left);

	if (!count)
		return;
	say(out, "Left over",
	    "%s of a heapattach that was killed:", human_counted(count, "mapping").text);
	say(out, "", "an attach removes them, and so does: heapattach stop -p %d",
	    session->preflight.pid);
}

static void say_skipped(FILE *out, const struct session *session)
{
	const struct slots *slots = &session->slots;
	size_t shown = 0, more = 0;

	for (size_t i = 0; i < slots->skip_count; i++) {
		const struct slot_skip *skip = &slots->skip[i];
		const struct module *module = modules_find_id(&session->modules, skip->module);

		if (!slot_skip_is_loss(skip->reason) || !module)
			continue;
		if (shown == SKIPPED_SHOWN) {
			more++;
			continue;
		}
		say(out, shown++ ? "" : "Not seen", "%s in %s: %s",
		    functions_get(skip->function)->name,
		    module->path[0] ? module->path : module->name, slot_skip_text(skip->reason));
	}
	if (more)
		say(out, "", "and %zu more", more);
}

static void say_direct(FILE *out, const struct session *session)
{
	for (size_t i = 0; i < session->slots.direct_count; i++) {
		const struct module *module =
			modules_find_id(&session->modules, session->slots.direct[i]);

		if (module && !module->is_libc && !module->is_loader)
			say(out, "Not seen", "calls inside %s go directly to its own allocator",
			    module->path[0] ? module->path : module->name);
	}
}

static struct error *say_copies(FILE *out, const struct session *session)
{
	size_t saved = 0;
	bool truncated;
	struct error *err = slots_saved_pointers(&session->memory, &session->maps, &session->slots,
						 SAVED_POINTERS_LIMIT, &saved, &truncated);

	if (!err && saved)
		say(out, "Not seen",
		    "calls through %zu%s copies of the functions' addresses in "
		    "its memory",
		    saved, truncated ? " or more" : "");
	return err;
}

static struct error *say_plan(FILE *out, const struct session *session)
{
	const struct slots *slots = &session->slots;

	say(out, "C library", "%s", session->modules.libc == LIBC_MUSL ? "musl" : "glibc");
	say(out, "Allocator", "%s%s%s", session->preflight.allocator,
	    session->preflight.allocator_path ? " in " : "",
	    session->preflight.allocator_path ? session->preflight.allocator_path : "");
	say(out, "Hooks", "%s in %s:", human_counted(slots->count, "word").text,
	    human_counted(slots_modules(slots), "module").text);
	say_functions(out, slots);
	say_leftover(out, session);
	say_skipped(out, session);
	say_direct(out, session);
	return say_copies(out, session);
}

static void say_loader(FILE *out, const struct session *session)
{
	const struct loader *loader;
	const char *why;

	loader = session_loader(session, &why);
	if (!loader)
		say(out, "Way in", "none: the dlopen loader cannot be used, since %s", why);
	else if (why)
		say(out, "Way in", "%s, since for dlopen %s", loader->name, why);
	else
		say(out, "Way in", "%s", loader->name);
}

/* ---- all of it */

static struct error *image_check(const struct options *options, FILE *out)
{
	CLEANUP(session_freep) struct session *session = NULL;
	struct error *err = session_create(options, &session);

	if (err)
		return err;
	err = say_threads(out, session);
	if (!err)
		err = session_plan(session);
	if (!err)
		err = say_plan(out, session);
	if (!err)
		say_loader(out, session);
	return err;
}

/* The answer comes first, and is known last. */
static void say_answer(FILE *out, const struct preflight *preflight, const struct error *err)
{
	if (!err) {
		fputs("YES: heapattach can attach to ", out);
		text_print(out, preflight->comm);
		fprintf(out, " (process %d); nothing was changed.\n", preflight->pid);
		return;
	}
	fputs("NO: ", out);
	text_print(out, error_message(err));
	fputs(".\n", out);
	if (error_hint_text(err)) {
		fputs("    ", out);
		text_print(out, error_hint_text(err));
		fputc('\n', out);
	}
}

struct error *check_run(const struct options *options, FILE *out)
{
	CLEANUP(preflight_deinit) struct preflight preflight = {0};
	struct preflight_options needs = session_needs(options);
	CLEANUP(freep) char *text = NULL;
	size_t size = 0;
	FILE *facts = open_memstream(&text, &size);
	struct error *err;

	if (!facts)
		return error_memory();
	err = preflight_process(options->pid, &needs, &preflight);
	if (preflight.comm && preflight.cmdline) {
		say_process(facts, &preflight);
		say_surroundings(facts, &preflight);
	}
	if (!err)
		err = image_check(options, facts);
	fclose(facts);
	say_answer(out, &preflight, err);
	if (text && size) {
		fputc('\n', out);
		fwrite(text, 1, size, out);
	}
	return err;
}
