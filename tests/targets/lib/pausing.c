// SPDX-License-Identifier: GPL-3.0-or-later
/* A library whose constructor does not come back: whoever loads it stays in the loader. */
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((constructor)) static void wait_for_ever(void)
{
	prctl(PR_SET_NAME, "loader");
	for (;;)
		pause();
}
