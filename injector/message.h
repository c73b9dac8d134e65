/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages of boot (struct ha_message). They come from the target, which may
 * send anything.
 */
#ifndef INJECTOR_MESSAGE_H
#define INJECTOR_MESSAGE_H

#include <stdbool.h>

#include "payload/protocol.h"
#include "resolver/error.h"

/*
 * The next message on the socket @fd; does not wait. *ret_got false: there is
 * none yet. Kind 0: the other end is closed. ERROR_FORMAT: not a message of
 * ours, or one of a kind that boot does not send.
 */
MUST_CHECK struct error *message_receive(int fd, struct ha_message *ret, bool *ret_got);

#endif
