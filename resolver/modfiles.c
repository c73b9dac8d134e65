// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/modfiles.h"

#include "resolver/cleanup.h"
#include "resolver/debugfile.h"
#include "resolver/elffile.h"
#include "resolver/rootfs.h"
#include "resolver/xz.h"
#include "resolver/zdebug.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* The symbols of the largest programs, unfolded, are a tenth of this. */
enum { MAX_DEBUGDATA_BYTES = 256 << 20 };

struct modfiles {
	char *path, *root;
	int fd;		   /* -1: could not be opened, or is read already */
	uint8_t *build_id; /* from the target's memory */
	size_t build_id_size;
	char *build_id_text;
	struct symbolizer_options options;
	bool loaded;

	struct elffile *file, *debug, *alt, *debugdata;
	struct symbols *symbols;
	struct lines *lines;
	enum symbolizer_source source;
	char *why_no_names, *why_no_lines;
};

static void modfiles_freep(struct modfiles **module)
{
	modfiles_free(*module);
}

/*
 * Keep the reason why something is missing; the first one counts. Memory is
 * the only error that is passed on.
 */
static struct error *note(struct error *err, char **why)
{
	if (!err || error_is(err, ERROR_MEMORY))
		return err;
	if (!*why)
		*why = strdup(error_message(err));
	error_free(err);
	return NULL;
}

static char *hex_of(const uint8_t *bytes, size_t size)
{
	char *text = malloc(2 * size + 1);

	if (!text)
		return NULL;
	for (size_t i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[2 * size] = '\0';
	return text;
}

static struct error *copy_identity(struct modfiles *module, const struct symbolizer_module *from)
{
	module->path = strdup(from->path);
	module->root = from->root ? strdup(from->root) : NULL;
	module->build_id = malloc(from->build_id_size + 1);
	module->build_id_text = hex_of(from->build_id, from->build_id_size);
	if (!module->path || (from->root && !module->root) || !module->build_id ||
	    !module->build_id_text)
		return error_memory();
	if (from->build_id_size)
		memcpy(module->build_id, from->build_id, from->build_id_size);
	module->build_id_size = from->build_id_size;
	return NULL;
}

struct error *modfiles_create(const struct symbolizer_module *from,
			      const struct symbolizer_options *options, struct modfiles **ret)
{
	CLEANUP(modfiles_freep) struct modfiles *module = calloc(1, sizeof(*module));
	struct error *err;

	if (!module)
		return error_memory();
	module->fd = -1;
	module->options = *options;
	err = copy_identity(module, from);
	if (err)
		return err;
	if (from->fd < 0)
		err = rootfs_open(module->root, module->path, &module->fd);
	else if ((module->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 3)) < 0)
		err = error_os(errno, "keep %s open", module->path);
	err = note(err, &module->why_no_names);
	if (err)
		return err;
	*ret = take(module);
	return NULL;
}

void modfiles_free(struct modfiles *module)
{
	if (!module)
		return;
	lines_free(module->lines);
	symbols_free(module->symbols);
	elffile_free(module->alt);
	elffile_free(module->debugdata);
	elffile_free(module->debug);
	elffile_free(module->file);
	closep(&module->fd);
	free(module->path);
	free(module->root);
	free(module->build_id);
	free(module->build_id_text);
	free(module->why_no_names);
	free(module->why_no_lines);
	free(module);
}

/* ---- the mapped file */

/* The file may have been overwritten in place since the target mapped it. */
static struct error *check_replaced(const struct modfiles *module, const struct elffile *file)
{
	CLEANUP(freep) char *text = NULL;
	const uint8_t *build_id;
	size_t size = elffile_build_id(file, &build_id);

	if (!module->build_id_size ||
	    (size == module->build_id_size && memcmp(build_id, module->build_id, size) == 0))
		return NULL;
	text = hex_of(build_id, size);
	if (!text)
		return error_memory();
	return error_create(ERROR_NOT_FOUND,
			    "%s was replaced after the target loaded it: build id %s in the file, "
			    "%s in memory",
			    module->path, size ? text : "(none)", module->build_id_text);
}

static struct error *open_file(struct modfiles *module)
{
	CLEANUP(elffile_freep) struct elffile *file = NULL;
	const uint8_t *build_id;
	struct error *err;
	size_t size;

	if (module->fd < 0)
		return NULL;
	err = elffile_open_fd(module->fd, module->path, &file);
	if (!err)
		err = check_replaced(module, file);
	if (err)
		return err;
	size = elffile_build_id(file, &build_id);
	if (!module->build_id_size) {
		free(module->build_id_text);
		module->build_id_text = hex_of(build_id, size);
		if (!module->build_id_text)
			return error_memory();
	}
	module->file = take(file);
	return NULL;
}

/* ---- symbols */

static bool has_table(struct elffile *file, enum elffile_table table)
{
	return file && elffile_symbol_count(file, table) > 1;
}

static bool has_debug_info(const struct elffile *file)
{
	const struct elffile_section *section = elffile_section(file, ".debug_info");

	if (!section)
		section = elffile_section(file, ".zdebug_info");
	return section && section->type != SHT_NOBITS;
}

static struct error *open_debug_file(struct modfiles *module)
{
	if (module->options.no_debug_files ||
	    (has_table(module->file, ELFFILE_SYMTAB) && has_debug_info(module->file)))
		return NULL;
	return debugfile_open(module->file, module->path, module->root, &module->debug);
}

static struct error *open_debugdata(struct modfiles *module)
{
	const struct elffile_section *section = elffile_section(module->file, ".gnu_debugdata");
	struct elffile_bytes bytes;
	struct error *err;
	uint8_t *unfolded;
	size_t size;

	if (!section)
		return NULL;
	err = elffile_section_bytes(module->file, section, &bytes);
	if (!err)
		err = xz_decompress(bytes.data, bytes.size, MAX_DEBUGDATA_BYTES, &unfolded, &size);
	if (!err)
		err = elffile_open_memory(unfolded, size, ".gnu_debugdata", &module->debugdata);
	return error_prefix(err, "%s: .gnu_debugdata", module->path);
}

/* The full table if there is one, else all of the partial ones. */
static struct error *add_tables(struct modfiles *module)
{
	struct error *err;

	if (has_table(module->file, ELFFILE_SYMTAB)) {
		module->source = SYMBOLIZER_SYMTAB;
		return symbols_add(module->symbols, module->file, ELFFILE_SYMTAB);
	}
	if (has_table(module->debug, ELFFILE_SYMTAB)) {
		module->source = SYMBOLIZER_DEBUGFILE;
		return symbols_add(module->symbols, module->debug, ELFFILE_SYMTAB);
	}
	if (has_table(module->file, ELFFILE_DYNSYM)) {
		module->source = SYMBOLIZER_DYNSYM;
		err = symbols_add(module->symbols, module->file, ELFFILE_DYNSYM);
		if (err)
			return err;
	}
	err = note(open_debugdata(module), &module->why_no_names);
	if (err || !has_table(module->debugdata, ELFFILE_SYMTAB))
		return err;
	module->source = SYMBOLIZER_DEBUGDATA;
	return symbols_add(module->symbols, module->debugdata, ELFFILE_SYMTAB);
}

static struct error *load_symbols(struct modfiles *module)
{
	struct error *err = symbols_create(&module->symbols);

	if (!err)
		err = add_tables(module);
	if (!err)
		err = symbols_seal(module->symbols);
	if (!err && !symbols_count(module->symbols))
		module->source = SYMBOLIZER_NONE;
	return err;
}

/* ---- lines */

/*
 * libdw before 0.189 cannot read sections compressed by zstd, and has zlib
 * unfold all others, whether it needs them or not. So they are unfolded before.
 * The symbols keep pointing into their file, which is why this comes first.
 */
static struct error *make_readable(const struct modfiles *module, struct elffile **file)
{
	struct elffile *readable;
	struct error *err;

	if (module->options.no_lines || !*file || !elffile_is_compressed(*file))
		return NULL;
	err = zdebug_unfold(*file, &readable);
	if (err)
		return err;
	elffile_free(*file);
	*file = readable;
	return NULL;
}

static struct error *load_lines(struct modfiles *module)
{
	struct elffile *file = has_debug_info(module->file) ? module->file : module->debug;
	struct elffile_bytes alt_id;
	struct error *err;

	if (!file || !has_debug_info(file))
		return error_create(ERROR_NOT_FOUND, "%s: no debug info", module->path);
	if (elffile_debugaltlink(file, &alt_id)) {
		err = debugfile_open_alt(file, elffile_name(file), module->root, &module->alt);
		if (!err)
			err = make_readable(module, &module->alt);
		if (err)
			return error_prefix(err, "%s: dwz file", elffile_name(file));
	}
	return lines_create(file, module->alt, &module->lines);
}

struct error *modfiles_load(struct modfiles *module)
{
	struct error *err;

	if (module->loaded)
		return NULL;
	err = note(open_file(module), &module->why_no_names);
	if (err)
		return err;
	closep(&module->fd);
	module->fd = -1;
	module->loaded = true;
	if (!module->file)
		return NULL;
	err = note(open_debug_file(module), &module->why_no_lines);
	if (!err)
		err = note(make_readable(module, &module->file), &module->why_no_lines);
	if (!err)
		err = note(make_readable(module, &module->debug), &module->why_no_lines);
	if (!err)
		err = load_symbols(module);
	if (!err && !module->options.no_lines)
		err = note(load_lines(module), &module->why_no_lines);
	return err;
}

/* ---- answers */

const struct symbol *modfiles_symbol(const struct modfiles *module, uint64_t vaddr)
{
	return module->symbols ? symbols_find(module->symbols, vaddr) : NULL;
}

size_t modfiles_lines(struct modfiles *module, uint64_t vaddr,
		      struct lines_frame ret[LINES_MAX_FRAMES])
{
	return module->lines ? lines_find(module->lines, vaddr, ret) : 0;
}

static const char *explain_names(const struct modfiles *module)
{
	switch (module->source) {
	case SYMBOLIZER_SYMTAB:
	case SYMBOLIZER_DEBUGFILE:
	case SYMBOLIZER_DEBUGDATA:
		return NULL;
	case SYMBOLIZER_DYNSYM:
	case SYMBOLIZER_NONE:
		break;
	}
	return module->why_no_names   ? module->why_no_names
	       : module->why_no_lines ? module->why_no_lines
				      : "the file is stripped";
}

static const char *explain_lines(const struct modfiles *module)
{
	if (module->lines)
		return NULL;
	if (module->options.no_lines)
		return "lines were not asked for";
	if (!module->file)
		return module->why_no_names;
	return module->why_no_lines;
}

void modfiles_info(const struct modfiles *module, struct symbolizer_info *ret)
{
	*ret = (struct symbolizer_info){
		.path = module->path,
		.build_id = module->build_id_text,
		.source = module->source,
		.debug_file = module->debug ? elffile_name(module->debug) : NULL,
		.symbols = module->symbols ? symbols_count(module->symbols) : 0,
		.lines = module->lines,
		.why_no_names = explain_names(module),
		.why_no_lines = explain_lines(module),
	};
}
