/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/hooked.h"

#include "injector/payload_image.h"
#include "resolver/cleanup.h"
#include "tests/tests.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct hooked hooked;
void *hooked_block;

int hooked_file(const char *name, const uint8_t *data, size_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
	return fd;
}

uint32_t hooked_depth(void)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < HA_LINES; i++)
		sum += hooked.entry->lines[i].depth;
	for (size_t i = 0; i < HA_SHARED_LINES; i++)
		sum += hooked.entry->shared[i].depth;
	return sum;
}

unsigned int hooked_lines_owned(void)
{
	unsigned int owned = 0;

	for (size_t i = 0; i < HA_LINES; i++)
		owned += hooked.entry->lines[i].key != 0;
	return owned;
}

static struct hooked_event *event_add(enum hooked_event_kind kind, const void *stack_frame)
{
	struct hooked_event *event = &hooked.event[hooked.events];

	if (hooked.events + 1 < HOOKED_EVENTS)
		hooked.events++;
	*event = (struct hooked_event){
		.kind = kind,
		.depth = hooked_depth(),
		.aligned = (uintptr_t)stack_frame % 16 == 0,
	};
	return event;
}

static void core_event(struct hooked_event *event, struct ha_shm *shm, const struct ha_frame *frame,
		       uint64_t line)
{
	event->shm = (uint64_t)(uintptr_t)shm;
	event->frame_address = (uint64_t)(uintptr_t)frame;
	if (frame)
		event->frame = *frame;
	event->line = line;
	if (line < HA_LINES)
		event->line_depth = hooked.entry->lines[line].depth;
	else if (line < HA_LINES + HA_SHARED_LINES)
		event->line_depth = hooked.entry->shared[line - HA_LINES].depth;
	if (hooked.during_core)
		hooked.during_core();
}

static void log_alloc(struct ha_shm *shm, const struct ha_frame *frame, uint64_t ptr, uint64_t size,
		      uint64_t line)
{
	struct hooked_event *event = event_add(HOOKED_ALLOC, __builtin_frame_address(0));

	event->ptr = ptr;
	event->size = size;
	core_event(event, shm, frame, line);
}

static void log_free(struct ha_shm *shm, uint64_t ptr, uint64_t line)
{
	struct hooked_event *event = event_add(HOOKED_FREE, __builtin_frame_address(0));

	event->ptr = ptr;
	core_event(event, shm, NULL, line);
}

static uint64_t log_realloc_begin(struct ha_shm *shm, uint64_t old, uint64_t line)
{
	struct hooked_event *event = event_add(HOOKED_REALLOC_BEGIN, __builtin_frame_address(0));

	event->ptr = old;
	core_event(event, shm, NULL, line);
	return hooked.token;
}

static void log_realloc_end(struct ha_shm *shm, const struct ha_frame *frame, uint64_t token,
			    uint64_t ptr, uint64_t size, uint64_t line)
{
	struct hooked_event *event = event_add(HOOKED_REALLOC_END, __builtin_frame_address(0));

	event->token = token;
	event->ptr = ptr;
	event->size = size;
	core_event(event, shm, frame, line);
}

static void log_xallocx(struct ha_shm *shm, const struct ha_frame *frame, uint64_t ptr,
			uint64_t size, uint64_t line)
{
	struct hooked_event *event = event_add(HOOKED_XALLOCX, __builtin_frame_address(0));

	event->ptr = ptr;
	event->size = size;
	core_event(event, shm, frame, line);
}

static uint64_t log_original(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct hooked_event *event = event_add(HOOKED_ORIGINAL, __builtin_frame_address(0));

	event->argument[0] = a;
	event->argument[1] = b;
	event->argument[2] = c;
	event->argument[3] = d;
	event->return_address = (uint64_t)(uintptr_t)__builtin_return_address(0);
	if (hooked.during_original)
		hooked.during_original();
	errno = hooked.error_number;
	return hooked.result;
}

static struct ha_gate *gate_create(void)
{
	struct ha_gate *gate =
		mmap(NULL, HA_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(gate, MAP_FAILED);
	ck_assert_int_eq(madvise(gate, HA_PAGE, MADV_WIPEONFORK), 0);
	gate->magic = HA_GATE_MAGIC;
	return gate;
}

static uint8_t *entry_load(void)
{
	CLEANUP(closep) int fd = hooked_file("entry", payload_entry, payload_entry_size);
	struct link_map *map;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	map = dlopen(path, RTLD_NOW);
	ck_assert_msg(map != NULL, "%s", dlerror());
	return (uint8_t *)map->l_addr;
}

void hooked_setup(void)
{
	struct ha_entry *entry;

	hooked = (struct hooked){.base = entry_load(), .gate = gate_create(), .shm = 0x5a5a000};
	entry = (struct ha_entry *)(hooked.base + HA_ENTRY_DATA);
	hooked.entry = entry;
	entry->gate = (uint64_t)(uintptr_t)hooked.gate;
	entry->shm = hooked.shm;
	entry->core_alloc = (uint64_t)(uintptr_t)log_alloc;
	entry->core_free = (uint64_t)(uintptr_t)log_free;
	entry->core_realloc_begin = (uint64_t)(uintptr_t)log_realloc_begin;
	entry->core_realloc_end = (uint64_t)(uintptr_t)log_realloc_end;
	entry->core_xallocx = (uint64_t)(uintptr_t)log_xallocx;
	entry->session = 1;
	entry->filter = (uint64_t)(uintptr_t)hooked.filter;
	entry->state = HA_STATE_ON;
}

void hooked_setup_sampling(void)
{
	hooked_setup();
	hooked.sampling = true;
	memset(hooked.filter, 1, sizeof(hooked.filter));
}

uint64_t hooked_pair(unsigned int k, enum ha_class class, uint64_t original)
{
	const struct ha_entry *entry = hooked.entry;
	const uint32_t *bodies = hooked.sampling ? entry->sampling_bodies : entry->bodies;
	uint64_t base = (uint64_t)(uintptr_t)hooked.base;

	hooked.entry->pairs[k] = (struct ha_pair){
		.call = original,
		.body = base + bodies[class],
	};
	return base + HA_ENTRY_STUBS + k * HA_STUB_SIZE;
}

uint64_t hooked_logged_pair(unsigned int k, enum ha_class class)
{
	return hooked_pair(k, class, (uint64_t)(uintptr_t)log_original);
}

void hooked_call_prepare(struct marked_call *call, uint64_t stub, const uint64_t argument[4])
{
	static const struct ha_frame marks = {
		.r15 = 0x1515151515151515,
		.r14 = 0x1414141414141414,
		.r13 = 0x1313131313131313,
		.r12 = 0x1212121212121212,
		.rbx = 0xb0b0b0b0b0b0b0b0,
		.rbp = 0xb1b1b1b1b1b1b1b1,
	};

	*call = (struct marked_call){.function = stub, .before = marks};
	memcpy(call->argument, argument, sizeof(call->argument));
}

void hooked_assert_kept(const struct marked_call *call)
{
	ck_assert_mem_eq(&call->before, &call->after, offsetof(struct ha_frame, ra));
}

struct marked_call hooked_call(uint64_t stub, const uint64_t argument[4])
{
	struct marked_call call;

	hooked.events = 0;
	hooked_call_prepare(&call, stub, argument);
	marked_call(&call);
	hooked_assert_kept(&call);
	ck_assert_uint_eq(hooked_depth(), 0);
	return call;
}

uint64_t hooked_result(enum ha_class class)
{
	hooked_block = (void *)HOOKED_BLOCK;
	return class == HA_CLASS_POSIX_MEMALIGN ? 0 : HOOKED_BLOCK;
}
