// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/record.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "injector/exitstatus.h"
#include "injector/live.h"
#include "injector/session.h"
#include "injector/stop.h"
#include "resolver/cleanup.h"
#include "resolver/human.h"
#include "resolver/text.h"

#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

/* The payload's clock ticks at this rate (HA_TICK_MS). */
#define TICK_MS	   10

#define QUIET_NICE 10 /* more than we were started with */

/* For a process that has given up its memory until it has ended. */
#define END_WAIT_MS 5000

struct record {
	struct session *session;
	const struct record_output *output;
	bool quiet;
	int priority; /* as we were started */
	int signals;
	uint64_t begin_ns; /* CLOCK_BOOTTIME, before the attach */
	uint64_t next_line_ns;
	uint64_t last_count; /* allocations at the last line */
	uint64_t last_ns;
	enum profile_end end;
	int32_t end_status;
	bool ended;
	bool warned;
};

static PRINTF(2, 3) void say(const struct record *record, const char *format, ...)
{
	char line[512];
	va_list args;

	if (record->quiet)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	record->output->say(line);
}

/*
 * Looking at modules and reading debug files takes CPU time that belongs to the
 * target. But whoever waits for the end of a recording shall not wait for a
 * target that keeps all processors busy. Only root gets out of it again.
 */
static void be_quiet(const struct record *record, bool quiet)
{
	if (geteuid() == 0)
		setpriority(PRIO_PROCESS, 0, record->priority + (quiet ? QUIET_NICE : 0));
}

static struct error *signals_open(int *fd_ret)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return error_os(errno, "cannot block signals");
	*fd_ret = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return *fd_ret < 0 ? error_os(errno, "cannot wait for signals") : NULL;
}

static bool signal_came(struct record *record)
{
	struct signalfd_siginfo info;

	return read(record->signals, &info, sizeof(info)) == sizeof(info);
}

static void how_text(const struct profile *profile, char *buf, size_t size)
{
	uint32_t permille = profile->sampling.budget_permille;

	if (!profile->sampling.interval_high)
		snprintf(buf, size, "recording every allocation");
	else if (permille)
		snprintf(buf, size, "recording samples, for at most %u.%u %% of its CPU time",
			 permille / 10, permille % 10);
	else
		snprintf(buf, size, "recording one sample per %s",
			 human_bytes(profile->interval).text);
}

static void banner(const struct record *record)
{
	const struct session *session = record->session;
	const struct profile *profile = session->profile;
	uint64_t attach_us = 0;
	size_t i, refused = 0;
	char how[96];
	CLEANUP(freep) char *comm = text_printable(session->preflight.comm);

	for (i = 0; i < profile->pause_count; i++) {
		if (profile->pause[i].kind == PROFILE_PAUSE_ATTACH)
			attach_us = profile->pause[i].stopped_us;
		refused += profile->pause[i].kind == PROFILE_PAUSE_RETRY;
	}
	say(record,
	    "attached to %d (%s, %s, %s): one thread stopped for %.2f ms, %llu slots "
	    "hooked",
	    session->preflight.pid, comm ? comm : "?",
	    human_counted(session->preflight.threads, "thread").text,
	    session->preflight.allocator ? session->preflight.allocator : "unknown allocator",
	    (double)attach_us / 1000, (unsigned long long)profile->coverage.slots);
	if (refused)
		say(record, "%zu times a thread was stopped and handed back at once", refused);
	how_text(profile, how, sizeof(how));
	say(record, "%s; Ctrl-C stops and reports, the target runs on", how);
}

static void line_show(struct record *record, uint64_t now_ns)
{
	struct session *session = record->session;
	const struct ha_sums *total = &session->reader->total;
	uint64_t passed_ns = now_ns - record->last_ns;
	const struct profile *profile = session->profile;
	char text[128];
	struct live_line line = {
		.elapsed_ns = now_ns,
		.inuse_bytes = reader_inuse_bytes(total),
		.inuse_count = reader_inuse_count(total),
		.sites = profile->site_count,
	};

	if (passed_ns)
		line.allocated_per_s =
			(uint64_t)((double)(total->alloc_count - record->last_count) * 1e9 /
				   (double)passed_ns);
	if (profile->snapshot_count)
		line.rss_bytes = profile->snapshot[profile->snapshot_count - 1].rss_bytes;
	record->last_count = total->alloc_count;
	record->last_ns = now_ns;
	live_format(&line, text, sizeof(text));
	say(record, "%s", text);
}

static void target_ended(struct record *record, struct error *cause)
{
	const struct target *target = record->session->target;
	struct pollfd end = {.fd = target_pidfd(target), .events = POLLIN};
	enum exitstatus how;

	record->ended = true;
	/* Nothing of ours is left that could be taken out. */
	record->session->attached = false;
	if (target_is_another_program(target)) {
		record->end = PROFILE_END_EXEC;
		record->end_status = 0;
	} else {
		/* Its memory goes before it has a status. */
		poll(&end, 1, END_WAIT_MS);
		how = exitstatus_read(target_pidfd(target), target_pid(target),
				      &record->end_status);
		record->end = how == EXITSTATUS_KILLED ? PROFILE_END_KILLED : PROFILE_END_EXITED;
	}
	error_free(cause);
}

static void complain(const struct record *record, struct error *err)
{
	record->output->warn(error_message(err));
	error_free(err);
}

/* Not fatal: said once, recording goes on. */
static void trouble(struct record *record, struct error *err)
{
	if (record->warned)
		error_free(err);
	else
		complain(record, err);
	record->warned = true;
}

static void step(struct record *record)
{
	struct session *session = record->session;
	uint64_t now_ns = session_elapsed_ns(session);
	struct error *err = session_tick(session);

	if (error_is(err, ERROR_GONE)) {
		target_ended(record, err);
		return;
	}
	if (err)
		trouble(record, err);
	if (now_ns < record->next_line_ns)
		return;
	record->next_line_ns += NS_PER_S;
	err = session_snapshot(session);
	if (err)
		trouble(record, err);
	line_show(record, now_ns);
}

static void loop(struct record *record, uint64_t duration_ms)
{
	struct pollfd fds[2] = {
		{.fd = record->signals, .events = POLLIN},
		{.fd = target_pidfd(record->session->target), .events = POLLIN},
	};
	char header[128];

	live_header(header, sizeof(header));
	say(record, "%s", header);
	record->next_line_ns = NS_PER_S;
	while (!record->ended) {
		poll(fds, 2, TICK_MS);
		if (signal_came(record)) {
			record->end = PROFILE_END_INTERRUPTED;
			return;
		}
		if (duration_ms && session_elapsed_ns(record->session) >= duration_ms * NS_PER_MS) {
			record->end = PROFILE_END_TIME;
			return;
		}
		step(record);
	}
}

/* A warning of several lines. */
static struct error *difference_show(const struct record *record, const char *text)
{
	CLEANUP(freep) char *copy = strdup(text);
	char *save, *line;

	if (!copy)
		return error_memory();
	line = strtok_r(copy, "\n", &save);
	record->output->warn(line);
	while ((line = strtok_r(NULL, "\n", &save)))
		record->output->say(line);
	return NULL;
}

static struct error *selfcheck_show(const struct record *record)
{
	const struct selfcheck *selfcheck = record->session->selfcheck;
	const struct selfcheck_counts *counts = selfcheck_counts(selfcheck);
	const char *text;
	size_t i;

	for (i = 0; (text = selfcheck_difference(selfcheck, i)); i++) {
		struct error *err = difference_show(record, text);

		if (err)
			return err;
	}
	say(record, "selfcheck: %llu stacks compared with libunwind, %llu distinct, %llu different",
	    (unsigned long long)counts->compared, (unsigned long long)counts->distinct,
	    (unsigned long long)counts->different);
	if (counts->limited || counts->unchecked)
		say(record,
		    "selfcheck: %llu of them as far as libunwind has tables; %llu others could not "
		    "be compared",
		    (unsigned long long)counts->limited, (unsigned long long)counts->unchecked);
	return NULL;
}

/* Children that the target has forked meanwhile have slots that lead to entry. */
static void children_clean(struct record *record)
{
	size_t count;
	struct error *err = stop_children(record->session, record->begin_ns, &count);

	if (err)
		complain(record, err);
	if (count)
		say(record, "%zu forked children cleaned", count);
}

static struct error *run(struct record *record, const struct options *options)
{
	struct session *session = record->session;
	struct timespec begin;
	struct error *err;

	clock_gettime(CLOCK_BOOTTIME, &begin);
	record->begin_ns = (uint64_t)begin.tv_sec * NS_PER_S + (uint64_t)begin.tv_nsec;
	err = session_attach(session);
	if (err)
		return err;
	err = target_check(session->target);
	if (err)
		target_ended(record, err);
	else if (!session->profile->coverage.slots)
		return error_create(ERROR_UNSUPPORTED, "nothing could be hooked in process %d",
				    options->pid);
	be_quiet(record, false);
	banner(record);
	loop(record, options->duration_ms);
	if (!record->ended) {
		err = session_stop(session);
		if (error_is(err, ERROR_GONE))
			target_ended(record, err);
		else if (err)
			complain(record, err);
	}
	children_clean(record);
	be_quiet(record, true);
	err = session_finish(session, record->end, record->end_status);
	if (!err && session->selfcheck)
		err = selfcheck_show(record);
	return err;
}

struct error *record_run(const struct options *options, const struct record_output *output,
			 struct profile **ret)
{
	struct record record = {.output = output, .quiet = options->quiet, .signals = -1};
	struct error *err;

	record.priority = getpriority(PRIO_PROCESS, 0);
	be_quiet(&record, true);
	err = signals_open(&record.signals);
	if (!err)
		err = session_create(options, &record.session);
	if (!err)
		err = run(&record, options);
	if (!err)
		*ret = take(record.session->profile);
	session_free(record.session);
	closep(&record.signals);
	return err;
}
