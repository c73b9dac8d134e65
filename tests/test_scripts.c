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

/* scripts/@name on our folder must fail and say @expected; with NULL it must pass. */
static void assert_script(const char *name, const char *expected)
{
	CLEANUP(freep) char *script = tests_source_path("scripts/%s", name);
	char command[512], output[8192];
	int status;

	snprintf(command, sizeof(command), "'%s' '%s' 2>&1", script, folder);
	status = run(command, output, sizeof(output));
	if (expected) {
		ck_assert_msg(status == 1, "%s returned %d: %s", name, status, output);
		ck_assert_msg(strstr(output, expected) != NULL, "no \"%s\" in: %s", expected,
			      output);
	} else {
		ck_assert_msg(status == 0, "%s returned %d: %s", name, status, output);
	}
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
	assert_script("check-includes", NULL);
}
END_TEST

static const struct {
	const char *file, *text, *message;
} wrong_includes[] = {
	{"resolver/a.c", "#include \"injector/target.h\"\n", "resolver/a.c:1: the resolver may"},
	{"resolver/a.c", "#include \"payload/core/core.h\"\n", "resolver/a.c:1: the resolver may"},
	{"injector/a.c", "\n# include \"payload/core/core.h\"\n",
	 "injector/a.c:2: the injector may"},
	{"payload/core/a.c", "#include \"resolver/maps.h\"\n", "payload/core/a.c:1: the payload"},
	{"payload/core/a.c", "#include <string.h>\n", "payload/core/a.c:1: no C library"},
	{"injector/a.c", "#include \"maps.h\"\n", "injector/a.c:1: the injector may"},
	{"resolver/a.c", "#include \"resolver/none.h\"\n", "is not a path from the root"},
	{"resolver/a.h", "#include <libelf.h>\n", "resolver/a.h:1: <libelf.h> belongs into"},
	{"injector/a.c", "#include <sys/ptrace.h>\n", "injector/a.c:1: <sys/ptrace.h> belongs"},
	{"injector/a.c", "#include <capstone/capstone.h>\n", "belongs into resolver/insn"},
	{"resolver/a.c", "#ifdef __x86_64__\n#endif\n",
	 "resolver/a.c:1: conditional on the machine"},
};
#define WRONG_INCLUDES ((int)(sizeof(wrong_includes) / sizeof(wrong_includes[0])))

START_TEST(wrong_include_is_found)
{
	file_write(wrong_includes[_i].file, wrong_includes[_i].text);
	assert_script("check-includes", wrong_includes[_i].message);
}
END_TEST

START_TEST(tree_without_sources_is_not_accepted)
{
	folder_remove();
	ck_assert_int_eq(mkdir(folder, 0700), 0);
	assert_script("check-includes", "no includes found");
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
	assert_script("check-payload", NULL);
}
END_TEST

START_TEST(missing_payload_is_found)
{
	char path[256];

	path_of(path, sizeof(path), "payload/core.bin");
	ck_assert_int_eq(remove(path), 0);
	assert_script("check-payload", "core.bin is not there");
}
END_TEST

/* An ordinary library has all that the payload must not have. */
START_TEST(needs_of_an_ordinary_library_are_found)
{
	static const char *const messages[] = {"relocations", "NEEDED", "undefined symbols",
					       "not one plain r-x map"};
	char command[512], output[1024];

	snprintf(command, sizeof(command),
		 "cp \"$(ldconfig -p | awk '/libm.so.6.*x86-64/ { print $NF; exit }')\" "
		 "'%s/payload/entry.so' 2>&1",
		 folder);
	ck_assert_int_eq(run(command, output, sizeof(output)), 0);
	assert_script("check-payload", messages[_i]);
}
END_TEST

START_TEST(push_before_a_tail_jump_is_found)
{
	static const uint8_t push_rax[] = {0x50, 0x90, 0x90}; /* and nops */

	file_patch("payload/entry.so.full", entry_data()->bodies[_i], push_rax, sizeof(push_rax));
	assert_script("check-payload", "has a call, push or lock");
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
	{{0x0f, 0x05, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "system call outside boot: core_free"},
	{{0xff, 0x17, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "call through a pointer outside boot"},
	{{0xff, 0xd0, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "call through a pointer outside boot"},
	{{0xff, 0x27, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "jump through memory"},
	{{0xc5, 0xf8, 0x77, 0x90, 0x90, 0x90, 0x90, 0x90}, "AVX"}, /* vzeroupper */
	{{0x64, 0x8b, 0x07, 0x90, 0x90, 0x90, 0x90, 0x90}, "more of a thread than its pointer"},
	{{0x0f, 0x31, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, "no place here"}, /* rdtsc */
	{{0x48, 0x81, 0xec, 0x00, 0x10, 0x00, 0x00, 0x90}, "bytes of stack, more than"},
};
#define WRONG_CODE ((int)(sizeof(wrong_code) / sizeof(wrong_code[0])))

START_TEST(wrong_instruction_in_core_is_found)
{
	core_patch(core_header()->free, wrong_code[_i].bytes, sizeof(wrong_code[_i].bytes));
	assert_script("check-payload", wrong_code[_i].message);
}
END_TEST

START_TEST(image_of_another_contract_is_found)
{
	static const uint32_t wrong = 0x7fff;

	file_patch("payload/core.bin", (uint64_t)_i * 4, &wrong, sizeof(wrong));
	assert_script("check-payload", _i == 0	 ? "not HA_MAGIC"
				       : _i == 2 ? "abi is not"
						 : "size in its header is wrong");
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
	tcase_add_loop_test(includes, wrong_include_is_found, 0, WRONG_INCLUDES);
	tcase_add_test(includes, tree_without_sources_is_not_accepted);
	suite_add_tcase(suite, includes);

	tcase_add_checked_fixture(payload, payload_setup, folder_remove);
	tcase_set_timeout(payload, 60);
	tcase_add_test(payload, payload_as_built_passes);
	tcase_add_test(payload, missing_payload_is_found);
	tcase_add_loop_test(payload, needs_of_an_ordinary_library_are_found, 0, 4);
	tcase_add_loop_test(payload, push_before_a_tail_jump_is_found, 0, HA_CLASSES);
	tcase_add_loop_test(payload, wrong_instruction_in_core_is_found, 0, WRONG_CODE);
	tcase_add_loop_test(payload, image_of_another_contract_is_found, 0, 1);
	tcase_add_loop_test(payload, image_of_another_contract_is_found, 2, 4);
	suite_add_tcase(suite, payload);
	return suite;
}
