// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/linklist.h"
#include "injector/modules.h"
#include "resolver/cleanup.h"
#include "tests/subject.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>

static struct subject subject;

static void setup_lazy(void)
{
	subject_start(&subject, "slots_lazy");
}

static void teardown(void)
{
	subject_end(&subject);
}

/* ---- real processes */

START_TEST(reads_what_every_process_has)
{
	const struct module *program = modules_executable(&subject.modules);
	const struct module *libc = modules_libc(&subject.modules);
	const struct module *loader = modules_loader(&subject.modules);
	size_t vdsos = 0;

	ck_assert_ptr_nonnull(program);
	ck_assert_ptr_nonnull(libc);
	ck_assert_ptr_nonnull(loader);
	ck_assert_ptr_eq(program, subject_module(&subject, "/slots_lazy"));
	ck_assert_ptr_eq(libc, subject_module(&subject, "/libc.so.6"));
	ck_assert_int_eq(subject.modules.libc, LIBC_GLIBC);
	ck_assert(libc->defines_malloc);
	ck_assert(!program->defines_malloc);
	ck_assert(!subject.modules.is_static);
	for (size_t i = 0; i < subject.modules.count; i++) {
		const struct module *module = subject.modules.module[i];

		vdsos += module->is_vdso;
		ck_assert(module->is_permanent);
		ck_assert_ptr_null(module->problem);
		ck_assert_uint_lt(module->low, module->high);
		ck_assert_uint_gt(module->exec_count, 0);
		ck_assert_uint_gt(module->build_id_size, 0);
		ck_assert_uint_ne(module->eh_frame_hdr, 0);
	}
	ck_assert_uint_eq(vdsos, 1);
}
END_TEST

START_TEST(finds_symbols_at_their_addresses)
{
	const struct module *libc;
	struct subject self;
	uint64_t address;

	subject_open(&self, getpid());
	libc = modules_libc(&self.modules);
	assert_ok(module_symbol(libc, "getpid", &address));
	ck_assert_uint_eq(address, (uint64_t)dlsym(RTLD_DEFAULT, "getpid"));
	assert_ok(module_symbol(libc, "getppid", &address));
	ck_assert_uint_eq(address, (uint64_t)dlsym(RTLD_DEFAULT, "getppid"));
	assert_fails(module_symbol(libc, "no_such_function", &address), ERROR_NOT_FOUND);
	/* An IFUNC's address is not that of the function. */
	ck_assert_uint_eq(module_symbol_or_0(libc, "memcpy"), 0);
	subject_end(&self);
}
END_TEST

struct seen {
	const struct modules *modules;
	size_t count;
};

static int expect_listed(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct seen *seen = ctx;
	uint64_t code = 0;
	const struct module *module;

	for (int i = 0; i < info->dlpi_phnum && !code; i++) {
		if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X))
			code = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
	}
	module = modules_find_code(seen->modules, code);
	ck_assert_msg(module != NULL, "%s is not listed", info->dlpi_name);
	ck_assert_uint_eq(module->bias, info->dlpi_addr);
	seen->count++;
	return 0;
}

START_TEST(lists_what_the_loader_lists)
{
	struct subject self;
	struct seen seen;

	subject_open(&self, getpid());
	seen = (struct seen){.modules = &self.modules};
	dl_iterate_phdr(expect_listed, &seen);
	ck_assert_uint_eq(seen.count, self.modules.count);
	subject_end(&self);
}
END_TEST

START_TEST(keeps_the_mapped_file_open)
{
	const struct module *program = modules_executable(&subject.modules);
	CLEANUP(freep) char *path = tests_build_path("targets/slots_lazy");
	struct stat mapped, file;

	ck_assert_int_ge(program->fd, 0);
	ck_assert_int_eq(fstat(program->fd, &mapped), 0);
	ck_assert_int_eq(stat(path, &file), 0);
	ck_assert_uint_eq(mapped.st_ino, file.st_ino);
}
END_TEST

START_TEST(reads_a_deleted_program)
{
	CLEANUP(freep) char *path = tests_build_path("targets/slots_now");
	const char *argv[] = {"./copy", NULL};
	const struct module *program;
	struct folder folder;
	struct subject self;
	struct child child;

	folder_create(&folder);
	free(command_run(&folder, NULL, 10, "cp %s copy", path));
	child_start(&child, &folder, NULL, argv);
	ck_assert_str_eq(child_line(&child), "ready");
	free(command_run(&folder, NULL, 10, "rm copy"));
	subject_open(&self, child.pid);
	program = modules_executable(&self.modules);
	ck_assert(program->deleted);
	ck_assert_int_ge(program->fd, 0);
	ck_assert_uint_gt(program->reference_count, 3);
	subject_end(&self);
	child_end(&child);
	folder_remove(&folder);
}
END_TEST

START_TEST(sees_objects_come_and_go)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	const struct module *libc = modules_libc(&subject.modules), *plugin;
	size_t before = subject.modules.count;
	char line[4096];
	uint32_t id;

	snprintf(line, sizeof(line), "load %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	plugin = subject_module(&subject, "/libslots_plugin.so");
	ck_assert_uint_eq(subject.modules.count, before + 1);
	ck_assert_ptr_eq(modules_libc(&subject.modules), libc); /* not parsed again */
	ck_assert(!plugin->is_permanent);
	ck_assert(libc->is_permanent);
	id = plugin->id;
	child_expect(&subject.child, "unload", "ok");
	subject_update(&subject);
	ck_assert_uint_eq(subject.modules.count, before);
	ck_assert_uint_eq(subject.modules.gone_count, 1);
	ck_assert_ptr_eq(modules_find_id(&subject.modules, id), plugin);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	ck_assert_uint_ne(subject_module(&subject, "/libslots_plugin.so")->id, id);
}
END_TEST

/* All that was there when the modules were read but @gone: NULL = all. */
static void expect_there(const struct module *gone)
{
	CLEANUP(freep) bool *there = modules_flags(&subject.modules);

	ck_assert_ptr_nonnull(there);
	assert_ok(modules_still_there(&subject.memory, &subject.modules, there));
	for (size_t i = 0; i < subject.modules.count; i++) {
		const struct module *module = subject.modules.module[i];

		ck_assert_int_eq(there[module->id], module != gone);
	}
}

START_TEST(knows_what_is_still_there)
{
	CLEANUP(freep) char *plugin = tests_build_path("targets/libslots_plugin.so");
	CLEANUP(freep) char *library = tests_build_path("targets/liblate.so");
	char line[4096];

	expect_there(NULL);
	/* An id that is not the last, and one that nothing has any more. */
	snprintf(line, sizeof(line), "load %s", plugin);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	child_expect(&subject.child, "unload", "ok");
	expect_there(subject_module(&subject, "/libslots_plugin.so"));
	subject_update(&subject);
	expect_there(NULL);
	snprintf(line, sizeof(line), "newspace %s", library);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	expect_there(NULL);
}
END_TEST

START_TEST(sees_other_namespaces)
{
	CLEANUP(freep) char *path = tests_build_path("targets/libslots_plugin.so");
	size_t libcs = 0;
	char line[4096];

	snprintf(line, sizeof(line), "newspace %s", path);
	child_expect(&subject.child, line, "ok");
	subject_update(&subject);
	ck_assert_uint_eq(subject.modules.name_spaces, 2);
	ck_assert_uint_eq(subject_module(&subject, "/libslots_plugin.so")->name_space, 1);
	for (size_t i = 0; i < subject.modules.count; i++)
		libcs += subject.modules.module[i]->is_libc;
	ck_assert_uint_eq(libcs, 2);
	ck_assert_uint_eq(modules_libc(&subject.modules)->name_space, 0);
}
END_TEST

START_TEST(finds_entry_by_its_magic)
{
	CLEANUP(freep) char *path = tests_build_path("payload/entry.so");
	const struct module *entry;
	char line[4096];
	uint64_t address;

	ck_assert_ptr_null(modules_entry(&subject.modules));
	snprintf(line, sizeof(line), "entry %s", path);
	address = strtoull(child_ask(&subject.child, line), NULL, 16);
	subject_update(&subject);
	entry = modules_entry(&subject.modules);
	ck_assert_ptr_nonnull(entry);
	ck_assert_uint_eq(entry->low, address);
}
END_TEST

START_TEST(reads_a_musl_program)
{
	const struct module *libc;

	subject_start(&subject, "slots_musl");
	libc = modules_libc(&subject.modules);
	ck_assert_int_eq(subject.modules.libc, LIBC_MUSL);
	ck_assert_ptr_nonnull(libc);
	ck_assert(libc->is_loader);
	ck_assert_uint_gt(libc->reference_count, 3); /* DT_RELA is not relocated by musl */
	ck_assert_uint_gt(modules_executable(&subject.modules)->reference_count, 3);
}
END_TEST

START_TEST(reads_a_program_that_the_loader_was_given)
{
	CLEANUP(freep) char *path = tests_build_path("targets/slots_now");
	const char *argv[] = {"/lib64/ld-linux-x86-64.so.2", path, NULL};
	struct folder folder;
	struct subject self;
	struct child child;

	folder_create(&folder);
	child_start(&child, &folder, NULL, argv);
	ck_assert_str_eq(child_line(&child), "ready");
	subject_open(&self, child.pid);
	ck_assert_ptr_eq(modules_executable(&self.modules), subject_module(&self, "/slots_now"));
	ck_assert_ptr_eq(modules_loader(&self.modules),
			 subject_module(&self, "/ld-linux-x86-64.so.2"));
	ck_assert(!modules_loader(&self.modules)->is_executable);
	subject_end(&self);
	child_end(&child);
	folder_remove(&folder);
}
END_TEST

START_TEST(tells_static_programs)
{
	subject_start(&subject, "storm_static");
	ck_assert(subject.modules.is_static);
	ck_assert_ptr_nonnull(modules_executable(&subject.modules));
}
END_TEST

/* ---- memory that makes no sense */

/* A copy of one module's memory, in which bytes can be broken. */
struct image {
	uint64_t low;
	size_t size;
	uint8_t *bytes;
};

static struct error *image_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	const struct image *image = ctx;

	if (addr < image->low || addr - image->low > image->size ||
	    size > image->size - (addr - image->low))
		return error_create(ERROR_NOT_FOUND, "not mapped");
	memcpy(buf, image->bytes + (addr - image->low), size);
	return NULL;
}

/* Holes between segments read as zeros. */
static void image_copy(struct image *ret, const struct module *module)
{
	ret->low = module->low;
	ret->size = module->high - module->low;
	ret->bytes = calloc(1, ret->size);
	for (size_t at = 0; at < ret->size; at += HA_PAGE) {
		if (!memory_try(&subject.memory, ret->low + at, ret->bytes + at, HA_PAGE))
			memset(ret->bytes + at, 0, HA_PAGE);
	}
}

static bool count_visit(void *ctx, const struct dynamic_relocation *relocation)
{
	(*(size_t *)ctx)++;
	return true;
}

static uint64_t dynamic_size(const struct module *module)
{
	return 0x200 < module->high - module->dynamic ? 0x200 : module->high - module->dynamic;
}

/* Parse it and use all that came out; true if it was accepted. */
static bool image_use(struct image *image, const struct module *module)
{
	struct memory_reader memory = {.read = image_read, .ctx = image};
	struct dynamic dynamic;
	size_t count = 0;
	struct error *err;

	err = dynamic_parse(&memory, module->dynamic, dynamic_size(module), module->bias,
			    module->low, module->high, &dynamic);
	if (err) {
		error_free(err);
		return false;
	}
	for (size_t i = 0; i <= dynamic.symbol_count; i++)
		count += strlen(dynamic_symbol_name(&dynamic, i));
	dynamic_find(&dynamic, "plugin_work");
	dynamic_find(&dynamic, "malloc");
	error_free(dynamic_relocations(&memory, &dynamic, count_visit, &count));
	dynamic_deinit(&dynamic);
	return true;
}

START_TEST(survives_any_broken_word_of_the_dynamic_section)
{
	static const uint64_t values[] = {0,	      1,     7,		0x7fffffff, 0xffffffff,
					  1ull << 40, ~0ull, ~0ull - 7, 1ull << 63};
	const struct module *program = modules_executable(&subject.modules);
	size_t start = program->dynamic - program->low, refused = 0;
	struct image image;

	image_copy(&image, program);
	ck_assert(image_use(&image, program));
	for (size_t at = start; at < start + dynamic_size(program); at += 8) {
		uint64_t good;

		memcpy(&good, image.bytes + at, 8);
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			memcpy(image.bytes + at, &values[i], 8);
			refused += !image_use(&image, program);
		}
		memcpy(image.bytes + at, &good, 8);
	}
	ck_assert_uint_gt(refused, 20);
	free(image.bytes);
}
END_TEST

START_TEST(survives_random_damage)
{
	const struct module *program = modules_executable(&subject.modules);
	uint64_t random = 88172645463325252ull;
	struct image image, broken;

	image_copy(&image, program);
	broken = image;
	broken.bytes = malloc(image.size);
	for (int round = 0; round < 500; round++) {
		memcpy(broken.bytes, image.bytes, image.size);
		for (int i = 0; i < 40; i++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			broken.bytes[random % image.size] = (uint8_t)(random >> 40);
		}
		image_use(&broken, program);
	}
	free(broken.bytes);
	free(image.bytes);
}
END_TEST

/* ---- the loader's list */

/* A list of link maps in a byte array that stands for address 0x1000. */
struct fake_list {
	uint64_t word[64];
	size_t calls;
};
#define FAKE_BASE   0x1000ull
#define FAKE_MAP(i) (FAKE_BASE + 0x80 + 0x40 * (uint64_t)(i))

static struct error *fake_read(void *ctx, uint64_t addr, void *buf, size_t size)
{
	struct fake_list *list = ctx;

	list->calls++;
	if (addr < FAKE_BASE || addr - FAKE_BASE > sizeof(list->word) ||
	    size > sizeof(list->word) - (addr - FAKE_BASE))
		return error_create(ERROR_NOT_FOUND, "not mapped");
	memcpy(buf, (char *)list->word + (addr - FAKE_BASE), size);
	return NULL;
}

static void fake_words(void *ctx, struct memory_word *words, size_t count)
{
	struct fake_list *list = ctx;
	struct memory_reader memory = {.read = fake_read, .ctx = list};
	size_t calls = list->calls;

	memory_try_words(&memory, words, count);
	list->calls = calls + 1;
}

/* Three objects. */
static void fake_fill(struct fake_list *list)
{
	memset(list, 0, sizeof(*list));
	list->word[0] = 1; /* r_version */
	list->word[1] = FAKE_MAP(0);
	for (size_t i = 0; i < 3; i++) {
		uint64_t *map = &list->word[(FAKE_MAP(i) - FAKE_BASE) / 8];

		map[0] = 0x10000 * (i + 1);
		map[2] = map[0] + 0x100;
		map[3] = i < 2 ? FAKE_MAP(i + 1) : 0;
		map[4] = i > 0 ? FAKE_MAP(i - 1) : 0;
	}
}

START_TEST(reads_the_list_in_order)
{
	struct fake_list list;
	struct memory_reader memory = {.read = fake_read, .ctx = &list};
	struct link_list links;

	fake_fill(&list);
	assert_ok(linklist_read(&memory, FAKE_BASE, &links));
	ck_assert_uint_eq(links.count, 3);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(links.entry[i].map, FAKE_MAP(i));
		ck_assert_uint_eq(links.entry[i].bias, 0x10000 * (i + 1));
	}
	linklist_deinit(&links);
}
END_TEST

static void expect_frozen(const struct memory_reader *memory, const uint64_t *maps, size_t count)
{
	CLEANUP(linklist_deinit) struct link_list links = {0};

	assert_ok(linklist_read_frozen(memory, FAKE_BASE, maps, count, &links));
	ck_assert_uint_eq(links.count, 3);
	for (size_t i = 0; i < 3; i++)
		ck_assert_uint_eq(links.entry[i].map, FAKE_MAP(i));
}

/* Others were unloaded since, and their memory with them or not; one is new. */
START_TEST(reads_a_frozen_list_whatever_was_expected)
{
	static const uint64_t all[] = {FAKE_MAP(0), FAKE_MAP(1), FAKE_MAP(2)};
	static const uint64_t others[] = {FAKE_MAP(2), 0x100, FAKE_MAP(3), FAKE_MAP(0),
					  FAKE_MAP(0)};
	struct fake_list list;
	struct memory_reader memory = {.read = fake_read, .ctx = &list};

	fake_fill(&list);
	expect_frozen(&memory, NULL, 0);
	expect_frozen(&memory, all, 3);
	expect_frozen(&memory, others, 5);
}
END_TEST

/* While the target waits: with thousands of objects, a call for each would take too long. */
START_TEST(reads_a_frozen_list_with_few_calls)
{
	static const uint64_t all[] = {FAKE_MAP(2), FAKE_MAP(1), FAKE_MAP(0)};
	struct fake_list list;
	struct memory_reader memory = {.read = fake_read, .words = fake_words, .ctx = &list};

	fake_fill(&list);
	expect_frozen(&memory, all, 3);
	ck_assert_uint_eq(list.calls, 2);
}
END_TEST

START_TEST(finds_entries_by_all_that_they_are_known_by)
{
	struct fake_list list;
	struct memory_reader memory = {.read = fake_read, .ctx = &list};
	struct link_list links;

	fake_fill(&list);
	assert_ok(linklist_read(&memory, FAKE_BASE, &links));
	for (uint64_t i = 0; i < 3; i++) {
		uint64_t bias = 0x10000 * (i + 1), dynamic = bias + 0x100;

		ck_assert_ptr_eq(linklist_find(&links, FAKE_MAP(i), bias, dynamic),
				 &links.entry[i]);
		ck_assert_ptr_null(linklist_find(&links, FAKE_MAP(i + 1), bias, dynamic));
		ck_assert_ptr_null(linklist_find(&links, FAKE_MAP(i), bias + 1, dynamic));
		ck_assert_ptr_null(linklist_find(&links, FAKE_MAP(i), bias, dynamic + 1));
		/* What the loader does not list has no link map. */
		ck_assert_ptr_null(linklist_find(&links, 0, bias, dynamic));
	}
	linklist_deinit(&links);
	links = (struct link_list){0};
	ck_assert_ptr_null(linklist_find(&links, FAKE_MAP(0), 0x10000, 0x10100));
}
END_TEST

START_TEST(refuses_a_list_that_never_ends)
{
	struct fake_list list;
	struct memory_reader memory = {.read = fake_read, .ctx = &list};
	struct link_list links;

	fake_fill(&list);
	list.word[(FAKE_MAP(2) - FAKE_BASE) / 8 + 3] = FAKE_MAP(0);
	assert_fails(linklist_read(&memory, FAKE_BASE, &links), ERROR_BUSY);
	list.word[(FAKE_MAP(2) - FAKE_BASE) / 8 + 3] = FAKE_MAP(2);
	assert_fails(linklist_read(&memory, FAKE_BASE, &links), ERROR_BUSY);
}
END_TEST

START_TEST(waits_for_a_list_that_is_being_changed)
{
	struct fake_list list;
	struct memory_reader memory = {.read = fake_read, .ctx = &list};
	struct link_list links;

	fake_fill(&list);
	list.word[3] = 1; /* RT_ADD */
	assert_fails(linklist_read(&memory, FAKE_BASE, &links), ERROR_BUSY);
	list.word[3] = 0;
	list.word[1] = 0; /* the program has not begun */
	assert_fails(linklist_read(&memory, FAKE_BASE, &links), ERROR_BUSY);
}
END_TEST

START_TEST(refuses_an_auxv_without_program_headers)
{
	const uint64_t good[] = {AT_PHDR, 0x400040, AT_PHENT, 56, AT_PHNUM,
				 11,	  AT_BASE,  0x7f00,   0,  0};
	struct module_auxv auxv;

	assert_ok(module_auxv_parse(good, sizeof(good), &auxv));
	ck_assert_uint_eq(auxv.phdr, 0x400040);
	ck_assert_uint_eq(auxv.base, 0x7f00);
	assert_fails(module_auxv_parse(good, 8, &auxv), ERROR_FORMAT);
	assert_fails(module_auxv_parse(good, 32, &auxv), ERROR_FORMAT);
	assert_fails(module_auxv_parse(good, 0, &auxv), ERROR_FORMAT);
}
END_TEST

Suite *modules_suite(void)
{
	Suite *suite = suite_create("modules");
	TCase *lazy = tcase_create("process"), *own = tcase_create("kinds");
	TCase *broken = tcase_create("broken"), *pure = tcase_create("pure");

	tcase_add_checked_fixture(lazy, setup_lazy, teardown);
	tcase_set_timeout(lazy, 60);
	tcase_add_test(lazy, reads_what_every_process_has);
	tcase_add_test(lazy, keeps_the_mapped_file_open);
	tcase_add_test(lazy, sees_objects_come_and_go);
	tcase_add_test(lazy, knows_what_is_still_there);
	tcase_add_test(lazy, sees_other_namespaces);
	tcase_add_test(lazy, finds_entry_by_its_magic);
	suite_add_tcase(suite, lazy);
	tcase_add_checked_fixture(own, NULL, teardown);
	tcase_set_timeout(own, 60);
	tcase_add_test(own, reads_a_musl_program);
	tcase_add_test(own, reads_a_program_that_the_loader_was_given);
	tcase_add_test(own, tells_static_programs);
	suite_add_tcase(suite, own);
	tcase_add_checked_fixture(broken, setup_lazy, teardown);
	tcase_set_timeout(broken, 120);
	tcase_add_test(broken, survives_any_broken_word_of_the_dynamic_section);
	tcase_add_test(broken, survives_random_damage);
	suite_add_tcase(suite, broken);
	tcase_set_timeout(pure, 60);
	tcase_add_test(pure, finds_symbols_at_their_addresses);
	tcase_add_test(pure, lists_what_the_loader_lists);
	tcase_add_test(pure, reads_a_deleted_program);
	tcase_add_test(pure, reads_the_list_in_order);
	tcase_add_test(pure, reads_a_frozen_list_whatever_was_expected);
	tcase_add_test(pure, reads_a_frozen_list_with_few_calls);
	tcase_add_test(pure, finds_entries_by_all_that_they_are_known_by);
	tcase_add_test(pure, refuses_a_list_that_never_ends);
	tcase_add_test(pure, waits_for_a_list_that_is_being_changed);
	tcase_add_test(pure, refuses_an_auxv_without_program_headers);
	suite_add_tcase(suite, pure);
	return suite;
}
