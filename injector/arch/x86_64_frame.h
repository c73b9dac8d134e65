/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where the kernel saves the registers of interrupted code: offsets in the
 * ucontext_t that a signal handler returns to (sp points at it in the
 * trampoline that calls rt_sigreturn). From the kernel's
 * arch/x86/include/uapi/asm/ucontext.h and sigcontext.h.
 */
#ifndef INJECTOR_ARCH_X86_64_FRAME_H
#define INJECTOR_ARCH_X86_64_FRAME_H

#include <stdint.h>

#include "payload/protocol.h"

enum { UCONTEXT_PC = 0xa8 };

/* By DWARF number. */
static const uint8_t ucontext_register[16] = {
	[HA_EXT_R8] = 0x28,  [HA_EXT_R9] = 0x30,  [HA_EXT_R10] = 0x38, [HA_EXT_R11] = 0x40,
	[HA_EXT_R12] = 0x48, [HA_EXT_R13] = 0x50, [HA_EXT_R14] = 0x58, [HA_EXT_R15] = 0x60,
	[HA_EXT_RDI] = 0x68, [HA_EXT_RSI] = 0x70, [HA_EXT_RBP] = 0x78, [HA_EXT_RBX] = 0x80,
	[HA_EXT_RDX] = 0x88, [HA_EXT_RAX] = 0x90, [HA_EXT_RCX] = 0x98, [HA_EXT_RSP] = 0xa0,
};

#endif
