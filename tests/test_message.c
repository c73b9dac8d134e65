/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/tests.h"

#include "injector/clock.h"
#include "injector/message.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

static int ours, theirs;

static void setup(void)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ours = pair[0];
	theirs = pair[1];
}

static void teardown(void)
{
	close(ours);
	close(theirs);
}

static void say(const void *data, size_t size)
{
	ck_assert_int_eq(send(theirs, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

static void expect_refusal(void)
{
	struct ha_message message;
	bool got;

	assert_fails(message_receive(ours, &message, &got), ERROR_FORMAT);
}

START_TEST(receives_what_boot_sends)
{
	const struct ha_message sent = {
		.magic = HA_MAGIC, .kind = HA_MESSAGE_HELLO, .status = 3, .handle = 0x1234};
	struct ha_message message;
	bool got;

	assert_ok(message_receive(ours, &message, &got));
	ck_assert(!got);
	say(&sent, sizeof(sent));
	assert_ok(message_receive(ours, &message, &got));
	ck_assert(got);
	ck_assert_uint_eq(message.kind, HA_MESSAGE_HELLO);
	ck_assert_uint_eq(message.handle, 0x1234);
}
END_TEST

START_TEST(sees_the_other_end_close)
{
	struct ha_message message;
	bool got;

	close(theirs);
	theirs = -1;
	assert_ok(message_receive(ours, &message, &got));
	ck_assert(got);
	ck_assert_uint_eq(message.kind, 0);
}
END_TEST

/* Boot leaves unread what its descriptors came with. */
START_TEST(gets_what_was_said_before_an_end_with_unread_messages)
{
	const struct ha_message sent = {.magic = HA_MAGIC, .kind = HA_MESSAGE_DONE};
	struct ha_message message;
	bool got;

	ck_assert_int_eq(send(ours, "x", 1, 0), 1);
	say(&sent, sizeof(sent));
	close(theirs);
	theirs = -1;
	assert_ok(message_receive(ours, &message, &got));
	ck_assert(got);
	ck_assert_uint_eq(message.kind, HA_MESSAGE_DONE);
	assert_ok(message_receive(ours, &message, &got));
	ck_assert(got);
	ck_assert_uint_eq(message.kind, 0);
}
END_TEST

/*
 * Boot's last message and its end while we look all the time. One recv() of some
 * thousands comes between the two and tells only the end: two free processors
 * do 100,000 in LOOK_NS, and one that is shared with other work a round or two.
 */
#define LOOK_NS UINT64_C(1500000000)
#define PAIRS	50

static int round_pairs[PAIRS][2];
static int round_at; /* the pair that is looked at */

/* Where one processor serves both sides, the one that looks keeps the other from acting. */
static void spin_fairly(unsigned int looks)
{
	if (looks % 1024 == 0)
		sched_yield();
}

static void *last_words(void *all_sent)
{
	const struct ha_message sent = {.magic = HA_MAGIC, .kind = HA_MESSAGE_DONE};

	for (int i = 0; i < PAIRS; i++) {
		for (unsigned int looks = 1; __atomic_load_n(&round_at, __ATOMIC_ACQUIRE) < i;
		     looks++)
			spin_fairly(looks);
		/* Each at a different distance from our look. */
		for (volatile int wait = 0; wait < 8 * i; wait++)
			;
		if (send(round_pairs[i][1], &sent, sizeof(sent), MSG_NOSIGNAL) != sizeof(sent))
			*(bool *)all_sent = false;
		close(round_pairs[i][1]);
	}
	return NULL;
}

static uint32_t next_kind(int fd)
{
	struct ha_message message;
	bool got = false;

	for (unsigned int looks = 1; !got; looks++) {
		assert_ok(message_receive(fd, &message, &got));
		spin_fairly(looks);
	}
	return message.kind;
}

START_TEST(gets_what_was_said_just_before_an_end)
{
	uint64_t end_ns = clock_now_ns() + LOOK_NS;

	do {
		pthread_t thread;
		bool all_sent = true;

		for (int i = 0; i < PAIRS; i++)
			ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
						    round_pairs[i]),
					 0);
		round_at = -1;
		ck_assert_int_eq(pthread_create(&thread, NULL, last_words, &all_sent), 0);
		for (int i = 0; i < PAIRS; i++) {
			__atomic_store_n(&round_at, i, __ATOMIC_RELEASE);
			ck_assert_uint_eq(next_kind(round_pairs[i][0]), HA_MESSAGE_DONE);
			ck_assert_uint_eq(next_kind(round_pairs[i][0]), 0);
			close(round_pairs[i][0]);
		}
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		ck_assert(all_sent);
	} while (clock_now_ns() < end_ns);
}
END_TEST

START_TEST(refuses_other_lengths)
{
	const struct ha_message sent[2] = {{.magic = HA_MAGIC, .kind = HA_MESSAGE_DONE}};

	say(sent, sizeof(sent[0]) - 1);
	expect_refusal();
	say(sent, sizeof(sent[0]) + 1);
	expect_refusal();
}
END_TEST

START_TEST(refuses_kinds_that_boot_does_not_send)
{
	static const uint32_t kinds[] = {0, HA_MESSAGE_DONE + 1, 4, UINT32_MAX};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		const struct ha_message sent = {.magic = HA_MAGIC, .kind = kinds[i]};

		say(&sent, sizeof(sent));
		expect_refusal();
	}
}
END_TEST

START_TEST(refuses_another_magic)
{
	const struct ha_message sent = {.magic = HA_MAGIC + 1, .kind = HA_MESSAGE_DONE};

	say(&sent, sizeof(sent));
	expect_refusal();
}
END_TEST

Suite *message_suite(void)
{
	Suite *suite = suite_create("message");
	TCase *tcase = tcase_create("message");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, receives_what_boot_sends);
	tcase_add_test(tcase, sees_the_other_end_close);
	tcase_add_test(tcase, gets_what_was_said_before_an_end_with_unread_messages);
	tcase_add_test(tcase, gets_what_was_said_just_before_an_end);
	tcase_add_test(tcase, refuses_other_lengths);
	tcase_add_test(tcase, refuses_kinds_that_boot_does_not_send);
	tcase_add_test(tcase, refuses_another_magic);
	suite_add_tcase(suite, tcase);
	return suite;
}
