// SPDX-License-Identifier: GPL-3.0-or-later
/*
 * The first screen of the text report: what to think of it, where the memory
 * is, what was recorded and what was not.
 */
#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/human.h"
#include "resolver/report_text.h"

#define SKIPPED_SHOWN	 6u
#define OWN_WORTH_SAYING (1u << 20) /* bytes */

/* ---- verdict ---- */

/* That none was taken does not mean that nothing was allocated. */
static void say_no_sample(const struct text_report *text)
{
	struct report_intervals intervals =
		report_intervals(text->profile, &text->sites.totals, &text->sites.variance);

	text_say(text, 0, 2,
		 "NO SAMPLE TAKEN in %s: allocations of %s at most (95 %% sure), or none.",
		 human_duration(text->profile->duration_ns).text,
		 human_bytes(intervals.alloc_bytes.high).text);
}

/* The first line, without what is known of the confidence. */
static void say_headline(const struct text_report *text)
{
	const struct report_verdict *verdict = &text->verdict;
	const struct report_growth *rate = &verdict->rate;
	struct human duration = human_duration(text->profile->duration_ns);
	const char *direct = text->profile->coverage.direct_allocator;
	const char *headline = "STABLE: what is in use does not grow";
	char growing[96], range[64] = "";

	switch (verdict->kind) {
	case VERDICT_DIRECT_ALLOCATOR:
		text_say(text, 0, 2,
			 "NOTHING SEEN: %s is linked in and called directly, where no call can be "
			 "hooked.",
			 direct);
		return;
	case VERDICT_NOTHING_SEEN:
		if (profile_is_sampled(text->profile)) {
			say_no_sample(text);
			return;
		}
		text_say(text, 0, 2,
			 "NO ALLOCATION SEEN in %s: the process made none, or made them in a way "
			 "that is not hooked.",
			 duration.text);
		return;
	case VERDICT_TOO_EARLY:
		text_say(text, 0, 2, "TOO EARLY to say whether memory grows: recorded for %s only.",
			 duration.text);
		return;
	case VERDICT_GROWING:
		snprintf(growing, sizeof(growing), "GROWING by %s", human_rate(rate->bytes).text);
		headline = growing;
		if (profile_is_sampled(text->profile))
			snprintf(range, sizeof(range), "95 %% sure: %s; ",
				 human_rate_range(rate->low, rate->high).text);
		break;
	case VERDICT_LEVELLING:
		headline = "LEVELLING OFF: memory grew, but hardly any more";
		break;
	case VERDICT_REPLACING:
		headline = "STABLE: new blocks take the place of older ones";
		break;
	case VERDICT_KEPT:
		headline = "FREED, BUT KEPT: the allocator holds on to freed memory";
		break;
	case VERDICT_ELSEWHERE:
		headline = "GROWS ELSEWHERE: resident memory rises, hooked allocations do not";
		break;
	default:
		break;
	}
	text_say(text, 0, 2, "%s (%sconfidence: %s; %s).", headline, range,
		 verdict_confidence_name(verdict->confidence), verdict->why);
}

/* ", at most 3.1 MiB (after 2 s; looked at each 1.0 s)"; nothing if that is the end. */
static void peak_text(const struct text_report *text, char *buf, size_t size)
{
	const struct report_verdict *verdict = &text->verdict;
	uint64_t looks_ns = text->profile->look_ns;
	const char *what = "at most";
	char range[64] = "";

	*buf = '\0';
	if (verdict->peak_bytes <= verdict->inuse_bytes)
		return;
	if (profile_is_sampled(text->profile)) {
		struct report_inuse inuse =
			report_inuse_then(text->profile, verdict->peak_bytes, verdict->peak_count,
					  &text->sites.totals, &text->sites.variance);

		what = "by the highest estimate";
		snprintf(range, sizeof(range), "%s; ",
			 human_bytes_range(inuse.bytes.low, inuse.bytes.high).text);
	}
	snprintf(buf, size, ", %s %s (%safter %s%s%s)", what, human_bytes(verdict->peak_bytes).text,
		 range, human_duration(verdict->peak_ns).text, looks_ns ? "; looked at each " : "",
		 looks_ns ? human_duration(looks_ns).text : "");
}

static void say_live(const struct text_report *text)
{
	const struct report_verdict *verdict = &text->verdict;
	char peak[192], anon[64] = "", range[64] = "";

	peak_text(text, peak, sizeof(peak));
	if (verdict->anon_known)
		snprintf(anon, sizeof(anon), " Anonymous memory changed by %s.",
			 human_signed_bytes(verdict->anon_change_bytes).text);
	if (profile_is_sampled(text->profile)) {
		struct report_intervals intervals =
			report_intervals(text->profile, &text->sites.totals, &text->sites.variance);

		snprintf(range, sizeof(range), " (%s)",
			 human_bytes_range(intervals.inuse_bytes.low, intervals.inuse_bytes.high)
				 .text);
	}
	text_say(text, 2, 2, "Of what was allocated in these %s, %s%s are still live%s.%s",
		 human_duration(text->profile->duration_ns).text,
		 human_bytes(verdict->inuse_bytes).text, range, peak, anon);
}

/* What was in use at the peak, where that is another story than the end. */
static void say_peak(const struct text_report *text)
{
	const struct profile_peak *peak = &text->profile->peak;
	uint32_t most = 0;
	CLEANUP(freep) char *name = NULL;

	if (peak->bytes < text->verdict.inuse_bytes + text->verdict.inuse_bytes / 4)
		return;
	for (uint32_t i = 1; i < text->sites.count; i++)
		if (text->sites.site[i].peak_bytes > text->sites.site[most].peak_bytes)
			most = i;
	if (!text->sites.site[most].peak_bytes)
		return;
	error_free(text_site_name(text, most, &name));
	text_say(text, 2, 2, "Of that most, %s was of site %u, %s.",
		 human_share(text->sites.site[most].peak_bytes, peak->bytes).text, most + 1,
		 name ? name : "?");
}

static void say_grower(const struct text_report *text)
{
	const struct report_verdict *verdict = &text->verdict;
	CLEANUP(freep) char *name = NULL;
	struct error *err;

	if (verdict->grower == PROFILE_NONE ||
	    (verdict->kind != VERDICT_GROWING && verdict->kind != VERDICT_LEVELLING))
		return;
	err = text_site_name(text, verdict->grower, &name);
	error_free(err); /* without a name only the number is said */
	text_say(text, 2, 2, "%.0f %% of the rise in the last half: site %u, %s.",
		 verdict->grower_share * 100, verdict->grower + 1, name ? name : "?");
}

/* What the bound on our own memory has done to the figures. */
static void say_limits(const struct text_report *text)
{
	const struct profile_limits *limits = &text->profile->limits;
	const struct profile_coverage *coverage = &text->profile->coverage;

	if (limits->raised)
		text_say(text, 2, 2,
			 "Memory for recording ran short after %s (--max-memory %s): %s.",
			 human_duration(limits->raised_ns).text,
			 human_bytes(limits->memory_max_bytes).text,
			 limits->began_exact ? "every allocation until then, samples since"
					     : "since then samples were further apart");
	if (coverage->untracked)
		text_say(text, 2, 2, "%s of %s found no room and are in no figure here.",
			 human_counted(coverage->untracked, "block").text,
			 human_bytes(coverage->untracked_bytes).text);
	if (coverage->no_site)
		text_say(text, 2, 2,
			 "%s found no room for their stack: they are one site, unnamed.",
			 human_counted(coverage->no_site, "call").text);
}

void text_verdict(const struct text_report *text)
{
	say_headline(text);
	say_limits(text);
	if (!text->sites.totals.alloc_count)
		return;
	say_live(text);
	say_peak(text);
	say_grower(text);
}

/* ---- account of RSS ---- */

static void row(const struct text_report *text, const char *label, uint64_t start, uint64_t end,
		const char *note)
{
	fprintf(text->out, "%-26s%10s%11s%12s%s%s\n", label, human_bytes(start).text,
		human_bytes(end).text, human_signed_bytes((int64_t)(end - start)).text,
		*note ? "  " : "", note);
}

static uint64_t less(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

struct account {
	uint64_t tracked, before, kept, files, own;
};

/*
 * What of the anonymous memory is from before the attach: by the allocator's
 * own account where there is one; else what is not tracked, and at most what
 * there was at the start. Tracked blocks that were not written to are not
 * resident: it may be more.
 */
static struct account account_of(const struct profile_memory *memory,
				 const struct profile_memory *start, uint64_t tracked)
{
	struct account account = {
		.tracked = tracked,
		.own = memory->own_bytes,
		.files = less(memory->file_bytes + memory->shmem_bytes, memory->own_bytes),
	};

	if (memory->allocator_known) {
		account.before = less(memory->allocator_bytes, tracked);
		account.kept = memory->allocator_free;
	} else {
		account.before = less(memory->anon_bytes, tracked);
		if (account.before > start->anon_bytes)
			account.before = start->anon_bytes;
	}
	return account;
}

/* What the rows do not explain; negative if they say more than is resident. */
static int64_t account_rest(const struct account *account, uint64_t rss)
{
	return (int64_t)(rss - account->tracked - account->before - account->kept - account->files -
			 account->own);
}

static struct profile_memory memory_at_end(const struct profile *profile)
{
	struct profile_memory memory = profile->memory_end;

	if (memory.rss_bytes)
		return memory;
	if (profile->memory_last.rss_bytes)
		return profile->memory_last;
	/* It died: what the last snapshot saw, with the split of the start. */
	for (size_t i = profile->snapshot_count; i-- > 0;) {
		const struct profile_snapshot *snapshot = &profile->snapshot[i];

		if (!snapshot->rss_bytes)
			continue;
		memory.rss_bytes = snapshot->rss_bytes;
		memory.anon_bytes = snapshot->anon_bytes;
		memory.file_bytes = profile->memory_start.file_bytes;
		memory.shmem_bytes =
			less(snapshot->rss_bytes, snapshot->anon_bytes + memory.file_bytes);
		break;
	}
	return memory;
}

/*
 * What our shared memory took while it was mapped; where that was not looked at, by
 * how much all but the anonymous memory rose, at most.
 */
static uint64_t own_peak(const struct profile *profile)
{
	uint64_t start = less(profile->memory_start.rss_bytes, profile->memory_start.anon_bytes);
	uint64_t peak = profile->own_peak_bytes;

	if (profile->memory_last.rss_bytes)
		return peak;
	for (size_t i = 0; i < profile->snapshot_count; i++) {
		const struct profile_snapshot *at = &profile->snapshot[i];
		uint64_t rose = less(less(at->rss_bytes, at->anon_bytes), start);

		if (rose > peak)
			peak = rose;
	}
	return peak;
}

void text_account(const struct text_report *text)
{
	const struct profile *profile = text->profile;
	const struct profile_memory *start = &profile->memory_start;
	struct profile_memory end = memory_at_end(profile);
	struct account from = account_of(start, start, 0);
	struct account to = account_of(&end, start, text->verdict.inuse_bytes);
	int64_t start_rest = account_rest(&from, start->rss_bytes);
	int64_t end_rest = account_rest(&to, end.rss_bytes);
	bool known = start->allocator_known && end.allocator_known;
	uint64_t freed = profile->coverage.unknown_frees;

	if (!start->rss_bytes || !end.rss_bytes)
		return;
	fprintf(text->out, "\n%-26s%10s%11s%12s\n", "Account of memory", "at start",
		profile->memory_end.rss_bytes ? "at end" : "last seen", "change");
	row(text, "resident (RSS)", start->rss_bytes, end.rss_bytes, "");
	row(text, "  tracked, still live", 0, to.tracked,
	    profile_is_sampled(profile) ? "estimated" : "sites below");
	row(text, "  from before the attach", from.before, to.before, known ? "" : "about");
	if (known)
		row(text, "  free, kept by allocator", from.kept, to.kept, "");
	row(text, "  files, shared memory", from.files, to.files, "");
	if (to.own || from.own)
		row(text, "  heapattach's own", from.own, to.own, "");
	row(text, "  the rest", start_rest > 0 ? (uint64_t)start_rest : 0,
	    end_rest > 0 ? (uint64_t)end_rest : 0,
	    known ? "stacks, overhead" : "stacks, free heap");
	if (end_rest < 0)
		text_say(text, 2, 4, "%s of this is not resident: blocks not written to yet.",
			 human_bytes(-(uint64_t)end_rest).text);
	text_say(text, 2, 2,
		 "What was allocated before the attach cannot be attributed to sites%s%s%s.",
		 freed ? " (freed of it since: " : "",
		 freed ? human_counted(freed, "block").text : "", freed ? ")" : "");
	if (own_peak(profile) >= OWN_WORTH_SAYING)
		text_say(text, 2, 2, "While recording, heapattach's own tables took up to %s.",
			 human_bytes(own_peak(profile)).text);
}

/* ---- header ---- */

static void say_target(const struct text_report *text)
{
	const struct profile_target *target = &text->profile->target;
	const char *what = target->cmdline ? target->cmdline : target->exe;

	text_say_labelled(text, "Target", "%s, pid %lld, uid %u", target->comm ? target->comm : "?",
			  (long long)target->pid, target->uid);
	if (what)
		text_say_labelled(text, NULL, "%s", what);
}

static const char *signal_text(int32_t signal)
{
	const char *name = signal > 0 ? sigabbrev_np(signal) : NULL;

	return name ? name : "?";
}

static void say_time(const struct text_report *text)
{
	const struct profile *profile = text->profile;
	char end[96];

	switch (profile->end) {
	case PROFILE_END_TIME:
		snprintf(end, sizeof(end), "as asked; the target runs on");
		break;
	case PROFILE_END_INTERRUPTED:
		snprintf(end, sizeof(end), "until interrupted; the target runs on");
		break;
	case PROFILE_END_EXEC:
		snprintf(end, sizeof(end), "until the target executed another program");
		break;
	case PROFILE_END_KILLED:
		snprintf(end, sizeof(end), "until the target was killed by SIG%s%s",
			 signal_text(profile->end_status),
			 profile->end_status == 9 ? " (out of memory?)" : "");
		break;
	default:
		snprintf(end, sizeof(end), "until the target exited");
		if (profile->end_status >= 0)
			snprintf(end, sizeof(end), "until the target exited with status %d",
				 profile->end_status);
	}
	text_say_labelled(text, "Recorded", "%s UTC, for %s, %s",
			  human_time(profile->start_unix_ns).text,
			  human_duration(profile->duration_ns).text, end);
}

/* "every allocation", "one sample per 512 KiB on average" */
static struct human interval_text(uint64_t interval, const char *before)
{
	struct human ret;

	if (interval > 1)
		snprintf(ret.text, sizeof(ret.text), "%s%.14s", before, human_bytes(interval).text);
	else
		snprintf(ret.text, sizeof(ret.text), "every allocation");
	return ret;
}

/* A target that hardly runs has a tenth of a processor to spend from. */
static void budget_text(const struct profile_sampling *sampling, char *buf, size_t size)
{
	char instead[48] = "";

	*buf = '\0';
	if (!sampling->budget_permille)
		return;
	if (sampling->cost_permille > sampling->budget_permille)
		snprintf(instead, sizeof(instead), ", or %.2f %% of a processor",
			 sampling->budget_permille / 100.0);
	snprintf(buf, size, ", some %.1f %% of the CPU time (asked: %.1f %%%s)",
		 sampling->cost_permille / 10.0, sampling->budget_permille / 10.0, instead);
}

static void mode_text(const struct profile *profile, char *buf, size_t size)
{
	const struct profile_sampling *sampling = &profile->sampling;
	char range[128] = "", budget[128], begin[64] = "";

	if (!profile_is_sampled(profile)) {
		snprintf(buf, size, "exact, every allocation");
		return;
	}
	if (profile->limits.began_exact)
		snprintf(begin, sizeof(begin), "exact for %s, then ",
			 human_duration(profile->limits.raised_ns).text);
	if (sampling->interval_low < sampling->interval_high)
		snprintf(range, sizeof(range), " at the end (over time %s to %s)",
			 interval_text(sampling->interval_low, "").text,
			 human_bytes(sampling->interval_high).text);
	budget_text(sampling, budget, sizeof(budget));
	snprintf(buf, size, "%ssampled, %s%s%s%s", begin,
		 interval_text(profile->interval, "one sample per ").text,
		 profile->interval > 1 ? " on average" : "", range, budget);
}

static void say_mode(const struct text_report *text)
{
	const struct profile *profile = text->profile;
	const struct profile_coverage *coverage = &profile->coverage;
	char mode[448];

	mode_text(profile, mode, sizeof(mode));
	text_say_labelled(
		text, "Mode", "%s; %s slots hooked in %s modules%s%s%s%s", mode,
		human_count(coverage->slots).text, human_count(coverage->modules).text,
		profile->allocator ? " for " : "", profile->allocator ? profile->allocator : "",
		profile->loader ? ", loaded by " : "", profile->loader ? profile->loader : "");
}

static void say_pauses(const struct text_report *text)
{
	static const char *const names[PROFILE_PAUSES] = {
		[PROFILE_PAUSE_ATTACH] = "attach",	[PROFILE_PAUSE_STOP] = "stop",
		[PROFILE_PAUSE_UNLOAD] = "unload",	[PROFILE_PAUSE_RETRY] = "refused",
		[PROFILE_PAUSE_UPDATE] = "new modules",
	};
	const struct profile *profile = text->profile;
	CLEANUP(freep) char *list = NULL;
	size_t size;
	FILE *out = open_memstream(&list, &size);
	bool first = true;

	if (!out)
		return;
	for (unsigned int kind = 0; kind < PROFILE_PAUSES; kind++) {
		uint64_t us = 0, dlopen_us = 0, times = 0;

		for (size_t i = 0; i < profile->pause_count; i++) {
			if (profile->pause[i].kind != kind)
				continue;
			us += profile->pause[i].stopped_us;
			dlopen_us += profile->pause[i].dlopen_us;
			times++;
		}
		if (!times)
			continue;
		fprintf(out, "%s%s %s", first ? "" : ", ", names[kind], human_us(us).text);
		if (times > 1)
			fprintf(out, " in %llu stops", (unsigned long long)times);
		if (dlopen_us)
			fprintf(out, " (dlopen %s)", human_us(dlopen_us).text);
		first = false;
	}
	if (!fclose(out) && !first)
		text_say_labelled(text, "Stopped", "one thread: %s", list);
}

static void say_skipped(const struct text_report *text)
{
	const struct profile_coverage *coverage = &text->profile->coverage;
	size_t count = coverage->skipped_count;

	for (size_t i = 0; i < count && i < SKIPPED_SHOWN; i++) {
		const struct profile_skipped *skipped = &coverage->skipped[i];

		text_say_labelled(text, i ? NULL : "Unhooked", "%s%s%s",
				  report_basename(skipped->module), skipped->reason ? ": " : "",
				  skipped->reason ? skipped->reason : "");
	}
	if (count > SKIPPED_SHOWN)
		text_say_labelled(text, NULL, "and %zu more (all of them: --format json)",
				  count - SKIPPED_SHOWN);
}

/* What was not seen as wanted, each with its count; only what is not 0. */
static void say_losses(const struct text_report *text)
{
	const struct profile_coverage *coverage = &text->profile->coverage;
	const struct {
		uint64_t count;
		const char *what;
	} losses[] = {
		{coverage->truncated_stacks, "stacks cut short"},
		{coverage->no_site, "calls whose stack could not be kept"},
		{coverage->no_scratch, "stacks given up for want of a buffer"},
		{coverage->missed_frees, "frees missed"},
		{coverage->untracked, "blocks without room in the table"},
		{coverage->nested_duplicates, "calls seen twice"},
		{coverage->adopted, "older blocks counted as new when resized"},
		{coverage->oversized, "sizes clipped"},
		{coverage->gave_up, "calls passed through unseen"},
		{coverage->saved_pointers, "copied function pointers that are not hooked"},
		{coverage->rebound_slots, "slots rebound by the program"},
		{coverage->not_restored_slots, "slots that still lead through heapattach's entry"},
	};
	CLEANUP(freep) char *list = NULL;
	size_t size;
	FILE *out = open_memstream(&list, &size);
	bool first = true;

	if (!out)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(losses); i++) {
		if (!losses[i].count)
			continue;
		fprintf(out, "%s%s: %s", first ? "" : ", ", losses[i].what,
			human_count(losses[i].count).text);
		first = false;
	}
	if (!fclose(out))
		text_say_labelled(text, "Limits", "%s",
				  !first ? list
				  : profile_is_sampled(text->profile)
					  ? "none: each sample was recorded with its whole stack"
					  : "none: each call was recorded with its whole stack");
	if (coverage->core_left)
		text_say_labelled(
			text, NULL,
			"heapattach's code could not be taken out of the target: it is idle there");
}

static void say_selfcheck(const struct text_report *text)
{
	const struct profile_selfcheck *check = &text->profile->selfcheck;

	if (check->ran)
		text_say_labelled(text, "Selfcheck",
				  "%s stacks compared with libunwind's, %s of them distinct: %s "
				  "different",
				  human_count(check->compared).text,
				  human_count(check->distinct).text,
				  human_count(check->different).text);
}

void text_header(const struct text_report *text)
{
	fputc('\n', text->out);
	say_target(text);
	say_time(text);
	say_mode(text);
	say_pauses(text);
	say_skipped(text);
	if (text->sites.totals.alloc_count)
		say_losses(text);
	say_selfcheck(text);
}
