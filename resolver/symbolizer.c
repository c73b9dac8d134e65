// SPDX-License-Identifier: GPL-3.0-or-later
#include "resolver/symbolizer.h"

#include "resolver/array.h"
#include "resolver/cleanup.h"
#include "resolver/demangle.h"
#include "resolver/hashindex.h"
#include "resolver/lines.h"
#include "resolver/modfiles.h"
#include "resolver/pathname.h"
#include "resolver/strpool.h"
#include "resolver/symbols.h"

#include <fcntl.h>
#include <string.h>

struct answer {
	uint32_t module;
	uint64_t vaddr;
	struct symbolizer_frame *frame;
	size_t count;
};

/*
 * What was made of strings of a module's files, which stay where they are: of a
 * linkage name, or of a directory and a file. Most frames repeat one.
 */
struct known {
	const char *from, *with;
	const char *interned, *readable;
};

struct symbolizer {
	struct symbolizer_options options;
	struct modfiles **module;
	size_t module_count;
	struct answer *answer;
	size_t answer_count;
	struct hashindex index; /* of answers by module and address */
	struct known *known;
	size_t known_count;
	struct hashindex known_index; /* by the two pointers */
	struct strpool *strings;
};

static void symbolizer_freep(struct symbolizer **symbolizer)
{
	symbolizer_free(*symbolizer);
}

struct error *symbolizer_create(const struct symbolizer_options *options, struct symbolizer **ret)
{
	CLEANUP(symbolizer_freep) struct symbolizer *symbolizer = calloc(1, sizeof(*symbolizer));
	struct error *err;

	if (!symbolizer)
		return error_memory();
	if (options)
		symbolizer->options = *options;
	err = strpool_create(&symbolizer->strings);
	if (err)
		return err;
	*ret = take(symbolizer);
	return NULL;
}

void symbolizer_free(struct symbolizer *symbolizer)
{
	if (!symbolizer)
		return;
	for (size_t i = 0; i < symbolizer->module_count; i++)
		modfiles_free(symbolizer->module[i]);
	for (size_t i = 0; i < symbolizer->answer_count; i++)
		free(symbolizer->answer[i].frame);
	free(symbolizer->module);
	free(symbolizer->answer);
	free(symbolizer->known);
	hashindex_deinit(&symbolizer->index);
	hashindex_deinit(&symbolizer->known_index);
	strpool_free(symbolizer->strings);
	free(symbolizer);
}

struct error *symbolizer_add(struct symbolizer *symbolizer, const struct symbolizer_module *module,
			     uint32_t *module_ret)
{
	struct error *err = array_grow(&symbolizer->module, symbolizer->module_count, 1);

	if (!err)
		err = modfiles_create(module, &symbolizer->options,
				      &symbolizer->module[symbolizer->module_count]);
	if (err)
		return err;
	*module_ret = (uint32_t)symbolizer->module_count++;
	return NULL;
}

/* ---- frames */

/* NULL stays NULL. */
static struct error *intern(struct symbolizer *symbolizer, const char *text, const char **ret)
{
	return text ? strpool_add(symbolizer->strings, text, strlen(text), ret) : NULL;
}

/* In the place of a directory: debug info may have one string for a file and for a function. */
static const char linkage[] = "linkage name";

static uint64_t known_hash(const char *from, const char *with)
{
	return hash_u64(hash_u64(0, (uintptr_t)from), (uintptr_t)with);
}

static const struct known *known_find(const struct symbolizer *symbolizer, const char *from,
				      const char *with)
{
	uint64_t hash = known_hash(from, with);
	size_t slot = hashindex_first(&symbolizer->known_index, hash);
	uint32_t id;

	while (hashindex_next(&symbolizer->known_index, &slot, hash, &id)) {
		const struct known *known = &symbolizer->known[id];

		if (known->from == from && known->with == with)
			return known;
	}
	return NULL;
}

static struct error *known_add(struct symbolizer *symbolizer, const struct known *known)
{
	struct error *err = array_grow(&symbolizer->known, symbolizer->known_count, 1);

	if (!err)
		err = hashindex_add(&symbolizer->known_index, known_hash(known->from, known->with),
				    (uint32_t)symbolizer->known_count);
	if (!err)
		symbolizer->known[symbolizer->known_count++] = *known;
	return err;
}

/* memcpy@@GLIBC_2.14 is memcpy. */
static struct error *symbol_read(struct symbolizer *symbolizer, const char *symbol,
				 struct known *ret)
{
	CLEANUP(freep) char *readable = NULL;
	size_t size = strcspn(symbol, "@");
	struct error *err;

	err = strpool_add(symbolizer->strings, symbol, size ? size : strlen(symbol),
			  &ret->interned);
	if (err)
		return err;
	readable = demangle(ret->interned);
	err = intern(symbolizer, readable ? readable : ret->interned, &ret->readable);
	return err ? err : known_add(symbolizer, ret);
}

static struct error *name_symbol(struct symbolizer *symbolizer, const char *symbol,
				 struct symbolizer_frame *ret)
{
	const struct known *known = known_find(symbolizer, symbol, linkage);
	struct known read = {.from = symbol, .with = linkage};
	struct error *err = known ? NULL : symbol_read(symbolizer, symbol, &read);

	if (err)
		return err;
	known = known ? known : &read;
	ret->linkage_name = known->interned;
	ret->function = known->readable;
	return NULL;
}

static struct error *name_scoped(struct symbolizer *symbolizer, const struct lines_frame *frame,
				 struct symbolizer_frame *ret)
{
	CLEANUP(freep) char *qualified = NULL;

	if (!frame->scope)
		return intern(symbolizer, frame->name, &ret->function);
	if (asprintf(&qualified, "%s::%s", frame->scope, frame->name) < 0)
		return error_memory();
	return intern(symbolizer, qualified, &ret->function);
}

static bool is_mangled(const char *name)
{
	return strncmp(name, "_Z", 2) == 0 || strncmp(name, "_R", 2) == 0;
}

/*
 * The symbol of a function is the name that everybody calls (abort), where the
 * debug info may have a bare or an internal one (__GI_abort). With a dot it
 * names a part or a clone (abort.cold), which is not the name that the same
 * function has elsewhere. What is behind an @ is a version.
 */
static bool is_better(const struct symbol *symbol, const struct lines_frame *frame)
{
	return !frame->name || is_mangled(symbol->name) ||
	       symbol->name[strcspn(symbol->name, ".@")] != '.';
}

/* @symbol is NULL for inlined frames. */
static struct error *fill_names(struct symbolizer *symbolizer, const struct lines_frame *frame,
				const struct symbol *symbol, struct symbolizer_frame *ret)
{
	struct error *err = NULL;

	if (frame->linkage_name && is_mangled(frame->linkage_name))
		return name_symbol(symbolizer, frame->linkage_name, ret);
	if (symbol && is_better(symbol, frame))
		return name_symbol(symbolizer, symbol->name, ret);
	if (!frame->name)
		return NULL;
	if (symbol)
		err = intern(symbolizer, symbol->name, &ret->linkage_name);
	return err ? err : name_scoped(symbolizer, frame, ret);
}

static struct error *fill_file(struct symbolizer *symbolizer, const struct lines_frame *frame,
			       struct symbolizer_frame *ret)
{
	CLEANUP(freep) char *path = NULL;
	struct known read = {.from = frame->file, .with = frame->directory};
	const struct known *known = known_find(symbolizer, read.from, read.with);
	struct error *err;

	if (known)
		ret->file = known->interned;
	if (known || !frame->file)
		return NULL;
	path = pathname_clean(frame->directory, frame->file);
	if (!path)
		return error_memory();
	err = intern(symbolizer, path, &read.interned);
	if (!err)
		err = known_add(symbolizer, &read);
	ret->file = read.interned;
	return err;
}

static struct error *make_frames(struct symbolizer *symbolizer, const struct lines_frame *from,
				 size_t count, const struct symbol *symbol,
				 struct symbolizer_frame **ret)
{
	CLEANUP(freep) struct symbolizer_frame *frames = calloc(count, sizeof(*frames));

	if (!frames)
		return error_memory();
	for (size_t i = 0; i < count; i++) {
		struct error *err;

		err = fill_names(symbolizer, &from[i], i + 1 == count ? symbol : NULL, &frames[i]);
		if (!err)
			err = fill_file(symbolizer, &from[i], &frames[i]);
		if (err)
			return err;
		frames[i].line = from[i].line;
		frames[i].inlined = from[i].inlined;
	}
	*ret = take(frames);
	return NULL;
}

static struct error *find_answer(struct symbolizer *symbolizer, struct modfiles *module,
				 uint64_t vaddr, struct answer *ret)
{
	struct lines_frame found[LINES_MAX_FRAMES];
	const struct symbol *symbol;
	struct error *err = modfiles_load(module);

	if (err)
		return err;
	symbol = modfiles_symbol(module, vaddr);
	ret->count = modfiles_lines(module, vaddr, found);
	if (!ret->count) {
		found[0] = (struct lines_frame){0};
		ret->count = 1;
	}
	return make_frames(symbolizer, found, ret->count, symbol, &ret->frame);
}

static const struct answer *recall(const struct symbolizer *symbolizer, uint64_t hash,
				   uint32_t module, uint64_t vaddr)
{
	size_t slot = hashindex_first(&symbolizer->index, hash);
	uint32_t id;

	while (hashindex_next(&symbolizer->index, &slot, hash, &id)) {
		const struct answer *answer = &symbolizer->answer[id];

		if (answer->module == module && answer->vaddr == vaddr)
			return answer;
	}
	return NULL;
}

static struct error *remember(struct symbolizer *symbolizer, uint64_t hash,
			      const struct answer *answer)
{
	struct error *err = array_grow(&symbolizer->answer, symbolizer->answer_count, 1);

	if (!err)
		err = hashindex_add(&symbolizer->index, hash, (uint32_t)symbolizer->answer_count);
	if (!err)
		symbolizer->answer[symbolizer->answer_count++] = *answer;
	return err;
}

static struct error *check_module(const struct symbolizer *symbolizer, uint32_t module)
{
	if (module < symbolizer->module_count)
		return NULL;
	return error_create(ERROR_NOT_FOUND, "module %u: the symbolizer has only %zu", module,
			    symbolizer->module_count);
}

struct error *symbolizer_resolve(struct symbolizer *symbolizer, uint32_t module, uint64_t vaddr,
				 const struct symbolizer_frame **frames_ret, size_t *count_ret)
{
	struct answer made = {.module = module, .vaddr = vaddr};
	uint64_t hash = hash_u64(hash_u64(0, module), vaddr);
	const struct answer *answer = recall(symbolizer, hash, module, vaddr);
	struct error *err = check_module(symbolizer, module);

	if (err)
		return err;
	if (!answer) {
		err = find_answer(symbolizer, symbolizer->module[module], vaddr, &made);
		if (!err)
			err = remember(symbolizer, hash, &made);
		if (err) {
			free(made.frame);
			return err;
		}
		answer = &made;
	}
	*frames_ret = answer->frame;
	*count_ret = answer->count;
	return NULL;
}

/* ---- what is known of a module */

struct error *symbolizer_module_info(struct symbolizer *symbolizer, uint32_t module,
				     struct symbolizer_info *ret)
{
	struct error *err = check_module(symbolizer, module);

	if (!err)
		err = modfiles_load(symbolizer->module[module]);
	if (!err)
		modfiles_info(symbolizer->module[module], ret);
	return err;
}

const char *symbolizer_source_name(enum symbolizer_source source)
{
	switch (source) {
	case SYMBOLIZER_DYNSYM:
		return "exported symbols only";
	case SYMBOLIZER_DEBUGDATA:
		return "embedded symbols (.gnu_debugdata)";
	case SYMBOLIZER_SYMTAB:
		return "symbol table";
	case SYMBOLIZER_DEBUGFILE:
		return "debug file";
	case SYMBOLIZER_NONE:
		break;
	}
	return "no symbols";
}
