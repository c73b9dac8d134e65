// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/sample_profile.h"

#include <check.h>
#include <stdio.h>

#include "resolver/array.h"
#include "tests/tests.h"

#define NS_PER_S 1000000000ull
#define MIB	 (1024ull * 1024)

struct profile *sample_empty(void)
{
	struct profile *profile = NULL;

	assert_ok(profile_create(&profile));
	return profile;
}

static void set_string(struct profile *profile, const char **field, const char *text)
{
	assert_ok(profile_string(profile, text, field));
}

static uint32_t add_module(struct profile *profile, const char *path, const char *build_id,
			   uint64_t bias, const char *no_symbols, bool executable)
{
	struct profile_module module = {
		.path = path,
		.build_id = build_id,
		.low = bias + 0x1000,
		.high = bias + 0x200000,
		.file_offset = 0x1000,
		.bias = bias,
		.symbols = no_symbols ? NULL : "symbol table",
		.no_symbols = no_symbols,
		.executable = executable,
	};
	uint32_t id;

	assert_ok(profile_add_module(profile, &module, &id));
	return id;
}

static uint32_t add_location(struct profile *profile, uint32_t module, uint64_t vaddr,
			     const struct profile_frame *frames, size_t count)
{
	uint32_t id;

	assert_ok(profile_add_location(profile, module, vaddr, &id));
	if (count)
		assert_ok(profile_resolve_location(profile, id, frames, count));
	return id;
}

static uint32_t add_site(struct profile *profile, const uint32_t *locations, size_t count,
			 uint32_t flags)
{
	uint32_t id;

	assert_ok(profile_add_site(profile, locations, count, flags, &id));
	return id;
}

static void begin_snapshot(struct profile *profile, uint64_t seconds, uint64_t rss, uint64_t anon,
			   uint64_t unknown_frees)
{
	struct profile_snapshot head = {
		.time_ns = seconds * NS_PER_S,
		.rss_bytes = rss,
		.anon_bytes = anon,
		.unknown_frees = unknown_frees,
	};

	assert_ok(profile_snapshot_begin(profile, &head));
}

static void add_sums(struct profile *profile, uint32_t site, uint64_t alloc_count,
		     uint64_t freed_count, uint64_t size)
{
	struct profile_sums sums = {
		.alloc_bytes = alloc_count * size,
		.alloc_count = alloc_count,
		.freed_bytes = freed_count * size,
		.freed_count = freed_count,
	};

	assert_ok(profile_snapshot_add(profile, site, &sums));
}

/* ---- the server ---- */

static void describe_server(struct profile *profile)
{
	const struct profile_pause pauses[] = {
		{PROFILE_PAUSE_RETRY, 31, 0},
		{PROFILE_PAUSE_ATTACH, 620, 410},
		{PROFILE_PAUSE_STOP, 110, 0},
		{PROFILE_PAUSE_UNLOAD, 45, 0},
	};

	profile->target.pid = 4242;
	profile->target.uid = 33;
	set_string(profile, &profile->target.comm, "store");
	set_string(profile, &profile->target.exe, "/usr/bin/store");
	set_string(profile, &profile->target.cmdline, "/usr/bin/store -c /etc/store.conf");
	set_string(profile, &profile->loader, "dlopen");
	set_string(profile, &profile->allocator, "glibc 2.36");
	profile->start_unix_ns = 1796000000ll * (int64_t)NS_PER_S;
	profile->duration_ns = 600 * NS_PER_S;
	profile->end = PROFILE_END_INTERRUPTED;
	profile->memory_start = (struct profile_memory){
		.rss_bytes = 2870 * MIB,
		.anon_bytes = 2800 * MIB,
		.file_bytes = 68 * MIB,
		.shmem_bytes = 2 * MIB,
	};
	profile->memory_end = (struct profile_memory){
		.rss_bytes = 2910 * MIB,
		.anon_bytes = 2834 * MIB,
		.file_bytes = 68 * MIB,
		.shmem_bytes = 8 * MIB,
		.own_bytes = 6 * MIB,
	};
	for (size_t i = 0; i < ARRAY_SIZE(pauses); i++)
		assert_ok(profile_add_pause(profile, &pauses[i]));
	profile->selfcheck = (struct profile_selfcheck){true, 12000, 1100, 0};
}

static void describe_coverage(struct profile *profile)
{
	struct profile_coverage *coverage = &profile->coverage;

	coverage->modules = 24;
	coverage->slots = 312;
	coverage->events = 4000000;
	coverage->truncated_stacks = 12;
	coverage->unknown_frees = 900;
	coverage->missed_frees = 3;
	coverage->saved_pointers = 2;
	coverage->adopted = 7;
	coverage->adopted_bytes = 4096;
	assert_ok(profile_add_skipped(profile, "/usr/lib/libodd.so.1",
				      "its relocations are malformed"));
}

struct server_sites {
	uint32_t session, cache, request, unknown;
};

static struct server_sites add_server_sites(struct profile *profile)
{
	uint32_t exe = add_module(profile, "/usr/bin/store", "0123456789abcdef", 0x555500000000,
				  NULL, true);
	uint32_t libc =
		add_module(profile, "/lib/x86_64-linux-gnu/libc.so.6", "feedface", 0x7f0000000000,
			   "no line numbers: libc6-dbg is not installed", false);
	uint32_t cxx = add_module(profile, "/lib/x86_64-linux-gnu/libstdc++.so.6", NULL,
				  0x7f1000000000, NULL, false);
	const struct profile_frame session = {"session_new", "session_new", "src/session.c", 118,
					      false};
	const struct profile_frame accept[] = {
		{"accept_client", "accept_client", "src/net.c", 77, true},
		{"event_loop", "event_loop", "src/main.c", 210, false},
	};
	const struct profile_frame main_frame = {"main", "main", "src/main.c", 300, false};
	const struct profile_frame start = {"__libc_start_main", "__libc_start_main", NULL, 0,
					    false};
	const struct profile_frame operator_new = {"operator new(unsigned long)", "_Znwm", NULL, 0,
						   false};
	const struct profile_frame push = {
		"std::vector<store::Row, std::allocator<store::Row> >::push_back(store::Row "
		"const&)",
		"_ZN5store", "/build/store-3.2/src/very/long/path/to/the/query/engine/query.cc", 55,
		false};
	uint32_t top = add_location(profile, exe, 0x4010, &main_frame, 1);
	uint32_t begin = add_location(profile, libc, 0x271c9, &start, 1);
	uint32_t loop = add_location(profile, exe, 0x3010, accept, 2);
	uint32_t made = add_location(profile, exe, 0x2010, &session, 1);
	uint32_t new = add_location(profile, cxx, 0xa010, &operator_new, 1);
	uint32_t pushed = add_location(profile, exe, 0x5010, &push, 1);
	uint32_t nameless = add_location(profile, exe, 0x6010, NULL, 0);
	uint32_t jit = add_location(profile, PROFILE_NONE, 0x7ffe00001234, NULL, 0);
	const uint32_t session_stack[] = {made, loop, top, begin};
	const uint32_t cache_stack[] = {new, pushed, loop, top, begin};
	const uint32_t request_stack[] = {nameless, jit};

	return (struct server_sites){
		.session = add_site(profile, session_stack, ARRAY_SIZE(session_stack), 0),
		.cache = add_site(profile, cache_stack, ARRAY_SIZE(cache_stack), 0),
		.request = add_site(profile, request_stack, ARRAY_SIZE(request_stack),
				    PROFILE_SITE_TRUNCATED | PROFILE_SITE_GUESSED),
		.unknown = add_site(profile, NULL, 0, PROFILE_SITE_UNKNOWN),
	};
}

static void add_bin(struct profile *profile, uint32_t site, enum profile_bin_kind kind,
		    uint8_t number, uint64_t count, uint64_t size)
{
	const struct profile_bin bin = {
		.site = site,
		.kind = (uint8_t)kind,
		.bin = number,
		.count = count,
		.bytes = kind == PROFILE_AGES ? count * size : 0,
	};

	assert_ok(profile_add_bin(profile, &bin));
}

/* Sessions live long or seconds; requests live 20 ms, and half of them are temporary. */
static void describe_ages(struct profile *profile, const struct server_sites *sites)
{
	add_bin(profile, sites->session, PROFILE_AGES, 14, 30000, 440);
	add_bin(profile, sites->session, PROFILE_AGES, 15, 18000, 440);
	add_bin(profile, sites->session, PROFILE_AGES, 16, 12000, 440);
	add_bin(profile, sites->session, PROFILE_SIZES, 6, 66000, 440);
	add_bin(profile, sites->session, PROFILE_LIFETIMES, 9, 6000, 440);
	add_bin(profile, sites->request, PROFILE_SIZES, 4, 3600000, 64);
	add_bin(profile, sites->request, PROFILE_LIFETIMES, 0, 1800000, 64);
	add_bin(profile, sites->request, PROFILE_LIFETIMES, 2, 1800000, 64);
	add_bin(profile, sites->cache, PROFILE_AGES, 15, 4000, 1024);
	profile_bins_end(profile);
	profile->site[sites->request].temporary = 1800000;
	profile->limits = (struct profile_limits){
		.memory_max_bytes = 1024 * MIB,
		.memory_peak_bytes = 60 * MIB,
	};
}

struct profile *sample_server(void)
{
	struct profile *profile = sample_empty();
	struct server_sites sites = add_server_sites(profile);

	describe_server(profile);
	describe_coverage(profile);
	for (uint64_t s = 0; s <= 600; s += 10) {
		uint64_t cached = s < 100 ? s * 40 : 4000;

		begin_snapshot(profile, s, (2870 + s / 15) * MIB, (2800 + s / 18) * MIB, s * 3 / 2);
		add_sums(profile, sites.session, s * 110, s * 10, 440);
		add_sums(profile, sites.cache, cached, 0, 1024);
		add_sums(profile, sites.request, s * 6000, s * 6000 - (s % 3) * 10, 64);
		if (s)
			add_sums(profile, sites.unknown, 12, 0, 100);
		assert_ok(profile_snapshot_end(profile));
	}
	profile->site[sites.session].missed_frees = 3;
	describe_ages(profile, &sites);
	return profile;
}

/* Variances of samples 512 KiB apart. */
static void set_variance(struct profile_site *site)
{
	const struct profile_sums *sums = &site->sums;
	double one = 512 << 10, size = (double)sums->alloc_bytes / (double)sums->alloc_count + 1;

	site->variance = (struct profile_variance){
		.alloc_bytes = (double)sums->alloc_bytes * one,
		.alloc_count = (double)sums->alloc_count * one / size,
		.inuse_bytes = (double)profile_inuse_bytes(sums) * one,
		.inuse_count = (double)profile_inuse_count(sums) * one / size,
	};
}

struct profile *sample_sampled(void)
{
	struct profile *profile = sample_server();

	profile->interval = 512 << 10;
	profile->sampling = (struct profile_sampling){
		.interval_low = 1,
		.interval_high = 1 << 20,
		.changes = 21,
		.budget_permille = 20,
		.cost_permille = 17,
	};
	profile->coverage.adopted = 0;
	for (size_t i = 0; i < profile->site_count; i++)
		set_variance(&profile->site[i]);
	return profile;
}

/* ---- others ---- */

struct profile *sample_large(uint32_t sites, uint32_t depth)
{
	struct profile *profile = sample_empty();
	uint32_t module = add_module(profile, "/usr/bin/large", "aa", 0x400000, NULL, true);
	uint32_t locations[PROFILE_DEPTH_MAX];

	ck_assert_uint_le(depth, ARRAY_SIZE(locations));
	for (uint32_t i = 0; i < sites; i++) {
		for (uint32_t k = 0; k < depth; k++) {
			uint64_t vaddr = 0x1000 + (k ? (i >> k) * 16 + k : i * 16);
			char name[32];
			struct profile_frame frame = {name, name, "large.c", 0, false};

			snprintf(name, sizeof(name), "f_%llx", (unsigned long long)vaddr);
			frame.line = (uint32_t)vaddr;
			locations[k] = add_location(profile, module, vaddr, &frame, 1);
		}
		add_site(profile, locations, depth, 0);
	}
	for (uint64_t s = 0; s <= 10; s += 10) {
		begin_snapshot(profile, s, MIB, MIB, 0);
		for (uint32_t i = 0; s && i < sites; i++)
			add_sums(profile, i, i + 2, i / 2, 48);
		assert_ok(profile_snapshot_end(profile));
	}
	profile->duration_ns = 10 * NS_PER_S;
	return profile;
}

struct profile *sample_curve(const unsigned int *inuse_mib, const unsigned int *anon_mib,
			     size_t count, unsigned int seconds)
{
	struct profile *profile = sample_empty();
	uint32_t module = add_module(profile, "/usr/bin/curve", "bb", 0x400000, NULL, true);
	const struct profile_frame frame = {"fill", "fill", "curve.c", 7, false};
	uint32_t location = add_location(profile, module, 0x1010, &frame, 1);
	uint32_t site = add_site(profile, &location, 1, 0);
	uint64_t allocated = 0, freed = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t inuse = allocated - freed;

		if (inuse_mib[i] > inuse)
			allocated += inuse_mib[i] - inuse;
		else
			freed += inuse - inuse_mib[i];
		begin_snapshot(profile, i * seconds, (anon_mib[i] + 10) * MIB, anon_mib[i] * MIB,
			       0);
		add_sums(profile, site, allocated, freed, MIB);
		assert_ok(profile_snapshot_end(profile));
	}
	profile->duration_ns = (count - 1) * seconds * NS_PER_S;
	profile->memory_start.anon_bytes = anon_mib[0] * MIB;
	profile->memory_end.anon_bytes = anon_mib[count - 1] * MIB;
	return profile;
}
