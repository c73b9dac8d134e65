/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Is a stopped thread at a point where it may be made to call dlopen?
 *
 * dlopen allocates and takes locks. On a thread that happens to be inside the
 * allocator, the loader or stdio it deadlocks or corrupts. Two kinds of place
 * are safe:
 *
 *   blocked  in, just out of, or about to restart a listed system call, made
 *            by a listed libc wrapper that the application called
 *   running  with the pc and every frame in ordinary modules: not libc, ld.so,
 *            vDSO, libgcc_s, NSS and gconv modules, nor one that defines malloc
 *
 * and in both the stack must be known completely: an FDE for every frame,
 * ending in the executable's _start or in a thread's start in libc, with no
 * other libc frame on the way and no signal frame.
 *
 * The check is a pure function over a struct safepoint_context, which the
 * caller fills once per list of modules. It has two steps, since a busy thread
 * is refused hundreds of times: safepoint_precheck() looks at pc and system
 * call only (no stack is read), safepoint_check() does both.
 *
 * All functions may be called from any thread.
 */
#ifndef INJECTOR_SAFEPOINT_H
#define INJECTOR_SAFEPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "injector/stackwalk.h"
#include "resolver/error.h"

enum safepoint_module_flags {
	SAFEPOINT_LIBC = 1,   /* libc.so.6; before glibc 2.34 libpthread.so.0 too */
	SAFEPOINT_LOADER = 2, /* ld.so */
	SAFEPOINT_VDSO = 4,
	SAFEPOINT_EXECUTABLE = 8,
	SAFEPOINT_ENTRY = 16, /* our own entry object */
	SAFEPOINT_DEFINES_MALLOC =
		32,		   /* defines malloc or operator new, by symbol (libstdc++: no) */
	SAFEPOINT_INTERNAL = 64,   /* libgcc_s, NSS and gconv modules: safepoint_is_internal() */
	SAFEPOINT_PERMANENT = 128, /* can never be unloaded */
};

/* What is known of a module; its number is its index in safepoint_context.modules. */
struct safepoint_module {
	const char *name; /* for messages */
	uint64_t bias;	  /* address in the target = vaddr + bias */
	uint32_t flags;	  /* enum safepoint_module_flags */
};

/* The code of a listed wrapper in libc: [low, high) in the target. */
struct safepoint_wrapper {
	uint64_t low, high;
	const char *name; /* one of our own strings */
	bool waits;	  /* it can only wait for an event, unlike read or openat */
};

struct safepoint_context {
	struct code_map code; /* code_range.module is an index into modules */
	const struct safepoint_module *modules;
	size_t module_count;
	struct safepoint_wrapper *wrappers; /* by safepoint_add_dynsym(); sorted by low */
	size_t wrapper_count;
	uint64_t start; /* AT_ENTRY: address of _start */
	/*
	 * Read up to @size bytes of the target's memory at @address; returns how
	 * many were read before the first that is not mapped.
	 */
	size_t (*read)(void *data, uint64_t address, void *buf, size_t size);
	void *read_data;
	/*
	 * Name the function at @pc for messages; NULL = not known. May be NULL.
	 * The string lives until the next call.
	 */
	const char *(*symbol)(void *data, uint32_t module, uint64_t pc);
	void *symbol_data;
};

/* The thread, as it was found stopped in a PTRACE_EVENT_STOP. */
struct safepoint_thread {
	struct walk_registers registers; /* reg[HA_EXT_RAX] as the kernel gave it */
	int64_t syscall_number;		 /* orig_rax: -1 if not in a system call */
	uint64_t rseq_cs; /* the thread's struct rseq.rseq_cs; 0 if none or unknown */
};

enum safepoint_reason {
	SAFEPOINT_SAFE,
	SAFEPOINT_NO_LIBC,	    /* no libc that we know: static or musl; dlopen is not for it */
	SAFEPOINT_UNKNOWN_CODE,	    /* pc or a frame in no known module: re-read the modules once */
	SAFEPOINT_UNLISTED_SYSCALL, /* in a system call that is not listed: brk, mmap, ... */
	SAFEPOINT_IN_LIBC,	    /* inside libc, not blocked in a listed wrapper */
	SAFEPOINT_IN_LOADER,
	SAFEPOINT_IN_VDSO,
	SAFEPOINT_IN_ALLOCATOR, /* in a module that defines malloc */
	SAFEPOINT_IN_INTERNAL,	/* in libgcc_s, an NSS or a gconv module */
	SAFEPOINT_IN_HOOK,	/* in entry's code behind the stubs */
	SAFEPOINT_IN_RSEQ,	/* in a restartable sequence */
	SAFEPOINT_NO_CFI,	/* a frame that no FDE contains */
	SAFEPOINT_INCOMPLETE,	/* the stack could not be read or followed to its end */
	SAFEPOINT_SIGNAL_FRAME, /* a signal handler is running */
	SAFEPOINT_LIBC_FRAME,	/* a libc frame further out: exit, pthread_once, qsort, ... */
	SAFEPOINT_BAD_END,	/* the outermost frame is neither _start nor a thread's start */
	SAFEPOINT_REASONS
};

struct safepoint_verdict {
	enum safepoint_reason reason;
	uint32_t module;     /* that is in the way; STACKWALK_NO_MODULE if none or unknown */
	uint64_t pc;	     /* of the frame in the way */
	size_t frame;	     /* its number, 0 = innermost */
	bool blocked;	     /* the thread is in, just out of, or about to restart a system call */
	int64_t number;	     /* of that system call, or -1 */
	const char *wrapper; /* listed wrapper that it is in; NULL if none */
	size_t frames;	     /* that were walked; 0 after a precheck */
	bool transient;	     /* a frame is in a module that may have been unloaded meanwhile */
};

/*
 * The first step: costs no read but, in libc, one of 4 bytes at the pc. Says
 * SAFE if the second step is worth its price. The context's modules may be
 * stale: UNKNOWN_CODE then.
 */
void safepoint_precheck(const struct safepoint_context *context,
			const struct safepoint_thread *thread, struct safepoint_verdict *ret);

/*
 * Read the stack from @sp outwards into @bytes, at most @size bytes, and the red
 * zone below it where there is one. @ret is valid as long as @bytes is.
 */
void safepoint_read_stack(const struct safepoint_context *context, uint64_t sp, uint8_t *bytes,
			  size_t size, struct stack_image *ret);

/* Both steps. Reads the stack in one go of up to 64 KiB, for deep ones again up to 1 MiB. */
void safepoint_check(const struct safepoint_context *context, const struct safepoint_thread *thread,
		     struct safepoint_verdict *ret);

/*
 * One sentence for people: "thread 123 is in malloc (libc.so.6)". To be freed;
 * NULL without memory.
 */
char *safepoint_describe(const struct safepoint_context *context,
			 const struct safepoint_verdict *verdict, pid_t tid);

/* A short word for counting: "in-libc". Never NULL. */
const char *safepoint_reason_name(enum safepoint_reason reason);

/*
 * Take the listed wrappers out of libc's dynamic symbols (all versions, names
 * with leading underscores too); may be called for several modules.
 *
 * @bias    address in the target = st_value + bias
 * @symbols @count times Elf64_Sym
 * @strings @strings_size bytes of names; indices outside are skipped
 */
MUST_CHECK struct error *safepoint_add_dynsym(struct safepoint_context *context, uint64_t bias,
					      const void *symbols, size_t count,
					      const char *strings, size_t strings_size);

/* Frees the wrappers; the rest is the caller's. */
void safepoint_context_deinit(struct safepoint_context *context);

/* Is this file name (without directories) one of an NSS or gconv module, or libgcc_s? */
bool safepoint_is_internal(const char *path);

#endif
