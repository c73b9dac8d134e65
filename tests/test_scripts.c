/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The audits of scripts/ find what they are there for: each test breaks one
 * rule in a copy and expects the script to fail with its message.
 */
#include "injector/payload_image.h"
#include "payload/protocol.h"
#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[64];

static void folder_make(void)
{
	snprintf(folder, sizeof(folder), "/tmp/heapattach-scripts-XXXXXX");
	ck_assert_ptr_ne(mkdtemp(folder), NULL);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
	return remove(path);
}

static void folder_remove(void)
{
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Run a shell command; returns its exit status, @output has what it said. */
static int run(const char *command, char *output, size_t size)
{
	FILE *pipe = popen(command, "re");
	size_t length;
	int status;

	ck_assert_ptr_ne(pipe, NULL);
	length = fread(output, 1, size - 1, pipe);
	output[length] = '\0';
	status = pclose(pipe);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Run scripts/@name on our folder; its exit status. */
static int script_run(const char *name, char *output, size_t size)
{
	CLEANUP(freep) char *script = tests_source_path("scripts/%s", name);
	char command[512];

	snprintf(command, sizeof(command), "'%s' '%s' 2>&1", script, folder);
	return run(command, output, size);
}

static void script_fails(const char *name, char *output, size_t size)
{
	int status = script_run(name, output, size);

	ck_assert_msg(status == 1, "%s returned %d: %s", name, status, output);
}

static void assert_says(const char *output, const char *expected)
{
	ck_assert_msg(strstr(output, expected) != NULL, "no \"%s\" in: %s", expected, output);
}

/* The script must fail and say @expected. */
static void assert_script_fails(const char *name, const char *expected)
{
	char output[8192];

	script_fails(name, output, sizeof(output));
	assert_says(output, expected);
}

static void assert_script_passes(const char *name)
{
	char output[8192];
	int status = script_run(name, output, sizeof(output));

	ck_assert_msg(status == 0, "%s returned %d: %s", name, status, output);
}

static void path_of(char *path, size_t size, const char *name)
{
	ck_assert_int_lt(snprintf(path, size, "%s/%s", folder, name), (int)size);
}

/* ------------------------------------------------------------------------
 * check-includes
 */

static void file_write(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	path_of(path, sizeof(path), name);
	for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "we");
	ck_assert_ptr_ne(file, NULL);
	fputs(text, file);
	fclose(file);
}

static void tree_setup(void)
{
	folder_make();
	file_write("payload/protocol.h", "#include <stdint.h>\n");
	file_write("payload/arch/x86_64/syscall.h", "#include <asm/unistd.h>\n");
	file_write("payload/boot/boot.c",
		   "#include \"payload/protocol.h\"\n#include \"syscall.h\"\n");
	file_write("resolver/maps.h", "#include \"payload/protocol.h\"\n#include <stdio.h>\n");
	file_write("resolver/elffile.c", "#include \"resolver/maps.h\"\n#include <gelf.h>\n");
	file_write("injector/target.c", "#include \"resolver/maps.h\"\n#include <sys/ptrace.h>\n");
	file_write("tests/test_maps.c", "#include \"resolver/maps.h\"\n#include <libelf.h>\n");
}

START_TEST(tree_that_keeps_the_directions_passes)
{
	assert_script_passes("check-includes");
}
END_TEST

static const struct {
	const char *file, *text, *message;
} wrong_includes[] = {
	{"resolver/a.c", "#include \"injector/target.h\"\n", "resolver/a.c:1: the resolver may"},
	{"resolver/b.c", "#include \"payload/core/core.h\"\n", "resolver/b.c:1: the resolver may"},
	{"injector/c.c", "\n# include \"payload/core/core.h\"\n",
	 "injector/c.c:2: the injector may"},
	{"payload/core/d.c", "#include \"resolver/maps.h\"\n", "payload/core/d.c:1: the payload"},
	{"payload/core/e.c", "#include <string.h>\n", "payload/core/e.c:1: no C library"},
	{"injector/f.c", "#include \"maps.h\"\n", "injector/f.c:1: the injector may"},
	{"resolver/g.c", "#include \"resolver/none.h\"\n",
	 "resolver/g.c:1: \"resolver/none.h\" is"},
	{"resolver/h.h", "#include <libelf.h>\n", "resolver/h.h:1: <libelf.h> belongs into"},
	{"injector/i.c", "#include <sys/ptrace.h>\n", "injector/i.c:1: <sys/ptrace.h> belongs"},
	{"injector/j.c", "#include <capstone/capstone.h>\n", "injector/j.c:1: <capstone"},
	{"resolver/k.c", "#ifdef __x86_64__\n#endif\n",
	 "resolver/k.c:1: conditional on the machine"},
};
#define WRONG_INCLUDES (sizeof(wrong_includes) / sizeof(wrong_includes[0]))

START_TEST(wrong_includes_are_found)
{
	char output[8192];

	for (size_t i = 0; i < WRONG_INCLUDES; i++)
		file_write(wrong_includes[i].file, wrong_includes[i].text);
	script_fails("check-includes", output, sizeof(output));
	for (size_t i = 0; i < WRONG_INCLUDES; i++)
		assert_says(output, wrong_includes[i].message);
}
END_TEST

START_TEST(tree_without_sources_is_not_accepted)
{
	folder_remove();
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	assert_script_fails("check-includes", "no includes found");
}
END_TEST

/* ------------------------------------------------------------------------
 * check-payload
 */

static void payload_setup(void)
{
	CLEANUP(freep) char *payload = tests_build_path("payload");
	char command[512], output[1024];

	folder_make();
	snprintf(command, sizeof(command), "cp -a '%s' '%s' 2>&1", payload, folder);
	ck_assert_int_eq(run(command, output, sizeof(output)), 0);
}

/* Overwrite bytes of a file of the copy. */
static void file_patch(const char *name, uint64_t offset, const void *bytes, size_t size)
{
	char path[256];
	CLEANUP(closep) int fd = -1;

	path_of(path, sizeof(path), name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, size, (off_t)offset), (ssize_t)size);
}

static const struct ha_entry *entry_data(void)
{
	return (const struct ha_entry *)(payload_entry + HA_ENTRY_DATA);
}

static const struct ha_core *core_header(void)
{
	return (const struct ha_core *)payload_core;
}

START_TEST(payload_as_built_passes)
{
	assert_script_passes("check-payload");
}
END_TEST

START_TEST(missing_payload_is_found)
{
	char path[256];

	path_of(path, sizeof(path), "payload/core.bin");
	ck_assert_int_eq(remove(path), 0);
	assert_script_fails("check-payload", "core.bin is not there");
}
END_TEST

/* An ordinary library has all that the payload must not have. */
START_TEST(needs_of_an_ordinary_library_are_found)
{
	static const char *const messages[] = {"relocations", "NEEDED", "undefined symbols",
					       "not one plain r-x map"};
	char command[512], output[8192];

	snprintf(command, sizeof(command),
		 "cp \"$(ldconfig -p | awk '/libm.so.6.*x86-64/ { print $NF; exit }')\" "
		 "'%s/payload/entry.so' 2>&1",
		 folder);
	ck_assert_int_eq(run(command, output, sizeof(output)), 0);
	script_fails("check-payload", output, sizeof(output));
	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
		assert_says(output, messages[i]);
}
END_TEST

START_TEST(push_before_a_tail_jump_is_found)
{
	static const uint8_t push_rax[] = {0x50, 0x90, 0x90}; /* and nops */
	static const char *const names[] = {
		"body_alloc: the path",
		"body_aligned: the path",
		"body_calloc: the path",
		"body_posix_memalign: the path",
		"body_realloc: the path",
		"body_reallocarray: the path",
		"body_xallocx: the path",
		"body_free: the path",
		"body_sampling_alloc: the path",
		"body_sampling_aligned: the path",
		"body_sampling_calloc: the path",
		"body_sampling_posix_memalign: the path",
		"body_sampling_realloc: the path",
		"body_sampling_reallocarray: the path",
		"body_sampling_free: the path",
	};
	char output[8192];

	for (int i = 0; i < HA_CLASSES; i++) {
		file_patch("payload/entry.so.full", entry_data()->bodies[i], push_rax,
			   sizeof(push_rax));
		file_patch("payload/entry.so.full", entry_data()->sampling_bodies[i], push_rax,
			   sizeof(push_rax));
	}
	script_fails("check-payload", output, sizeof(output));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_says(output, names[i]);
}
END_TEST

/* Where .core lies in core.elf: one page in. */
static void core_patch(uint32_t offset, const void *bytes, size_t size)
{
	file_patch("payload/core.elf", HA_PAGE + offset, bytes, size);
}

static const struct {
	uint8_t bytes[8];
	const char *message;
} wrong_code[] = {
	{{0x0f, 0x05, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "system call outside boot: core_alloc"},
	{{0xff, 0x17, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "call through a pointer outside boot"},
	{{0xff, 0xd0, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "call through a pointer outside boot"},
	{{0xff, 0x27, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "jump through memory"},
	{{0xc5, 0xf8, 0x77, 0x90, 0x90, 0x90, 0x90, 0x90}, "AVX"}, /* vzeroupper */
	{{0x64, 0x8b, 0x07, 0x90, 0x90, 0x90, 0x90, 0x90}, "more of a thread than its pointer"},
	{{0x0f, 0x31, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "no place here"}, /* rdtsc */
	{{0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00, 0x90}, "bytes of stack, more than"},
};
#define WRONG_CODE (sizeof(wrong_code) / sizeof(wrong_code[0]))

START_TEST(wrong_instructions_in_core_are_found)
{
	char output[8192];

	for (size_t i = 0; i < WRONG_CODE; i++)
		core_patch(core_header()->alloc + (uint32_t)i * 8, wrong_code[i].bytes,
			   sizeof(wrong_code[i].bytes));
	script_fails("check-payload", output, sizeof(output));
	for (size_t i = 0; i < WRONG_CODE; i++)
		assert_says(output, wrong_code[i].message);
}
END_TEST

START_TEST(image_of_another_contract_is_found)
{
	static const uint32_t wrong = 0x7fff;
	char output[8192];

	for (uint64_t word = 0; word < 4; word++)
		file_patch("payload/core.bin", word * 4, &wrong, sizeof(wrong));
	script_fails("check-payload", output, sizeof(output));
	assert_says(output, "not HA_MAGIC");
	assert_says(output, "abi is not HA_ABI");
	assert_says(output, "size in its header is wrong");
}
END_TEST

Suite *scripts_suite(void)
{
	Suite *suite = suite_create("scripts");
	TCase *includes = tcase_create("check-includes");
	TCase *payload = tcase_create("check-payload");

	tcase_add_checked_fixture(includes, tree_setup, folder_remove);
	tcase_set_timeout(includes, 60);
	tcase_add_test(includes, tree_that_keeps_the_directions_passes);
	tcase_add_test(includes, wrong_includes_are_found);
	tcase_add_test(includes, tree_without_sources_is_not_accepted);
	suite_add_tcase(suite, includes);

	tcase_add_checked_fixture(payload, payload_setup, folder_remove);
	tcase_set_timeout(payload, 60);
	tcase_add_test(payload, payload_as_built_passes);
	tcase_add_test(payload, missing_payload_is_found);
	tcase_add_test(payload, needs_of_an_ordinary_library_are_found);
	tcase_add_test(payload, push_before_a_tail_jump_is_found);
	tcase_add_test(payload, wrong_instructions_in_core_are_found);
	tcase_add_test(payload, image_of_another_contract_is_found);
	suite_add_tcase(suite, payload);
	return suite;
}
