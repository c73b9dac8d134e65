// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/loaderinfo.h"
#include "resolver/cleanup.h"
#include "tests/subject.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>

static struct subject subject;
static struct loader_info info;

/* The test itself is the target: what was found can be tried. */
static void setup_self(void)
{
	subject_open(&subject, getpid());
	assert_ok(loaderinfo_read(&subject.memory, &subject.maps, getpid(), 0, &subject.modules,
				  &info));
}

static void teardown(void)
{
	subject_end(&subject);
}

START_TEST(finds_the_functions)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);

	ck_assert_uint_eq(info.fn_dlopen, (uint64_t)dlsym(libc, "dlopen"));
	ck_assert_uint_eq(info.fn_dlerror, (uint64_t)dlsym(libc, "dlerror"));
	ck_assert_uint_eq(info.fn_errno_location, (uint64_t)dlsym(libc, "__errno_location"));
	ck_assert_uint_ne(info.fn_trylock, 0);
	ck_assert_uint_ne(info.fn_unlock, 0);
	ck_assert(loaderinfo_can_dlopen(&info, NULL));
}
END_TEST

static int count_adds(struct dl_phdr_info *phdr, size_t size, void *ctx)
{
	*(uint64_t *)ctx = phdr->dlpi_adds;
	return 1;
}

START_TEST(finds_the_load_counter)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	uint64_t adds = 0;

	dl_iterate_phdr(count_adds, &adds);
	ck_assert_uint_ne(info.load_adds, 0);
	ck_assert_uint_eq(*(uint64_t *)info.load_adds, adds);
	ck_assert_uint_eq(subject.modules.load_adds, adds);
	ck_assert_ptr_nonnull(dlopen(path, RTLD_NOW));
	ck_assert_uint_gt(*(uint64_t *)info.load_adds, adds);
}
END_TEST

/* In a callback of dl_iterate_phdr the loader's write lock is held, in a constructor dl_load_lock.
 */
struct in_use {
	bool found;
};

static int look_during_callback(struct dl_phdr_info *phdr, size_t size, void *ctx)
{
	struct in_use *in_use = ctx;
	struct loader_info now;

	assert_ok(loaderinfo_read(&subject.memory, &subject.maps, 0, 0, &subject.modules, &now));
	in_use->found = now.lock == info.lock && now.load_adds == info.load_adds;
	return 1;
}

START_TEST(finds_the_lock_while_the_loader_holds_one)
{
	struct in_use in_use = {0};

	dl_iterate_phdr(look_during_callback, &in_use);
	ck_assert(in_use.found);
}
END_TEST

static void *try_lock(void *lock)
{
	int result = pthread_mutex_trylock(lock);

	if (result == 0)
		pthread_mutex_unlock(lock);
	return (void *)(intptr_t)result;
}

START_TEST(finds_the_lock_that_dlopen_takes)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	pthread_mutex_t *lock = (pthread_mutex_t *)info.lock;
	struct loader_info again;
	pthread_t thread;
	void *result;

	ck_assert_uint_ne(info.lock, 0);
	ck_assert_int_eq(pthread_mutex_trylock(lock), 0);
	/* Recognised while it is held, and recursive for its owner. */
	assert_ok(loaderinfo_read(&subject.memory, &subject.maps, 0, 0, &subject.modules, &again));
	ck_assert_uint_eq(again.lock, info.lock);
	ck_assert_ptr_nonnull(dlopen(path, RTLD_NOW));
	ck_assert_int_eq(pthread_create(&thread, NULL, try_lock, lock), 0);
	pthread_join(thread, &result);
	ck_assert_int_eq((int)(intptr_t)result, EBUSY);
	pthread_mutex_unlock(lock);
}
END_TEST

START_TEST(finds_the_pending_dlerror)
{
	uint64_t fs = (uint64_t)pthread_self(); /* the control block points to itself */
	void **pending = (void **)(fs + (uint64_t)info.dlerror_offset);

	ck_assert_int_ne(info.dlerror_offset, 0);
	dlerror();
	ck_assert_ptr_null(*pending);
	ck_assert_ptr_null(dlopen("/nonexistent/object", RTLD_NOW));
	ck_assert_ptr_nonnull(*pending);
	dlerror();
}
END_TEST

static void *read_bounds(void *offset)
{
	const uint64_t *words = (uint64_t *)((uint64_t)pthread_self() + (uint64_t)offset);
	uint64_t here = (uint64_t)__builtin_frame_address(0);

	return (void *)(intptr_t)(here >= words[0] && here < words[0] + words[1]);
}

START_TEST(finds_where_threads_keep_their_stack_bounds)
{
	pthread_t thread;
	void *inside;

	ck_assert_uint_eq(info.main_fs, (uint64_t)pthread_self());
	ck_assert_uint_ne(info.tcb_stack_offset, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, read_bounds, (void *)info.tcb_stack_offset),
			 0);
	pthread_join(thread, &inside);
	ck_assert_ptr_nonnull(inside);
}
END_TEST

START_TEST(finds_both_names_of_an_object)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	struct link_map *map = dlopen(path, RTLD_NOW);
	uint64_t names[2];

	ck_assert_ptr_nonnull(map);
	assert_ok(loaderinfo_names(&subject.memory, (uint64_t)map, path, names));
	ck_assert_uint_eq(names[0], (uint64_t)map->l_name);
	ck_assert_str_eq((char *)names[0], path);
	ck_assert_str_eq((char *)names[1], path);
	assert_fails(loaderinfo_names(&subject.memory, (uint64_t)map, "/other", names),
		     ERROR_NOT_FOUND);
	dlclose(map);
}
END_TEST

START_TEST(does_not_offer_dlopen_of_musl)
{
	const char *why = NULL;

	subject_start(&subject, "slots_musl");
	assert_ok(loaderinfo_read(&subject.memory, &subject.maps, subject.child.pid, 0,
				  &subject.modules, &info));
	ck_assert(!loaderinfo_can_dlopen(&info, &why));
	ck_assert_str_eq(why, "the loader's lock was not found");
}
END_TEST

START_TEST(notices_an_auditor)
{
	const char *why = NULL;

	setenv("LD_AUDIT", "libnot_there.so", 1);
	subject_start(&subject, "slots_now");
	unsetenv("LD_AUDIT");
	assert_ok(loaderinfo_read(&subject.memory, &subject.maps, subject.child.pid, 0,
				  &subject.modules, &info));
	ck_assert(info.auditors);
	ck_assert(!loaderinfo_can_dlopen(&info, &why));
}
END_TEST

Suite *loaderinfo_suite(void)
{
	Suite *suite = suite_create("loaderinfo");
	TCase *self = tcase_create("self"), *others = tcase_create("others");

	tcase_add_checked_fixture(self, setup_self, teardown);
	tcase_set_timeout(self, 60);
	tcase_add_test(self, finds_the_functions);
	tcase_add_test(self, finds_the_load_counter);
	tcase_add_test(self, finds_the_lock_while_the_loader_holds_one);
	tcase_add_test(self, finds_the_lock_that_dlopen_takes);
	tcase_add_test(self, finds_the_pending_dlerror);
	tcase_add_test(self, finds_where_threads_keep_their_stack_bounds);
	tcase_add_test(self, finds_both_names_of_an_object);
	suite_add_tcase(suite, self);
	tcase_add_checked_fixture(others, NULL, teardown);
	tcase_set_timeout(others, 60);
	tcase_add_test(others, does_not_offer_dlopen_of_musl);
	tcase_add_test(others, notices_an_auditor);
	suite_add_tcase(suite, others);
	return suite;
}
