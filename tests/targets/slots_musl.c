// SPDX-License-Identifier: GPL-3.0-or-later
/* built with musl-gcc (targets.mk) */
#include "tests/targets/slots_program.h"
