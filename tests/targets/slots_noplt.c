// SPDX-License-Identifier: GPL-3.0-or-later
/* calls through the GOT, without a PLT */
#include "tests/targets/slots_program.h"
