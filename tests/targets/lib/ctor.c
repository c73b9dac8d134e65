/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A library whose constructor takes a mutex of the program that loads it. */
void deadlock_ctor_enter(void);

__attribute__((constructor)) static void enter(void)
{
	deadlock_ctor_enter();
}
