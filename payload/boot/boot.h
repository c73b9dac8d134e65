/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Boot: what the borrowed thread does between the injector's raw system calls.
 * Its steps are described under "Boot" in payload/protocol.h.
 *
 * core_boot() is where the injector lets the thread start (ha_core.boot); it
 * and boot_sigreturn() are written for each machine in payload/arch.
 */
#ifndef PAYLOAD_BOOT_BOOT_H
#define PAYLOAD_BOOT_BOOT_H

#include "payload/protocol.h"

/* Do all of it on the stack that core_boot() has set up. */
_Noreturn void boot_run(struct ha_boot *boot);

/* Load every register from the frame at @sigframe, an address for sp at rt_sigreturn. */
_Noreturn void boot_sigreturn(uint64_t sigframe);

#endif
