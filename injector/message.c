// SPDX-License-Identifier: GPL-3.0-or-later
#include "injector/message.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

/* With MSG_TRUNC the result is the length of what was sent. */
static ssize_t message_take(int fd, struct ha_message *message)
{
	return recv(fd, message, sizeof(*message), MSG_DONTWAIT | MSG_TRUNC);
}

struct error *message_receive(int fd, struct ha_message *ret, bool *ret_got)
{
	struct ha_message message = {0};
	ssize_t size = message_take(fd, &message);

	/*
	 * The kernel looks for a message first and for the end after: of a message
	 * and an end that come in between it tells the end. Nothing follows an end,
	 * so a second look is right.
	 */
	if (size == 0)
		size = message_take(fd, &message);
	/* This comes first, once, when what we sent was left there unread. */
	if (size < 0 && errno == ECONNRESET)
		size = message_take(fd, &message);
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
