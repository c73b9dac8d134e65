// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/message.h"

#include <stddef.h>
#include <sys/socket.h>

struct error *message_receive(int fd, struct ha_message *ret, bool *ret_got)
{
	struct ha_message message = {0};
	/* With MSG_TRUNC the result is the length of what was sent. */
	ssize_t size = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

	/* ECONNRESET comes first, once, when what we sent was left there unread. */
	*ret_got = size >= 0;
	if (size < 0)
		return NULL;
	if (size == 0) {
		*ret = (struct ha_message){0};
		return NULL;
	}
	if (size != sizeof(message) || message.magic != HA_MAGIC ||
	    (message.kind != HA_MESSAGE_HELLO && message.kind != HA_MESSAGE_DONE))
		return error_create(ERROR_FORMAT,
				    "the payload in the target sent a message that makes no sense");
	*ret = message;
	return NULL;
}
