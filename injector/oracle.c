// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/oracle.h"

#include <libunwind-ptrace.h>
#include <stdlib.h>

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
