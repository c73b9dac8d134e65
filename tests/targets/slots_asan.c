// SPDX-License-Identifier: GPL-3.0-or-later
/* with AddressSanitizer: to be refused */
#include "tests/targets/slots_program.h"
