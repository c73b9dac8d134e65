// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/arch.h"

#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/user.h>

#define USER_CS64	0x33 /* __USER_CS; 0x23 is 32-bit code */
#define X32_SYSCALL_BIT 0x40000000u

#define EFLAGS_TF	0x100u
#define EFLAGS_DF	0x400u
#define EFLAGS_NT	0x4000u
#define EFLAGS_AC	0x40000u

/* include/linux/errno.h: results that only a tracer sees. */
#define ERESTARTSYS	      512
#define ERESTARTNOINTR	      513
#define ERESTARTNOHAND	      514
#define ERESTART_RESTARTBLOCK 516

#ifndef NT_X86_SHSTK
#define NT_X86_SHSTK 0x204 /* include/uapi/linux/elf.h, Linux 6.6 */
#endif

const uint8_t arch_syscall_instruction[] = {0x0f, 0x05};
const size_t arch_syscall_instruction_size = sizeof(arch_syscall_instruction);
const unsigned int arch_vector_note = NT_X86_XSTATE;
const unsigned int arch_shadow_stack_note = NT_X86_SHSTK;

_Static_assert(sizeof(struct user_regs_struct) <= ARCH_REGISTER_WORDS * sizeof(uint64_t),
	       "arch_registers is too small");

size_t arch_find_call_return(const uint8_t *text, size_t size)
{
	static const uint8_t code[] = {0x0f, 0x05, 0xc3}; /* syscall; ret */
	const uint8_t *found = memmem(text, size, code, sizeof(code));

	return found ? (size_t)(found - text) : ARCH_NOT_FOUND;
}

/* mov $15, %eax or %rax; syscall. */
size_t arch_find_sigreturn(const uint8_t *text, size_t size)
{
	static const uint8_t wide[] = {0x48, 0xc7, 0xc0, SYS_rt_sigreturn, 0, 0, 0, 0x0f, 0x05};
	static const uint8_t narrow[] = {0xb8, SYS_rt_sigreturn, 0, 0, 0, 0x0f, 0x05};
	const uint8_t *found = memmem(text, size, wide, sizeof(wide));

	if (!found)
		found = memmem(text, size, narrow, sizeof(narrow));
	return found ? (size_t)(found - text) : ARCH_NOT_FOUND;
}

static struct user_regs_struct *user_regs(struct arch_registers *registers)
{
	return (struct user_regs_struct *)registers->word;
}

static const struct user_regs_struct *user_regs_const(const struct arch_registers *registers)
{
	return (const struct user_regs_struct *)registers->word;
}

const char *arch_registers_refused(const struct arch_registers *registers)
{
	const struct user_regs_struct *regs = user_regs_const(registers);
	int64_t number = (int64_t)regs->orig_rax;

	if (registers->size != sizeof(*regs) || (regs->cs & 0xffff) != USER_CS64)
		return "32-bit code";
	if (number >= 0 && (number & X32_SYSCALL_BIT))
		return "x32 code";
	return NULL;
}

void arch_registers_view(const struct arch_registers *registers, struct borrow_registers *ret)
{
	const struct user_regs_struct *regs = user_regs_const(registers);

	*ret = (struct borrow_registers){
		.pc = regs->rip,
		.sp = regs->rsp,
		.fp = regs->rbp,
		.result = regs->rax,
		.syscall = (int64_t)regs->orig_rax < 0 ? -1 : (int64_t)regs->orig_rax,
		.thread_pointer = regs->fs_base,
		/* DWARF numbers, figure 3.36 of the psABI. */
		.reg = {regs->rax, regs->rdx, regs->rcx, regs->rbx, regs->rsi, regs->rdi, regs->rbp,
			regs->rsp, regs->r8, regs->r9, regs->r10, regs->r11, regs->r12, regs->r13,
			regs->r14, regs->r15, regs->rip},
	};
}

void arch_set_pc(struct arch_registers *registers, uint64_t pc)
{
	user_regs(registers)->rip = pc;
}

/*
 * orig_rax = -1: the kernel must not take the pc for that of a call to restart,
 * or it would subtract 2 from it.
 */
static void regs_enter(struct user_regs_struct *regs, uint64_t pc)
{
	regs->rip = pc;
	regs->orig_rax = UINT64_MAX;
	regs->eflags &= ~(uint64_t)(EFLAGS_TF | EFLAGS_DF | EFLAGS_NT | EFLAGS_AC);
}

void arch_set_syscall(struct arch_registers *registers, uint64_t gadget, long number,
		      const uint64_t args[6])
{
	struct user_regs_struct *regs = user_regs(registers);

	regs_enter(regs, gadget);
	regs->rax = (uint64_t)number;
	regs->rdi = args[0];
	regs->rsi = args[1];
	regs->rdx = args[2];
	regs->r10 = args[3];
	regs->r8 = args[4];
	regs->r9 = args[5];
}

void arch_set_change(struct arch_registers *registers, uint64_t pc, uint64_t address,
		     uint64_t expected, uint64_t value, long number)
{
	struct user_regs_struct *regs = user_regs(registers);

	regs_enter(regs, pc);
	regs->rdi = address;
	regs->rax = expected;
	regs->rdx = value;
	regs->r8 = (uint64_t)number;
}

int64_t arch_syscall_result(const struct arch_registers *registers)
{
	return (int64_t)user_regs_const(registers)->rax;
}

/* The return takes the word below the frame, and leaves rsp where rt_sigreturn expects it. */
void arch_guard_syscall(struct arch_registers *registers, uint64_t sp)
{
	user_regs(registers)->rsp = sp - sizeof(uint64_t);
}

/*
 * As if by a call instruction, which leaves rsp 8 below a multiple of 16. rbp
 * = 0 ends chains of frame pointers.
 */
void arch_set_call(struct arch_registers *registers, uint64_t pc, uint64_t sp, uint64_t argument)
{
	struct user_regs_struct *regs = user_regs(registers);

	regs_enter(regs, pc);
	regs->rsp = (sp & ~(uint64_t)15) - 8;
	regs->rbp = 0;
	regs->rax = 0;
	regs->rdi = argument;
}

/*
 * Calls that return EINTR after any stop, signal(7); those on sockets only
 * with a time-out set. None of them has done anything when it says EINTR
 * (connect goes on in the background; called again it waits on).
 */
static bool returns_eintr(uint64_t number)
{
	switch (number) {
	case SYS_read:
	case SYS_write:
	case SYS_readv:
	case SYS_writev:
	case SYS_preadv2:
	case SYS_pwritev2:
	case SYS_sendfile:
	case SYS_splice:
	case SYS_connect:
	case SYS_accept:
	case SYS_accept4:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_msgrcv:
	case SYS_msgsnd:
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_rt_sigtimedwait:
	case SYS_io_getevents:
	case SYS_io_pgetevents:
	case SYS_io_uring_enter:
		return true;
	default:
		return false;
	}
}

enum arch_interrupted arch_interrupted(const struct arch_registers *registers)
{
	const struct user_regs_struct *regs = user_regs_const(registers);

	if ((int64_t)regs->orig_rax < 0)
		return ARCH_NOT_INTERRUPTED;
	switch (-(int64_t)regs->rax) {
	case ERESTARTSYS:
	case ERESTARTNOINTR:
	case ERESTARTNOHAND:
	case ERESTART_RESTARTBLOCK:
		return ARCH_KERNEL_RESTARTS;
	case EINTR:
		return returns_eintr(regs->orig_rax) ? ARCH_RETURNS_EINTR : ARCH_NOT_INTERRUPTED;
	default:
		return ARCH_NOT_INTERRUPTED;
	}
}

uint64_t arch_syscall_address(const struct arch_registers *registers)
{
	return user_regs_const(registers)->rip - sizeof(arch_syscall_instruction);
}

void arch_restart_unless_handled(struct arch_registers *registers)
{
	user_regs(registers)->rax = (uint64_t)-ERESTARTNOHAND;
}

void arch_remake_syscall(struct arch_registers *registers)
{
	struct user_regs_struct *regs = user_regs(registers);

	regs->rip -= sizeof(arch_syscall_instruction);
	regs->rax = regs->orig_rax;
	regs->orig_rax = UINT64_MAX;
}

/* ---- the frame of rt_sigreturn */

/* arch/x86/include/uapi/asm/sigcontext.h, ucontext.h */
#define UC_FP_XSTATE	     1u
#define UC_SIGCONTEXT_SS     2u
#define UC_STRICT_RESTORE_SS 4u
#define FP_XSTATE_MAGIC1     0x46505853u
#define FP_XSTATE_MAGIC2     0x46505845u

#define XSAVE_ALIGN	     64u
#define XSAVE_LEGACY_SIZE    512u
#define XSAVE_HEADER_SIZE    64u
#define XSAVE_SW_RESERVED    464u /* struct fpx_sw_bytes; in a regset: the features, u64 */
#define XFEATURE_XTILE_DATA  18u
#define XFEATURES	     63u

struct fpx_sw_bytes {
	uint32_t magic1;
	uint32_t extended_size;
	uint64_t features;
	uint32_t xstate_size;
	uint32_t padding[7];
};
_Static_assert(sizeof(struct fpx_sw_bytes) == XSAVE_LEGACY_SIZE - XSAVE_SW_RESERVED,
	       "fpx_sw_bytes");

struct kernel_ucontext {
	uint64_t flags;
	uint64_t link;
	uint64_t stack_sp;
	uint64_t stack_flags;
	uint64_t stack_size;
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15, di, si, bp, bx, dx, ax, cx, sp, ip, eflags;
	uint16_t cs, gs, fs, ss;
	uint64_t err, trapno, oldmask, cr2;
	uint64_t fpstate;
	uint64_t reserved[8];
	uint64_t mask;
};
_Static_assert(sizeof(struct kernel_ucontext) == 304, "kernel_ucontext");

/*
 * do_sigaltstack() refuses a mode that is none, and rt_sigreturn ignores that:
 * the thread keeps the alternate stack that it has.
 */
#define SS_MODE_INVALID 3u

static void ucontext_fill(struct kernel_ucontext *uc, const struct user_regs_struct *regs,
			  uint64_t mask)
{
	*uc = (struct kernel_ucontext){
		.flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
		.stack_flags = SS_MODE_INVALID,
		.r8 = regs->r8,
		.r9 = regs->r9,
		.r10 = regs->r10,
		.r11 = regs->r11,
		.r12 = regs->r12,
		.r13 = regs->r13,
		.r14 = regs->r14,
		.r15 = regs->r15,
		.di = regs->rdi,
		.si = regs->rsi,
		.bp = regs->rbp,
		.bx = regs->rbx,
		.dx = regs->rdx,
		.ax = regs->rax,
		.cx = regs->rcx,
		.sp = regs->rsp,
		.ip = regs->rip,
		.eflags = regs->eflags,
		.cs = (uint16_t)regs->cs,
		.ss = (uint16_t)regs->ss,
		.mask = mask,
	};
}

/* Where each feature's state ends in the standard format of XSAVE; 0: it has none. */
static size_t xsave_end[XFEATURES];

/* A hypervisor answers each CPUID itself, which takes it microseconds. */
void arch_prepare(void)
{
	unsigned int low, high, bytes, offset, ignored;

	__cpuid_count(0xd, 0, low, ignored, ignored, high);
	for (unsigned int i = 2; i < XFEATURES; i++) {
		if (!(((uint64_t)high << 32 | low) >> i & 1))
			continue;
		__cpuid_count(0xd, i, bytes, offset, ignored, ignored);
		xsave_end[i] = offset + bytes;
	}
}

/* Bytes that XSAVE in its standard format uses for @features. */
static size_t xsave_size(uint64_t features)
{
	size_t size = XSAVE_LEGACY_SIZE + XSAVE_HEADER_SIZE;

	for (unsigned int i = 2; i < XFEATURES; i++) {
		if ((features >> i & 1) && xsave_end[i] > size)
			size = xsave_end[i];
	}
	return size;
}

/*
 * A signal frame has a thread's default state, without the tile data of AMX,
 * unless the thread uses that; a larger one is not believed and would restore
 * SSE alone. The regset always has everything.
 */
static size_t sigframe_vector_size(const uint8_t *vector, size_t vector_size,
				   uint64_t *features_ret)
{
	uint64_t features, live;
	size_t size;

	memcpy(&features, vector + XSAVE_SW_RESERVED, sizeof(features));
	memcpy(&live, vector + XSAVE_LEGACY_SIZE, sizeof(live));
	*features_ret = features;
	if (live >> XFEATURE_XTILE_DATA & 1)
		return vector_size;
	*features_ret &= ~(UINT64_C(1) << XFEATURE_XTILE_DATA);
	size = xsave_size(*features_ret);
	return size < vector_size ? size : vector_size;
}

/* Place the first @size bytes of the vector state, which hold @features, at @to. */
static void sigframe_vector(uint8_t *to, const uint8_t *vector, size_t size, uint64_t features)
{
	const uint32_t magic2 = FP_XSTATE_MAGIC2;
	const struct fpx_sw_bytes sw = {
		.magic1 = FP_XSTATE_MAGIC1,
		.extended_size = (uint32_t)(size + sizeof(magic2)),
		.features = features,
		.xstate_size = (uint32_t)size,
	};

	memcpy(to, vector, size);
	memcpy(to + XSAVE_SW_RESERVED, &sw, sizeof(sw));
	memcpy(to + size, &magic2, sizeof(magic2));
}

/*
 *	remote_address
 *	...            up to the next multiple of 64
 *	sp - 8         the return address of a handler, or of a guarded call
 *	sp             struct kernel_ucontext
 *	fpstate        at a multiple of 64, as XRSTOR demands
 */
size_t arch_sigframe(const struct arch_registers *registers, const uint8_t *vector,
		     size_t vector_size, uint64_t mask, uint64_t sigreturn, uint64_t remote_address,
		     uint8_t *buf, size_t size, uint64_t *sp_ret)
{
	const uint64_t align = XSAVE_ALIGN - 1;
	struct kernel_ucontext uc;
	uint64_t sp = (remote_address + sizeof(sigreturn) + align) & ~align;
	uint64_t fpstate = (sp + sizeof(uc) + align) & ~align, features;
	size_t fp_offset = (size_t)(fpstate - remote_address), fp_size, used;

	if (vector_size < XSAVE_LEGACY_SIZE + XSAVE_HEADER_SIZE)
		return 0;
	fp_size = sigframe_vector_size(vector, vector_size, &features);
	used = fp_offset + fp_size + sizeof(uint32_t);
	if (used > size)
		return 0;
	memset(buf, 0, fp_offset);
	ucontext_fill(&uc, user_regs_const(registers), mask);
	uc.fpstate = fpstate;
	memcpy(buf + (sp - sizeof(sigreturn) - remote_address), &sigreturn, sizeof(sigreturn));
	memcpy(buf + (sp - remote_address), &uc, sizeof(uc));
	sigframe_vector(buf + fp_offset, vector, fp_size, features);
	*sp_ret = sp;
	return used;
}

enum arch_relocation arch_relocation_kind(uint32_t type)
{
	switch (type) {
	case R_X86_64_JUMP_SLOT:
		return ARCH_RELOCATION_JUMP_SLOT;
	case R_X86_64_GLOB_DAT:
		return ARCH_RELOCATION_GLOB_DAT;
	case R_X86_64_64:
		return ARCH_RELOCATION_ADDRESS;
	case R_X86_64_TPOFF64:
		return ARCH_RELOCATION_TLS_OFFSET;
	default:
		return ARCH_RELOCATION_OTHER;
	}
}
