// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/loaderinfo.h"

#include "injector/arch.h"
#include "resolver/cleanup.h"

#include <fcntl.h>
#include <string.h>

#define RTLD_GLOBAL_MAX 16384u /* bytes of _rtld_global that are looked at; 4336 in glibc 2.36 */
#define TCB_MAX		4096u  /* bytes of a thread's control block; about 2300 in glibc 2.36 */
#define NAMES_MAX	4096u
#define ENVIRON_MAX	(1u << 20)
#define LOADS_MAX	(1ull << 32) /* no process loads that many objects */
/* l_libname is one of these words of struct link_map, behind the public five. */
#define LIBNAME_FIRST 5
#define LIBNAME_LAST  11

/* pthread_mutex_t on 64-bit glibc. */
struct remote_mutex {
	int32_t lock;
	uint32_t count;
	int32_t owner;
	uint32_t users;
	int32_t kind;
	uint8_t rest[20];
};
_Static_assert(sizeof(struct remote_mutex) == 40, "pthread_mutex_t");
#define MUTEX_RECURSIVE 1 /* PTHREAD_MUTEX_RECURSIVE_NP */

/* ---- the loader's lock and counter */

/* A recursive mutex, free or held by somebody. */
static bool mutex_is_recursive(const struct remote_mutex *mutex)
{
	if (mutex->kind != MUTEX_RECURSIVE)
		return false;
	if (mutex->lock == 0) /* an owner that is about to unlock has cleared the rest */
		return mutex->count == 0 && mutex->owner == 0;
	return (mutex->lock == 1 || mutex->lock == 2) && mutex->owner >= 0 && mutex->count < 1000;
}

static size_t count_listed(const struct modules *modules)
{
	size_t count = 0;

	for (size_t i = 0; i < modules->count; i++)
		count += modules->module[i]->link_map != 0;
	return count;
}

/*
 * struct rtld_global, glibc 2.3x:
 *
 *	_dl_load_lock        40 bytes   recursive mutex
 *	_dl_load_write_lock  40 bytes   recursive mutex
 *	_dl_load_tls_lock    40 bytes   recursive mutex, since 2.34 or 2.35
 *	_dl_load_adds         8 bytes   objects ever loaded
 *
 * Two or three mutexes in a row with a plausible counter behind them; must be unique.
 */
static void find_lock(const uint8_t *data, size_t size, uint64_t address, size_t listed,
		      struct loader_info *info)
{
	size_t matches = 0;

	for (size_t at = 0; at + 2 * sizeof(struct remote_mutex) + 8 <= size; at += 8) {
		size_t run = 0, end = at;
		struct remote_mutex mutex;
		uint64_t adds;

		while (run < 4 && end + sizeof(mutex) <= size) {
			memcpy(&mutex, data + end, sizeof(mutex));
			if (!mutex_is_recursive(&mutex))
				break;
			run++;
			end += sizeof(mutex);
		}
		if ((run != 2 && run != 3) || end + sizeof(adds) > size)
			continue;
		memcpy(&adds, data + end, sizeof(adds));
		if (adds < listed || adds >= LOADS_MAX)
			continue;
		matches++;
		info->lock = address + at;
		info->load_adds = address + end;
		at = end;
	}
	if (matches != 1)
		info->lock = info->load_adds = 0;
}

/* ---- the main thread and its control block */

/* A control block's first and third words point to itself. */
static bool is_tcb(const struct memory_reader *memory, uint64_t address)
{
	uint64_t words[3];

	return address && address % 16 == 0 && memory_try(memory, address, words, sizeof(words)) &&
	       words[0] == address && words[2] == address;
}

/* The control block that a node of the loader's thread list lies in. */
static uint64_t tcb_of_node(const struct memory_reader *memory, uint64_t node)
{
	uint64_t low = node > TCB_MAX ? (node - TCB_MAX + 63) & ~63ull : 64;

	for (uint64_t at = node & ~63ull; at >= low; at -= 64) {
		if (is_tcb(memory, at))
			return at;
	}
	return 0;
}

/*
 * _dl_stack_user is a list head in _rtld_global with one node as long as no
 * thread was given a stack by the program: the main thread's. Its shape: two
 * equal words that point to a node both of whose words point back.
 */
static uint64_t find_main_fs(const struct memory_reader *memory, const uint8_t *data, size_t size,
			     uint64_t address)
{
	uint64_t found = 0;

	for (size_t at = 0; at + 16 <= size; at += 8) {
		uint64_t head[2], node[2], tcb;

		memcpy(head, data + at, sizeof(head));
		if (!head[0] || head[0] != head[1] || head[0] % 8 != 0 || head[0] == address + at)
			continue;
		if (!memory_try(memory, head[0], node, sizeof(node)) || node[0] != address + at ||
		    node[1] != address + at)
			continue;
		tcb = tcb_of_node(memory, head[0]);
		if (!tcb)
			continue;
		/* _dl_stack_used looks the same with one thread; the main one's comes last. */
		found = tcb;
	}
	return found;
}

/*
 * The main thread's descriptor has (stackblock, stackblock_size) = (0,
 * __libc_stack_end); for other threads they are the bounds of their stacks.
 */
static void find_stack_offset(const struct memory_reader *memory, const struct maps *maps,
			      uint64_t stack_end, struct loader_info *info)
{
	uint64_t words[TCB_MAX / 8];
	const struct map *map = maps_find(maps, stack_end);
	size_t size = sizeof(words), matches = 0;

	if (!info->main_fs || !map || !map->write)
		return;
	map = maps_find(maps, info->main_fs);
	if (!map)
		return;
	if (size > map->end - info->main_fs)
		size = map->end - info->main_fs;
	if (!memory_try(memory, info->main_fs, words, size))
		return;
	for (size_t i = 1; i < size / 8; i++) {
		if (words[i] != stack_end || words[i - 1] != 0)
			continue;
		info->tcb_stack_offset = (i - 1) * 8;
		matches++;
	}
	if (matches != 1)
		info->tcb_stack_offset = 0;
}

static void read_rtld_global(const struct memory_reader *memory, const struct maps *maps,
			     uint64_t main_fs, const struct modules *modules,
			     struct loader_info *info)
{
	const struct module *loader = modules_loader(modules);
	CLEANUP(freep) uint8_t *data = NULL;
	const Elf64_Sym *symbol;
	uint64_t address, end_address, stack_end = 0;
	size_t size;

	info->main_fs = main_fs;
	if (!loader)
		return;
	symbol = dynamic_find(&loader->tables, "_rtld_global");
	end_address = module_symbol_or_0(loader, "__libc_stack_end");
	if (!symbol)
		return;
	address = symbol->st_value + loader->bias;
	size = symbol->st_size < RTLD_GLOBAL_MAX ? symbol->st_size : RTLD_GLOBAL_MAX;
	data = malloc(size ? size : 1);
	if (!data || !memory_try(memory, address, data, size))
		return;
	find_lock(data, size, address, count_listed(modules), info);
	if (!info->main_fs)
		info->main_fs = find_main_fs(memory, data, size, address);
	if (end_address && memory_try_u64(memory, end_address, &stack_end) && stack_end)
		find_stack_offset(memory, maps, stack_end, info);
}

/* ---- functions, dlerror */

static uint64_t find_function(const struct modules *modules, const char *name)
{
	const struct module *libc = modules_libc(modules);
	uint64_t address = libc ? module_symbol_or_0(libc, name) : 0;

	/* Before glibc 2.34 these were in libdl and libpthread. */
	for (size_t i = 0; !address && i < modules->count; i++) {
		const struct module *module = modules->module[i];
		const char *soname = module->tables.soname;

		if (module->name_space == 0 && soname &&
		    (strcmp(soname, "libdl.so.2") == 0 || strcmp(soname, "libpthread.so.0") == 0))
			address = module_symbol_or_0(module, name);
	}
	return address;
}

struct tls_search {
	const struct dynamic *tables;
	uint64_t address;
};

static bool visit_dlerror(void *ctx, const struct dynamic_relocation *relocation)
{
	struct tls_search *search = ctx;

	if (arch_relocation_kind(relocation->type) != ARCH_RELOCATION_TLS_OFFSET ||
	    strcmp(dynamic_symbol_name(search->tables, relocation->symbol),
		   "__libc_dlerror_result") != 0)
		return true;
	search->address = relocation->address;
	return false;
}

/* The loader has stored the variable's offset from the thread pointer in libc's GOT. */
static struct error *find_dlerror(const struct memory_reader *memory, const struct module *libc,
				  struct loader_info *info)
{
	struct tls_search search = {.tables = &libc->tables};
	uint64_t value;
	struct error *err;

	err = dynamic_relocations(memory, &libc->tables, visit_dlerror, &search);
	if (err || !search.address)
		return err;
	/* Static TLS lies below the thread pointer, within a few MiB. */
	if (memory_try_u64(memory, search.address, &value) && (int64_t)value < 0 &&
	    (int64_t)value > -(int64_t)(64 << 20) && value % 8 == 0)
		info->dlerror_offset = (int64_t)value;
	return NULL;
}

/* ---- auditors */

static bool environ_has_audit(pid_t pid)
{
	CLEANUP(freep) char *text = NULL;
	CLEANUP(closep) int fd = -1;
	size_t size = 0;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	text = malloc(ENVIRON_MAX);
	while (fd >= 0 && text && size < ENVIRON_MAX) {
		ssize_t got = read(fd, text + size, ENVIRON_MAX - size);

		if (got <= 0)
			break;
		size += (size_t)got;
	}
	for (size_t at = 0; at < size; at += strnlen(text + at, size - at) + 1) {
		if (size - at > 9 && memcmp(text + at, "LD_AUDIT=", 9) == 0 && text[at + 9])
			return true;
	}
	return false;
}

/* An auditor has la_version and lives in a namespace of its own. */
static bool has_auditor(const struct modules *modules, pid_t pid)
{
	for (size_t i = 0; i < modules->count; i++) {
		const struct module *module = modules->module[i];

		if (module->tables.has_audit)
			return true;
		if (module->name_space && module_symbol_or_0(module, "la_version"))
			return true;
	}
	return pid && environ_has_audit(pid);
}

struct error *loaderinfo_read(const struct memory_reader *memory, const struct maps *maps,
			      pid_t pid, uint64_t main_fs, struct modules *modules,
			      struct loader_info *ret)
{
	const struct module *libc = modules_libc(modules);
	struct loader_info info = {0};
	struct error *err = NULL;

	read_rtld_global(memory, maps, main_fs, modules, &info);
	info.fn_trylock = find_function(modules, "pthread_mutex_trylock");
	info.fn_unlock = find_function(modules, "pthread_mutex_unlock");
	info.fn_dlopen = find_function(modules, "dlopen");
	info.fn_dlerror = find_function(modules, "dlerror");
	info.fn_errno_location = find_function(modules, "__errno_location");
	info.auditors = has_auditor(modules, pid);
	if (libc && modules->libc == LIBC_GLIBC)
		err = find_dlerror(memory, libc, &info);
	if (err)
		return err;
	modules->load_adds_address = info.load_adds;
	if (info.load_adds && !memory_try_u64(memory, info.load_adds, &modules->load_adds))
		modules->load_adds = 0;
	*ret = info;
	return NULL;
}

bool loaderinfo_can_dlopen(const struct loader_info *info, const char **why_ret)
{
	const char *why = NULL;

	if (info->auditors)
		why = "the target runs under an auditor (LD_AUDIT)";
	else if (!info->lock || !info->load_adds)
		why = "the loader's lock was not found";
	else if (!info->fn_trylock || !info->fn_unlock)
		why = "pthread_mutex_trylock was not found";
	else if (!info->fn_dlopen || !info->fn_dlerror || !info->fn_errno_location)
		why = "dlopen was not found";
	if (why_ret)
		*why_ret = why;
	return !why;
}

/* ---- names */

static bool reads(const struct memory_reader *memory, uint64_t address, const char *name)
{
	CLEANUP(freep) char *text = NULL;
	CLEANUP(error_freep) struct error *err = NULL;

	if (!address)
		return false;
	err = memory_read_string(memory, address, NAMES_MAX, &text);
	return !err && strcmp(text, name) == 0;
}

/* struct libname_list begins with a pointer to the name. */
struct error *loaderinfo_names(const struct memory_reader *memory, uint64_t link_map,
			       const char *name, uint64_t addresses_ret[2])
{
	uint64_t words[LIBNAME_LAST + 1];
	struct error *err;

	err = memory_read(memory, link_map, words, sizeof(words));
	if (err)
		return err;
	if (!reads(memory, words[1], name))
		return error_create(ERROR_NOT_FOUND, "the object at 0x%llx is not named %s",
				    (unsigned long long)link_map, name);
	for (size_t i = LIBNAME_FIRST; i <= LIBNAME_LAST; i++) {
		uint64_t text;

		if (!words[i] || !memory_try_u64(memory, words[i], &text) ||
		    !reads(memory, text, name))
			continue;
		addresses_ret[0] = words[1];
		addresses_ret[1] = text;
		return NULL;
	}
	return error_create(ERROR_NOT_FOUND, "the loader's second name of %s was not found", name);
}
