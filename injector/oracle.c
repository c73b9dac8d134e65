// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/oracle.h"

#include <libunwind-ptrace.h>
#include <stdlib.h>
#include <string.h>

#include "resolver/cleanup.h"

struct oracle {
	unw_addr_space_t space;
};

struct error *oracle_create(struct oracle **ret)
{
	CLEANUP(freep) struct oracle *oracle = calloc(1, sizeof(*oracle));

	if (!oracle)
		return error_memory();
	oracle->space = unw_create_addr_space(&_UPT_accessors, 0);
	if (!oracle->space)
		return error_memory();
	/* Repeated walks of one target then take microseconds, not milliseconds. */
	unw_set_caching_policy(oracle->space, UNW_CACHE_GLOBAL);
	*ret = take(oracle);
	return NULL;
}

void oracle_free(struct oracle *oracle)
{
	if (!oracle)
		return;
	unw_destroy_addr_space(oracle->space);
	free(oracle);
}

void oracle_flush(struct oracle *oracle)
{
	unw_flush_cache(oracle->space, 0, 0);
}

/*
 * unw_step() falls back to the chain of frame pointers without telling; only a
 * failing unw_get_proc_info() shows that there was no FDE.
 */
static void read_frame(unw_cursor_t *cursor, struct oracle_frame *frame)
{
	unw_proc_info_t info = {0};
	unw_word_t pc = 0, sp = 0;

	unw_get_reg(cursor, UNW_REG_IP, &pc);
	unw_get_reg(cursor, UNW_REG_SP, &sp);
	frame->pc = pc;
	frame->sp = sp;
	frame->has_fde = unw_get_proc_info(cursor, &info) == 0 && info.start_ip != 0;
}

static struct error *walk(struct oracle *oracle, void *upt, pid_t tid, struct oracle_frame *frames,
			  size_t capacity, size_t *count_ret)
{
	unw_cursor_t cursor;
	size_t count = 0;

	if (unw_init_remote(&cursor, oracle->space, upt) != 0)
		return error_create(ERROR_UNSUPPORTED, "libunwind cannot unwind thread %d",
				    (int)tid);
	while (count < capacity) {
		read_frame(&cursor, &frames[count++]);
		if (unw_step(&cursor) <= 0)
			break;
	}
	*count_ret = count;
	return NULL;
}

struct error *oracle_unwind(struct oracle *oracle, pid_t tid, struct oracle_frame *frames,
			    size_t capacity, size_t *count_ret)
{
	void *upt = _UPT_create(tid);
	struct error *err;

	if (!upt)
		return error_memory();
	err = walk(oracle, upt, tid, frames, capacity, count_ret);
	_UPT_destroy(upt);
	return err;
}

/* ------------------------------------------------------------------------
 * Copies
 */

/* Exported, and used by perf too, but in no header of libunwind. */
#define search_unwind_table UNW_OBJ(dwarf_search_unwind_table)
int search_unwind_table(unw_addr_space_t space, unw_word_t ip, unw_dyn_info_t *table,
			unw_proc_info_t *info, int need_unwind_info, void *arg);

/* Start of .eh_frame_hdr. The table behind it has two 32-bit words for each FDE. */
struct frame_header {
	uint8_t version;
	uint8_t eh_frame_encoding;
	uint8_t count_encoding;
	uint8_t table_encoding;
	int32_t eh_frame;
	uint32_t count;
};
#define ENTRY_SIZE 8u

/* Encodings, as the LSB has them. */
#define DW_EH_PE_FORMAT	 0x0f
#define DW_EH_PE_UDATA4	 0x03
#define DW_EH_PE_SDATA4	 0x0b
#define DW_EH_PE_DATAREL 0x30

/* Pages of modules that were read: 8 MiB, found by their low bits. */
#define PAGES	2048u
#define NO_PAGE UINT64_MAX
struct page {
	uint64_t address;
	uint8_t bytes[HA_PAGE];
};

struct oracle_copy {
	unw_addr_space_t space;
	struct memory_reader memory;
	const struct modules *modules;
	struct page *page;
	const struct oracle_state *state; /* what is being unwound */
	bool outside;			  /* a word was wanted that cannot be had */
	bool missing;			  /* a pc was looked up for which no FDE was found, */
	bool unreadable;		  /* since the tables could not be read */
};

static const struct page *page_get(struct oracle_copy *oracle, uint64_t address)
{
	struct page *page = &oracle->page[address / HA_PAGE % PAGES];

	if (page->address != address) {
		page->address = NO_PAGE;
		if (!memory_try(&oracle->memory, address, page->bytes, HA_PAGE))
			return NULL;
		page->address = address;
	}
	return page;
}

/* Of a module's code and tables, which do not change while it is mapped. */
static bool module_bytes(struct oracle_copy *oracle, uint64_t address, void *bytes, size_t size)
{
	const struct module *module = modules_find(oracle->modules, address);
	uint8_t *to = bytes;

	if (!module || size > module->high - address)
		return false;
	while (size) {
		size_t at = address % HA_PAGE, part = HA_PAGE - at < size ? HA_PAGE - at : size;
		const struct page *page = page_get(oracle, address - at);

		if (!page)
			return false;
		memcpy(to, page->bytes + at, part);
		to += part;
		address += part;
		size -= part;
	}
	return true;
}

static bool stack_bytes(const struct oracle_state *state, uint64_t address, void *bytes,
			size_t size)
{
	if (address < state->low || address - state->low > state->size ||
	    size > state->size - (address - state->low))
		return false;
	memcpy(bytes, state->stack + (address - state->low), size);
	return true;
}

static int copy_memory(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write,
		       void *arg)
{
	struct oracle_copy *oracle = arg;

	if (write)
		return -UNW_EINVAL;
	if (stack_bytes(oracle->state, address, value, sizeof(*value)) ||
	    module_bytes(oracle, address, value, sizeof(*value)))
		return 0;
	oracle->outside = true;
	return -UNW_EINVAL;
}

static int copy_register(unw_addr_space_t space, unw_regnum_t reg, unw_word_t *value, int write,
			 void *arg)
{
	const struct oracle_state *state = ((struct oracle_copy *)arg)->state;

	if (write)
		return -UNW_EREADONLYREG;
	/* libunwind takes the first pc for the next instruction: give it the one that called. */
	if (reg == UNW_REG_IP)
		*value = state->pc - 1;
	else if (reg >= 0 && reg < 16 && state->known >> reg & 1)
		*value = state->reg[reg];
	else
		return -UNW_EBADREG;
	return 0;
}

static int copy_float(unw_addr_space_t space, unw_regnum_t reg, unw_fpreg_t *value, int write,
		      void *arg)
{
	return -UNW_EBADREG;
}

/* The search table of the module that holds @pc. */
static bool table_find(struct oracle_copy *oracle, uint64_t pc, unw_dyn_info_t *ret)
{
	const struct module *module = modules_find(oracle->modules, pc);
	struct frame_header header;

	if (!module || module->eh_frame_hdr_size < sizeof(header))
		return false;
	if (!module_bytes(oracle, module->eh_frame_hdr, &header, sizeof(header))) {
		oracle->outside = true;
		return false;
	}
	if (header.version != 1 || header.count_encoding != DW_EH_PE_UDATA4 ||
	    header.table_encoding != (DW_EH_PE_DATAREL | DW_EH_PE_SDATA4) ||
	    ((header.eh_frame_encoding & DW_EH_PE_FORMAT) != DW_EH_PE_SDATA4 &&
	     (header.eh_frame_encoding & DW_EH_PE_FORMAT) != DW_EH_PE_UDATA4) ||
	    header.count > (module->eh_frame_hdr_size - sizeof(header)) / ENTRY_SIZE)
		return false;
	memset(ret, 0, sizeof(*ret));
	ret->format = UNW_INFO_FORMAT_REMOTE_TABLE;
	ret->start_ip = module->low;
	ret->end_ip = module->high;
	ret->u.rti.segbase = module->eh_frame_hdr;
	ret->u.rti.table_data = module->eh_frame_hdr + sizeof(header);
	ret->u.rti.table_len = header.count * ENTRY_SIZE / sizeof(unw_word_t);
	return true;
}

static int copy_find(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *info,
		     int need_unwind_info, void *arg)
{
	struct oracle_copy *oracle = arg;
	unw_dyn_info_t table;
	int rc = -UNW_ENOINFO;

	if (table_find(oracle, ip, &table))
		rc = search_unwind_table(space, ip, &table, info, need_unwind_info, oracle);
	if (rc < 0) {
		oracle->missing = true;
		oracle->unreadable = oracle->outside;
	}
	return rc;
}

static void copy_put(unw_addr_space_t space, unw_proc_info_t *info, void *arg)
{
}

/* Code that was made at run time and registered with libunwind: none. */
static int copy_registered(unw_addr_space_t space, unw_word_t *list, void *arg)
{
	return -UNW_ENOINFO;
}

static int copy_resume(unw_addr_space_t space, unw_cursor_t *cursor, void *arg)
{
	return -UNW_EINVAL;
}

static int copy_name(unw_addr_space_t space, unw_word_t address, char *name, size_t size,
		     unw_word_t *offset, void *arg)
{
	return -UNW_ENOINFO;
}

static unw_accessors_t copy_accessors = {
	.find_proc_info = copy_find,
	.put_unwind_info = copy_put,
	.get_dyn_info_list_addr = copy_registered,
	.access_mem = copy_memory,
	.access_reg = copy_register,
	.access_fpreg = copy_float,
	.resume = copy_resume,
	.get_proc_name = copy_name,
};

static void oracle_copy_freep(struct oracle_copy **oracle)
{
	oracle_copy_free(*oracle);
}

struct error *oracle_copy_create(const struct memory_reader *memory, const struct modules *modules,
				 struct oracle_copy **ret)
{
	CLEANUP(oracle_copy_freep) struct oracle_copy *oracle = calloc(1, sizeof(*oracle));

	if (!oracle)
		return error_memory();
	oracle->memory = *memory;
	oracle->modules = modules;
	oracle->page = calloc(PAGES, sizeof(*oracle->page));
	oracle->space = unw_create_addr_space(&copy_accessors, 0);
	if (!oracle->page || !oracle->space)
		return error_memory();
	unw_set_caching_policy(oracle->space, UNW_CACHE_GLOBAL);
	oracle_copy_flush(oracle);
	*ret = take(oracle);
	return NULL;
}

void oracle_copy_free(struct oracle_copy *oracle)
{
	if (!oracle)
		return;
	if (oracle->space)
		unw_destroy_addr_space(oracle->space);
	free(oracle->page);
	free(oracle);
}

void oracle_copy_flush(struct oracle_copy *oracle)
{
	size_t i;

	for (i = 0; i < PAGES; i++)
		oracle->page[i].address = NO_PAGE;
	unw_flush_cache(oracle->space, 0, 0);
}

/* One step out of @frame. False: it was the last one, for the reason in @end_ret. */
static bool copy_step(struct oracle_copy *oracle, unw_cursor_t *cursor, struct oracle_frame *frame,
		      enum oracle_end *end_ret)
{
	int rc;

	oracle->outside = false;
	oracle->missing = false;
	rc = unw_step(cursor);
	frame->has_fde = !oracle->missing;
	if (oracle->missing)
		*end_ret = oracle->unreadable ? ORACLE_OUTSIDE : ORACLE_NO_TABLE;
	else if (rc < 0)
		*end_ret = oracle->outside ? ORACLE_OUTSIDE : ORACLE_FAILED;
	else if (rc == 0)
		*end_ret = ORACLE_COMPLETE;
	else
		return true;
	return false;
}

static void copy_walk(struct oracle_copy *oracle, unw_cursor_t *cursor, struct oracle_frame *frames,
		      size_t capacity, size_t *count_ret, enum oracle_end *end_ret)
{
	size_t count = 0;

	*end_ret = ORACLE_FULL;
	while (count < capacity) {
		struct oracle_frame *frame = &frames[count];
		unw_word_t pc = 0, sp = 0;

		unw_get_reg(cursor, UNW_REG_IP, &pc);
		unw_get_reg(cursor, UNW_REG_SP, &sp);
		if (!pc) {
			*end_ret = ORACLE_COMPLETE;
			break;
		}
		frame->pc = count ? pc : oracle->state->pc;
		frame->sp = sp;
		/* Against its description, true for the frame that a trampoline leads to. */
		frame->interrupted = unw_is_signal_frame(cursor) > 0;
		count++;
		if (!copy_step(oracle, cursor, frame, end_ret))
			break;
	}
	*count_ret = count;
}

struct error *oracle_copy_unwind(struct oracle_copy *oracle, const struct oracle_state *state,
				 struct oracle_frame *frames, size_t capacity, size_t *count_ret,
				 enum oracle_end *end_ret)
{
	unw_cursor_t cursor;

	oracle->state = state;
	if (unw_init_remote(&cursor, oracle->space, oracle) != 0)
		return error_create(ERROR_UNSUPPORTED, "libunwind cannot unwind from %#llx",
				    (unsigned long long)state->pc);
	copy_walk(oracle, &cursor, frames, capacity, count_ret, end_ret);
	oracle->state = NULL;
	return NULL;
}
