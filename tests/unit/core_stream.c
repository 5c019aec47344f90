/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of messages over a pretended connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "coll/stream.h"
#include "pretended_connection.h"

struct seen {
	uint64_t next_delivery, next_reuse;
	size_t bytes;
	struct coll_stream *receiver;
};

static void fill(void *context, uint64_t message, char *data, size_t bytes)
{
	(void)context;
	memset(data, (int)(message * 37 + 11), bytes);
}

static void check(uint64_t message, const char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		assert_int_equal((unsigned char)data[i], (unsigned char)(message * 37 + 11));
	}
}

static void delivered(void *context, uint64_t message, const char *data, size_t bytes)
{
	struct seen *seen = context;

	assert_int_equal(message, seen->next_delivery++);
	assert_int_equal(bytes, seen->bytes);
	check(message, data, bytes);
}

/* The slot has rested for a whole window of messages and still holds its message. */
static void reuse(void *context, uint64_t message, const char *data, size_t bytes)
{
	struct seen *seen = context;

	assert_int_equal(message, seen->next_reuse++);
	assert_true(message < seen->next_delivery);
	check(message, data, bytes);
}

static void run(struct coll_stream *sender, struct coll_stream *receiver, uint64_t messages)
{
	int idle = 0;

	while (coll_stream_done(sender) < messages || coll_stream_done(receiver) < messages) {
		int moved = chance(50) ? coll_stream_progress(sender, messages)
				       : coll_stream_progress(receiver, messages);

		assert_true(moved >= 0);
		idle = moved ? 0 : idle + 1;
		assert_true(idle < 10000);
		assert_true(coll_stream_started(sender) - coll_stream_done(sender) <=
			    sender->window);
		assert_true(coll_stream_started(receiver) - coll_stream_done(receiver) <=
			    receiver->window);
	}
	assert_int_equal(coll_stream_progress(sender, messages), 0);
	assert_int_equal(coll_stream_progress(receiver, messages), 0);
	assert_int_equal(coll_stream_done(receiver), messages);
	coll_stream_finish(receiver);
}

static void messages_arrive_in_order_and_slots_rest(void **state)
{
	static const size_t sizes[] = {1, 100, 4096, 3};
	struct sb_connection connection = {.tag = 5};
	struct coll_stream sender, receiver;
	struct seen seen = {0};
	const struct coll_stream_hooks hooks = {&seen, fill, delivered, reuse};
	uint64_t total = 0;

	(void)state;
	seed = 3;
	assert_int_equal(coll_stream_open(&sender, &connection, 1, 5, 4096, 0, &hooks), 0);
	assert_int_equal(coll_stream_open(&receiver, &connection, 0, 5, 4096, 1, &hooks), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint64_t messages = i == 3 ? 2 : 500;

		seen.bytes = sizes[i];
		coll_stream_begin(&sender, sizes[i]);
		coll_stream_begin(&receiver, sizes[i]);
		run(&sender, &receiver, messages);
		total += messages;
		assert_int_equal(seen.next_delivery, total);
		assert_int_equal(seen.next_reuse, total);
	}
	coll_stream_close(&sender);
	coll_stream_close(&receiver);
}

static void windows_shrink_with_size(void **state)
{
	(void)state;
	assert_int_equal(coll_stream_window(0), COLL_STEPS);
	assert_int_equal(coll_stream_window(8), COLL_STEPS);
	assert_int_equal(coll_stream_window(8 << 20), 8);
	assert_int_equal(coll_stream_window(16 << 20), 4);
	assert_int_equal(coll_stream_window(1 << 30), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive_in_order_and_slots_rest),
		cmocka_unit_test(windows_shrink_with_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
