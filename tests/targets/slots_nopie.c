// SPDX-License-Identifier: GPL-3.0-or-later
/* linked at a fixed address; &free is its own PLT stub */
#include "tests/targets/slots_program.h"
