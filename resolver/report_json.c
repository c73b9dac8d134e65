// SPDX-License-Identifier: GPL-3.0-or-later
#include <string.h>

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/json.h"
#include "resolver/report_ages.h"
#include "resolver/report_sites.h"
#include "resolver/report_verdict.h"
#include "resolver/whole.h"

static const char *const end_names[PROFILE_ENDS] = {
	[PROFILE_END_TIME] = "time",	 [PROFILE_END_INTERRUPTED] = "interrupted",
	[PROFILE_END_EXITED] = "exited", [PROFILE_END_KILLED] = "killed",
	[PROFILE_END_EXEC] = "exec",
};

static const char *const pause_names[PROFILE_PAUSES] = {
	[PROFILE_PAUSE_ATTACH] = "attach", [PROFILE_PAUSE_STOP] = "stop",
	[PROFILE_PAUSE_UNLOAD] = "unload", [PROFILE_PAUSE_RETRY] = "retry",
	[PROFILE_PAUSE_UPDATE] = "update",
};

static void put_target(struct json *json, const struct profile *profile)
{
	const struct profile_target *target = &profile->target;

	json_open_object(json, "target");
	json_signed(json, "pid", target->pid);
	json_string(json, "comm", target->comm);
	json_string(json, "exe", target->exe);
	json_string(json, "cmdline", target->cmdline);
	json_unsigned(json, "uid", target->uid);
	json_close_object(json);
}

static void put_pauses(struct json *json, const struct profile *profile)
{
	json_open_array(json, "pauses_us");
	for (size_t i = 0; i < profile->pause_count; i++)
		json_unsigned(json, NULL, profile->pause[i].stopped_us);
	json_close_array(json);
	json_open_array(json, "pauses");
	for (size_t i = 0; i < profile->pause_count; i++) {
		json_open_object(json, NULL);
		json_string(json, "kind", pause_names[profile->pause[i].kind]);
		json_unsigned(json, "stopped_us", profile->pause[i].stopped_us);
		json_unsigned(json, "dlopen_us", profile->pause[i].dlopen_us);
		json_close_object(json);
	}
	json_close_array(json);
}

static void put_sampling(struct json *json, const struct profile_sampling *sampling)
{
	if (!sampling->interval_high)
		return;
	json_open_object(json, "sampling");
	json_unsigned(json, "interval_low_bytes", sampling->interval_low);
	json_unsigned(json, "interval_high_bytes", sampling->interval_high);
	json_unsigned(json, "interval_changes", sampling->changes);
	if (sampling->budget_permille) {
		json_unsigned(json, "overhead_budget_permille", sampling->budget_permille);
		json_unsigned(json, "overhead_permille", sampling->cost_permille);
	}
	json_close_object(json);
}

static void put_limits(struct json *json, const struct profile_limits *limits)
{
	if (!limits->memory_max_bytes)
		return;
	json_open_object(json, "memory_limit");
	json_unsigned(json, "max_bytes", limits->memory_max_bytes);
	json_unsigned(json, "peak_bytes", limits->memory_peak_bytes);
	json_bool(json, "interval_raised", limits->raised);
	if (limits->raised)
		json_seconds(json, limits->began_exact ? "exact_until_s" : "raised_s",
			     limits->raised_ns);
	json_close_object(json);
}

static void put_session(struct json *json, const struct profile *profile)
{
	put_target(json, profile);
	json_signed(json, "start_unix_ns", profile->start_unix_ns);
	json_seconds(json, "duration_s", profile->duration_ns);
	json_string(json, "mode", profile_is_sampled(profile) ? "sampled" : "exact");
	json_unsigned(json, "interval_bytes", profile->interval);
	put_sampling(json, &profile->sampling);
	put_limits(json, &profile->limits);
	json_open_object(json, "end");
	json_string(json, "reason", end_names[profile->end]);
	json_signed(json, "status", profile->end_status);
	json_close_object(json);
	json_string(json, "loader", profile->loader);
	json_string(json, "allocator", profile->allocator);
	put_pauses(json, profile);
}

static void put_memory(struct json *json, const char *key, const struct profile_memory *memory)
{
	json_open_object(json, key);
	json_unsigned(json, "rss_bytes", memory->rss_bytes);
	json_unsigned(json, "anon_bytes", memory->anon_bytes);
	json_unsigned(json, "file_bytes", memory->file_bytes);
	json_unsigned(json, "shmem_bytes", memory->shmem_bytes);
	json_unsigned(json, "own_bytes", memory->own_bytes);
	if (memory->allocator_known) {
		json_unsigned(json, "allocator_bytes", memory->allocator_bytes);
		json_unsigned(json, "allocator_free_bytes", memory->allocator_free);
	}
	json_close_object(json);
}

static uint64_t rss_at_end(const struct profile *profile)
{
	if (profile->memory_end.rss_bytes)
		return profile->memory_end.rss_bytes;
	for (size_t i = profile->snapshot_count; i-- > 0;)
		if (profile->snapshot[i].rss_bytes)
			return profile->snapshot[i].rss_bytes;
	return 0;
}

static void put_sums(struct json *json, const struct profile_sums *sums)
{
	json_unsigned(json, "inuse_bytes", profile_inuse_bytes(sums));
	json_unsigned(json, "inuse_count", profile_inuse_count(sums));
	json_unsigned(json, "alloc_bytes", sums->alloc_bytes);
	json_unsigned(json, "alloc_count", sums->alloc_count);
	json_unsigned(json, "freed_bytes", sums->freed_bytes);
	json_unsigned(json, "freed_count", sums->freed_count);
}

static void put_interval(struct json *json, const char *low_key, const char *high_key,
			 const struct estimate *interval)
{
	json_unsigned(json, low_key, interval->low);
	json_unsigned(json, high_key, interval->high);
}

/* The sums, and of estimates their intervals. */
static void put_figures(struct json *json, const struct profile *profile,
			const struct profile_sums *sums, const struct profile_variance *variance)
{
	struct report_intervals intervals = report_intervals(profile, sums, variance);

	put_sums(json, sums);
	if (!profile_is_sampled(profile))
		return;
	put_interval(json, "inuse_bytes_low", "inuse_bytes_high", &intervals.inuse_bytes);
	put_interval(json, "inuse_count_low", "inuse_count_high", &intervals.inuse_count);
	put_interval(json, "alloc_bytes_low", "alloc_bytes_high", &intervals.alloc_bytes);
	put_interval(json, "alloc_count_low", "alloc_count_high", &intervals.alloc_count);
	put_interval(json, "freed_bytes_low", "freed_bytes_high", &intervals.freed_bytes);
	put_interval(json, "freed_count_low", "freed_count_high", &intervals.freed_count);
}

static void put_growth(struct json *json, const struct profile *profile, const char *key,
		       const char *low_key, const char *high_key, double units,
		       const struct report_growth *growth)
{
	json_signed(json, key, whole_signed(growth->bytes * units));
	if (!profile_is_sampled(profile))
		return;
	json_signed(json, low_key, whole_signed(growth->low * units));
	json_signed(json, high_key, whole_signed(growth->high * units));
}

static void put_inuse_then(struct json *json, const struct profile *profile,
			   const struct report_inuse *inuse, const char *const keys[4])
{
	if (!profile_is_sampled(profile))
		return;
	put_interval(json, keys[0], keys[1], &inuse->bytes);
	put_interval(json, keys[2], keys[3], &inuse->count);
}

static const char *const peak_keys[] = {"peak_inuse_bytes_low", "peak_inuse_bytes_high",
					"peak_inuse_count_low", "peak_inuse_count_high"};

static void put_verdict(struct json *json, const struct profile *profile,
			const struct report_sites *sites, const struct report_verdict *verdict)
{
	struct report_inuse peak =
		report_inuse_then(profile, verdict->peak_bytes, verdict->peak_count, &sites->totals,
				  &sites->variance);

	json_open_object(json, "verdict");
	json_string(json, "kind", verdict_kind_name(verdict->kind));
	json_string(json, "confidence", verdict_confidence_name(verdict->confidence));
	put_growth(json, profile, "bytes_per_hour", "bytes_per_hour_low", "bytes_per_hour_high",
		   3600, &verdict->rate);
	json_unsigned(json, "peak_inuse_bytes", verdict->peak_bytes);
	json_unsigned(json, "peak_inuse_count", verdict->peak_count);
	put_inuse_then(json, profile, &peak, peak_keys);
	json_seconds(json, "peak_time_s", verdict->peak_ns);
	json_close_object(json);
}

static void put_frame(struct json *json, const struct profile *profile,
		      const struct report_frame *frame)
{
	bool known = frame->module != PROFILE_NONE;

	json_open_object(json, NULL);
	json_string(json, "function", frame->function);
	json_string(json, "file", frame->file);
	if (frame->line)
		json_unsigned(json, "line", frame->line);
	else
		json_null(json, "line");
	json_string(json, "module", known ? profile->module[frame->module].path : NULL);
	json_unsigned(json, "offset", frame->vaddr);
	json_bool(json, "inlined", frame->inlined);
	json_close_object(json);
}

/* Of a bin of sizes we know how large its blocks are; of others, what all of the site are. */
static void put_bin_ranges(struct json *json, const struct profile *profile,
			   enum profile_bin_kind kind, const struct report_site *site,
			   const struct profile_bins *bins, unsigned int bin)
{
	uint64_t count = bins->count[bin], bytes = bins->bytes[bin];
	uint64_t begin = report_bin_begin(kind, bin), end = report_bin_end(kind, bin);
	struct report_inuse inuse;

	if (!profile_is_sampled(profile))
		return;
	if (kind == PROFILE_SIZES) {
		uint64_t size = end == UINT64_MAX ? begin : begin + (end - begin) / 2;

		inuse.count =
			report_count_of_size(profile, count, size, &site->sums, &site->variance);
	} else {
		if (kind == PROFILE_LIFETIMES && site->sums.freed_count)
			bytes = whole_unsigned((double)site->sums.freed_bytes /
					       (double)site->sums.freed_count * (double)count);
		inuse = report_inuse_then(profile, bytes, count, &site->sums, &site->variance);
	}
	put_interval(json, "count_low", "count_high", &inuse.count);
	if (kind == PROFILE_AGES)
		put_interval(json, "bytes_low", "bytes_high", &inuse.bytes);
}

/* Only what is not empty. */
static void put_bins(struct json *json, const struct profile *profile, const char *key,
		     enum profile_bin_kind kind, const struct report_site *site,
		     const struct profile_bins *bins)
{
	static const char *const from[] = {"from_bytes", "from_s"}, *const below[] = {"below_bytes",
										      "below_s"};
	bool times = kind != PROFILE_SIZES;

	json_open_array(json, key);
	for (unsigned int i = 0; i < PROFILE_BINS; i++) {
		uint64_t begin = report_bin_begin(kind, i), end = report_bin_end(kind, i);

		if (!bins->count[i])
			continue;
		json_open_object(json, NULL);
		(times ? json_seconds : json_unsigned)(json, from[times], begin);
		if (end == UINT64_MAX)
			json_null(json, below[times]);
		else
			(times ? json_seconds : json_unsigned)(json, below[times], end);
		json_unsigned(json, "count", bins->count[i]);
		if (kind == PROFILE_AGES)
			json_unsigned(json, "bytes", bins->bytes[i]);
		put_bin_ranges(json, profile, kind, site, bins, i);
		json_close_object(json);
	}
	json_close_array(json);
}

static void put_ages(struct json *json, const struct profile *profile,
		     const struct report_sites *sites, size_t place,
		     const struct report_middle *middle)
{
	static const char *const keys[PROFILE_BIN_KINDS] = {
		[PROFILE_SIZES] = "sizes",
		[PROFILE_LIFETIMES] = "lifetimes",
		[PROFILE_AGES] = "ages",
	};
	const struct report_site *site = &sites->site[place];
	struct report_growth growth = report_growth(profile, sites, middle, place);
	struct report_inuse peak = report_inuse_then(profile, site->peak_bytes, site->peak_count,
						     &site->sums, &site->variance);

	put_growth(json, profile, "growth_bytes_per_s", "growth_bytes_per_s_low",
		   "growth_bytes_per_s_high", 1, &growth);
	json_unsigned(json, "peak_inuse_bytes", site->peak_bytes);
	json_unsigned(json, "peak_inuse_count", site->peak_count);
	put_inuse_then(json, profile, &peak, peak_keys);
	if (!profile_is_sampled(profile))
		json_unsigned(json, "temporary_count", site->temporary);
	for (unsigned int kind = 0; kind < PROFILE_BIN_KINDS; kind++) {
		struct profile_bins bins = report_bins(profile, sites, place, kind);

		put_bins(json, profile, keys[kind], kind, site, &bins);
	}
}

static void put_peak(struct json *json, const struct profile *profile,
		     const struct report_sites *sites)
{
	static const char *const keys[] = {"inuse_bytes_low", "inuse_bytes_high", "inuse_count_low",
					   "inuse_count_high"};
	struct report_inuse inuse =
		report_inuse_then(profile, profile->peak.bytes, profile->peak.count, &sites->totals,
				  &sites->variance);

	if (!profile->peak.bytes)
		return;
	json_open_object(json, "peak");
	json_seconds(json, "time_s", profile->peak.time_ns);
	json_unsigned(json, "inuse_bytes", profile->peak.bytes);
	json_unsigned(json, "inuse_count", profile->peak.count);
	put_inuse_then(json, profile, &inuse, keys);
	json_seconds(json, "longest_between_looks_s", profile->look_ns);
	json_close_object(json);
}

static struct error *put_site(struct json *json, const struct profile *profile,
			      const struct report_sites *sites, size_t place,
			      const uint64_t *series, const struct report_middle *middle)
{
	const struct report_site *site = &sites->site[place];
	CLEANUP(freep) struct report_frame *frames = NULL;
	size_t count, own;
	struct error *err = report_frames(profile, site->site, &frames, &count, &own);

	if (err)
		return err;
	json_open_object(json, NULL);
	put_figures(json, profile, &site->sums, &site->variance);
	json_string(json, "trend", site_trend_name(site_trend(series)));
	put_ages(json, profile, sites, place, middle);
	json_unsigned(json, "missed_frees", site->missed_frees);
	json_bool(json, "truncated", site->flags & (PROFILE_SITE_TRUNCATED | PROFILE_SITE_DEEP));
	json_bool(json, "guessed", site->flags & PROFILE_SITE_GUESSED);
	json_bool(json, "stale", site->flags & PROFILE_SITE_STALE);
	json_bool(json, "unknown", site->flags & PROFILE_SITE_UNKNOWN);
	json_unsigned(json, "named_frame", own);
	json_open_array(json, "frames");
	for (size_t i = 0; i < count; i++)
		put_frame(json, profile, &frames[i]);
	json_close_array(json);
	json_close_object(json);
	return NULL;
}

static void put_coverage(struct json *json, const struct profile_coverage *coverage)
{
	json_open_object(json, "coverage");
	json_unsigned(json, "modules", coverage->modules);
	json_unsigned(json, "slots", coverage->slots);
	json_open_array(json, "skipped");
	for (size_t i = 0; i < coverage->skipped_count; i++) {
		json_open_object(json, NULL);
		json_string(json, "module", coverage->skipped[i].module);
		json_string(json, "reason", coverage->skipped[i].reason);
		json_close_object(json);
	}
	json_close_array(json);
	json_unsigned(json, "events", coverage->events);
	json_unsigned(json, "truncated_stacks", coverage->truncated_stacks);
	json_unsigned(json, "unknown_frees", coverage->unknown_frees);
	json_unsigned(json, "missed_frees", coverage->missed_frees);
	json_unsigned(json, "untracked", coverage->untracked);
	json_unsigned(json, "untracked_bytes", coverage->untracked_bytes);
	json_unsigned(json, "adopted", coverage->adopted);
	json_unsigned(json, "adopted_bytes", coverage->adopted_bytes);
	json_unsigned(json, "nested_duplicates", coverage->nested_duplicates);
	json_unsigned(json, "saved_pointers", coverage->saved_pointers);
	json_unsigned(json, "rebound_slots", coverage->rebound_slots);
	json_unsigned(json, "not_restored_slots", coverage->not_restored_slots);
	json_unsigned(json, "no_site", coverage->no_site);
	json_unsigned(json, "no_scratch", coverage->no_scratch);
	json_unsigned(json, "oversized", coverage->oversized);
	json_unsigned(json, "gave_up", coverage->gave_up);
	json_bool(json, "core_left", coverage->core_left);
	json_string(json, "direct_allocator", coverage->direct_allocator);
	json_close_object(json);
}

static void put_modules(struct json *json, const struct profile *profile)
{
	json_open_array(json, "modules");
	for (size_t i = 0; i < profile->module_count; i++) {
		const struct profile_module *module = &profile->module[i];

		json_open_object(json, NULL);
		json_string(json, "path", module->path);
		json_string(json, "build_id", module->build_id);
		json_unsigned(json, "bias", module->bias);
		json_string(json, "symbols", module->symbols);
		json_string(json, "no_symbols", module->no_symbols);
		json_close_object(json);
	}
	json_close_array(json);
}

static void put_snapshots(struct json *json, const struct profile *profile,
			  const struct report_sites *sites)
{
	json_open_array(json, "snapshots");
	for (size_t i = 0; i < profile->snapshot_count; i++) {
		const struct profile_snapshot *snapshot = &profile->snapshot[i];
		struct profile_variance variance;

		json_open_object(json, NULL);
		json_seconds(json, "time_s", snapshot->time_ns);
		json_unsigned(json, "rss_bytes", snapshot->rss_bytes);
		json_unsigned(json, "anon_bytes", snapshot->anon_bytes);
		json_unsigned(json, "unknown_frees", snapshot->unknown_frees);
		variance =
			report_variance_then(&snapshot->totals, &sites->totals, &sites->variance);
		put_figures(json, profile, &snapshot->totals, &variance);
		json_close_object(json);
	}
	json_close_array(json);
}

static void put_selfcheck(struct json *json, const struct profile_selfcheck *check)
{
	if (!check->ran)
		return;
	json_open_object(json, "selfcheck");
	json_unsigned(json, "compared", check->compared);
	json_unsigned(json, "distinct", check->distinct);
	json_unsigned(json, "different", check->different);
	json_close_object(json);
}

static struct error *put_sites(struct json *json, const struct profile *profile,
			       const struct report_sites *sites, const uint64_t *series,
			       const struct report_middle *middle, size_t shown)
{
	json_unsigned(json, "sites_total", sites->count);
	json_open_array(json, "sites");
	for (size_t i = 0; i < shown; i++) {
		struct error *err =
			put_site(json, profile, sites, i, &series[i * VERDICT_POINTS], middle);

		if (err)
			return err;
	}
	json_close_array(json);
	return NULL;
}

struct error *report_json(FILE *out, const struct profile *profile,
			  const struct report_options *options)
{
	CLEANUP(report_sites_deinit) struct report_sites sites = {0};
	CLEANUP(report_middle_deinit) struct report_middle middle = {0};
	CLEANUP(freep) uint64_t *series = NULL;
	struct report_verdict verdict;
	struct json json = {.out = out};
	struct error *err = report_sites_init(profile, options->sort, &sites);

	if (err)
		return err;
	err = report_series(profile, &sites, VERDICT_POINTS, &series);
	if (err)
		return err;
	err = report_middle_init(profile, &sites, &middle);
	if (err)
		return err;
	verdict = report_verdict(profile, &sites, series);
	json_open_object(&json, NULL);
	json_string(&json, "heapattach", HA_VERSION);
	put_session(&json, profile);
	json_unsigned(&json, "rss_start_bytes", profile->memory_start.rss_bytes);
	json_unsigned(&json, "rss_end_bytes", rss_at_end(profile));
	put_memory(&json, "memory_start", &profile->memory_start);
	put_memory(&json, "memory_end", &profile->memory_end);
	put_verdict(&json, profile, &sites, &verdict);
	put_peak(&json, profile, &sites);
	json_open_object(&json, "totals");
	put_figures(&json, profile, &sites.totals, &sites.variance);
	json_close_object(&json);
	put_coverage(&json, &profile->coverage);
	put_selfcheck(&json, &profile->selfcheck);
	put_modules(&json, profile);
	put_snapshots(&json, profile, &sites);
	err = put_sites(&json, profile, &sites, series, &middle,
			report_sites_shown(&sites, options, sites.count));
	if (err)
		return err;
	json_close_object(&json);
	return report_flush(out);
}
