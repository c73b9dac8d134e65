/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The ELF objects mapped in a target: the loader's list of all namespaces,
 * the vDSO and the loader itself, and our own entry object even where no
 * loader knows it. Everything comes from the target's memory; files are only
 * opened (for the resolver), never parsed here.
 *
 * A struct modules belongs to one thread at a time.
 */
#ifndef INJECTOR_MODULES_H
#define INJECTOR_MODULES_H

#include "injector/dynamic.h"
#include "injector/memory.h"
#include "payload/protocol.h"
#include "resolver/maps.h"

#include <sys/types.h>

#define MODULES_MAX	16384u /* objects; more than any process has */
#define MODULE_SEGMENTS 32u    /* program headers looked at */
#define MODULE_BUILD_ID 64u    /* bytes kept of a build id */

/* A relocation that names a hooked function (injector/functions.h). */
enum reference_kind {
	REFERENCE_JUMP_SLOT, /* called through the PLT; may be unbound yet */
	REFERENCE_GLOB_DAT,  /* GOT word: -fno-plt calls, and &malloc */
	REFERENCE_ADDRESS,   /* a word in data: tables of functions */
	REFERENCE_LOADER,    /* the loader's own private pointer, found by its value */
};
struct reference {
	uint64_t address;  /* of the 8-byte word */
	uint16_t function; /* index into functions.h's table */
	uint8_t kind;	   /* enum reference_kind */
	bool ifunc;	   /* the symbol is an IFUNC or TLS one: never hooked */
};

/* A part of the object that is mapped executable. */
struct module_range {
	uint64_t start, end;
};

struct module {
	uint32_t id;	     /* number of this instance; never used again for another one */
	uint32_t name_space; /* 0: the base namespace; others were made by dlmopen */
	uint64_t bias;	     /* l_addr: target address - ELF address */
	uint64_t dynamic;    /* l_ld; 0 for an object without a dynamic section */
	uint64_t link_map;   /* address of its struct link_map; 0 = the loader does not know it */
	uint64_t low, high;  /* target addresses over all PT_LOADs */
	char *name;	     /* l_name as the loader has it; owned, never NULL */
	char *path;	     /* from the maps, as the target names it; owned, "" if anonymous */
	uint64_t inode;	     /* of the mapping; 0 = anonymous */
	bool deleted;	     /* the file was unlinked or replaced */

	struct dynamic tables; /* zeroed for an object without a dynamic section */
	char *problem; /* why the tables or headers could not be used; NULL = they could; owned */
	struct reference *reference;
	size_t reference_count;

	struct module_range exec[MODULE_SEGMENTS];
	size_t exec_count;
	struct module_range data[MODULE_SEGMENTS]; /* the PT_LOADs that are not executable */
	size_t data_count;

	uint8_t build_id[MODULE_BUILD_ID];
	size_t build_id_size;			  /* 0 = none */
	uint64_t eh_frame_hdr, eh_frame_hdr_size; /* target address, bytes; 0 = none */

	int fd; /* the mapped file, kept open; -1 = could not be opened; owned */

	bool is_executable;
	bool is_loader; /* ld.so; with musl also the C library */
	bool is_libc;	/* libc.so.6 or musl's */
	bool is_vdso;
	bool is_entry;	   /* an entry object, of whatever version of heapattach */
	bool is_our_entry; /* of this one */
	bool is_permanent; /* never unloaded: the program, what it is linked with, the loader, entry
			    */
	bool defines_malloc;
};

enum libc_kind {
	LIBC_UNKNOWN, /* or none: static */
	LIBC_GLIBC,
	LIBC_MUSL,
};

struct modules {
	struct module **module; /* those mapped now, sorted by low; owned */
	size_t count;
	struct module **gone; /* unloaded since modules_read(); kept for their ids; owned */
	size_t gone_count;

	uint64_t load_adds_address; /* set by loaderinfo_read(); 0 = unknown */
	uint64_t load_adds;	    /* the loader's counter when the list was read; 0 = unknown */

	enum libc_kind libc;
	bool is_static;	      /* no loader: nothing has a slot */
	uint64_t r_debug;     /* address; 0 = none */
	uint64_t entry_point; /* AT_ENTRY */
	uint64_t vdso;	      /* AT_SYSINFO_EHDR; 0 = none */
	uint64_t hwcap2;      /* AT_HWCAP2 */
	uint32_t next_id;
	uint32_t name_spaces;
};

/* What the kernel told the program at start; see modules_read_auxv(). */
struct module_auxv {
	uint64_t phdr, phnum, phent, entry, base, vdso, hwcap2, pagesz;
};

/* Parse the bytes of /proc/PID/auxv of a 64-bit process. */
MUST_CHECK struct error *module_auxv_parse(const void *data, size_t size, struct module_auxv *ret);
MUST_CHECK struct error *module_auxv_read(pid_t pid, struct module_auxv *ret);

/*
 * Read all objects of @target. ERROR_BUSY: the loader is changing its list, or
 * the process is still being started; try again. @maps must be fresh.
 */
MUST_CHECK struct error *modules_read(struct target *target, const struct maps *maps,
				      struct modules *ret);

/* The same from any memory; @pid is used to open files, 0 = open none. */
MUST_CHECK struct error *modules_read_from(const struct memory_reader *memory,
					   const struct module_auxv *auxv, const struct maps *maps,
					   pid_t pid, struct modules *ret);

/*
 * Read the list again, parse only objects that are new (another l_addr, l_ld
 * or name), move those that went to gone. @added_ret and @removed_ret (both
 * may be NULL) count them. On error @modules is as it was.
 */
MUST_CHECK struct error *modules_update(struct target *target, const struct maps *maps,
					struct modules *modules, size_t *added_ret,
					size_t *removed_ret);
MUST_CHECK struct error *modules_update_from(const struct memory_reader *memory,
					     const struct maps *maps, pid_t pid,
					     struct modules *modules, size_t *added_ret,
					     size_t *removed_ret);

/* A flag for each id that a module has or had, all false; to be freed. NULL: no memory. */
bool *modules_flags(const struct modules *modules);

/*
 * Which objects of @modules can be relied on still to be there: there_ret[id], from
 * modules_flags(). The loader's list is read as it stands, unless nothing can
 * have been unloaded; the loader's lock should be held.
 */
MUST_CHECK struct error *modules_still_there(const struct memory_reader *memory,
					     const struct modules *modules, bool *there_ret);

/* A zeroed struct is fine. */
void modules_deinit(struct modules *modules);

/* The object over @address, or NULL. */
const struct module *modules_find(const struct modules *modules, uint64_t address);
/* The object with an executable range over @address, or NULL. */
const struct module *modules_find_code(const struct modules *modules, uint64_t address);
const struct module *modules_find_id(const struct modules *modules, uint32_t id);
const struct module *modules_executable(const struct modules *modules);
const struct module *modules_libc(const struct modules *modules);
const struct module *modules_loader(const struct modules *modules);
/* Our entry object from this or an earlier attach, or NULL. */
const struct module *modules_entry(const struct modules *modules);
/* One of another version of heapattach, or NULL. */
const struct module *modules_other_entry(const struct modules *modules);

/*
 * Target address of a symbol that @module defines, the default version first.
 * ERROR_NOT_FOUND.
 */
MUST_CHECK struct error *module_symbol(const struct module *module, const char *name,
				       uint64_t *address_ret);
/* The same; 0 if there is none. */
uint64_t module_symbol_or_0(const struct module *module, const char *name);

/* True if @address lies in an executable range of @module. */
bool module_has_code(const struct module *module, uint64_t address);

#endif
