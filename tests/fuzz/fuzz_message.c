/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What comes through the socket from a hostile target: messages of any length
 * and content, one for each piece of the input that begins with its length. What
 * is taken for a message must be one.
 */
#include "injector/message.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void message_check(int fd)
{
	struct ha_message message;
	struct error *err;
	bool got;

	err = message_receive(fd, &message, &got);
	if (!err && got && message.kind &&
	    (message.magic != HA_MAGIC ||
	     (message.kind != HA_MESSAGE_HELLO && message.kind != HA_MESSAGE_DONE)))
		abort();
	error_free(err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		abort();
	while (size) {
		size_t length = data[0] < size - 1 ? data[0] : size - 1;

		if (send(pair[1], data + 1, length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			break;
		message_check(pair[0]);
		data += 1 + length;
		size -= 1 + length;
	}
	close(pair[1]);
	message_check(pair[0]);
	close(pair[0]);
	return 0;
}
