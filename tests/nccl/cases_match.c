/* SPDX-License-Identifier: Apache-2.0 */
/* How sends meet receives: sizes, tags, groups, many at once. */
#include "cases.h"

#include <string.h>

void test_sizes(void **state)
{
	static const size_t sizes[] = {0, 1, 8, 127, 128, 129, 4095, 4097, 65536, 1000003};
	struct link link;

	(void)state;
	link_open(0, NCCL_PTR_HOST, &link);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		exchange(&link, sizes[i], sizes[i], i);
		exchange(&link, sizes[i], sizes[i] + 1000, i + 100);
	}
	link_close(&link);
}

void test_send_before_receive(void **state)
{
	struct link link;
	void *request = (void *)1;

	(void)state;
	link_open(0, NCCL_PTR_HOST, &link);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(
			net_isend(&net, link.ends.send, out, 8, 3, link.out_memory, &request),
			NCCL_SUCCESS);
		assert_null(request);
	}
	exchange(&link, 64, 64, 9);
	link_close(&link);
}

/* Sends in another order than the group's; equal tags keep their order. */
void test_group_by_tags(void **state)
{
	static const int tags[8] = {10, 11, 12, 10, 14, 15, 16, 17};
	static const int order[8] = {7, 0, 2, 3, 1, 6, 5, 4};
	struct link link;
	void *data[8], *memory[8], *receive, *send[8];
	size_t room[8];
	int given[8], sizes[8];

	(void)state;
	link_open(0, NCCL_PTR_HOST, &link);
	for (int round = 0; round < 20; round++) {
		memset(in, 0, BUFFER_BYTES);
		for (int i = 0; i < 8; i++) {
			data[i] = in + i * 65536;
			room[i] = 65536;
			given[i] = tags[i];
			memory[i] = link.in_memory;
			pattern_fill(out + i * 65536, 5000 + (size_t)i, (uint64_t)(round * 8 + i));
		}
		receive = NULL;
		assert_int_equal(net_irecv(&net, link.ends.recv, 8, data, room, given, memory,
					   false, &receive),
				 NCCL_SUCCESS);
		assert_non_null(receive);
		for (int i = 0; i < 8; i++) {
			size_t which = (size_t)order[i];

			send[i] = sent(&link, which * 65536, 5000 + which, tags[which]);
		}
		for (int i = 0; i < 8; i++) {
			finish(&net, send[i], NULL);
		}
		finish(&net, receive, sizes);
		for (int i = 0; i < 8; i++) {
			assert_int_equal(sizes[i], 5000 + i);
			assert_int_equal(
				pattern_check(data[i], 5000 + (size_t)i, (uint64_t)(round * 8 + i)),
				5000 + i);
		}
	}
	link_close(&link);
}

/* A tag that the oldest group lacks waits, also when a later group has it. */
void test_oldest_group_only(void **state)
{
	struct link link;
	void *first, *second, *request = NULL, *send;

	(void)state;
	link_open(0, NCCL_PTR_HOST, &link);
	first = expected(&link, 0, 100, 1);
	second = expected(&link, 1000, 100, 2);
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(
			net_isend(&net, link.ends.send, out, 50, 2, link.out_memory, &request),
			NCCL_SUCCESS);
		assert_null(request);
	}
	send = sent(&link, 0, 50, 1);
	finish(&net, send, NULL);
	finish(&net, first, NULL);
	send = sent(&link, 0, 50, 2);
	finish(&net, send, NULL);
	finish(&net, second, NULL);
	link_close(&link);
}

/* 256 receives at once, then 256 sends; one more is refused without an error. */
void test_many_requests(void **state)
{
	static void *receive[256], *send[256];
	struct link link;
	void *one_more, *data = in;
	size_t room = 4096;
	int tag = 3, size;

	(void)state;
	link_open(0, NCCL_PTR_HOST, &link);
	for (int round = 0; round < 3; round++) {
		memset(in, 0, BUFFER_BYTES);
		for (size_t i = 0; i < 256; i++) {
			receive[i] = expected(&link, i * 4096, 4096, 3);
		}
		assert_int_equal(net_irecv(&net, link.ends.recv, 1, &data, &room, &tag,
					   &link.in_memory, false, &one_more),
				 NCCL_SUCCESS);
		assert_null(one_more);
		for (size_t i = 0; i < 256; i++) {
			pattern_fill(out + i * 4096, 4000 - i, i);
			send[i] = sent(&link, i * 4096, 4000 - i, 3);
		}
		for (size_t i = 0; i < 256; i++) {
			finish(&net, send[i], NULL);
			finish(&net, receive[i], &size);
			assert_int_equal(size, 4000 - i);
			assert_int_equal(pattern_check(in + i * 4096, 4000 - i, i), 4000 - i);
		}
	}
	link_close(&link);
}

void test_optional_completion(void **state)
{
	struct link link;
	void *data = in, *receive, *send;
	size_t room = 65536;
	int tag = 3;

	(void)state;
	link_open(0, NCCL_PTR_HOST, &link);
	for (uint64_t number = 0; number < 50; number++) {
		pattern_fill(out, 5000, number);
		assert_int_equal(net_irecv(&net, link.ends.recv, 1, &data, &room, &tag,
					   &link.in_memory, true, &receive),
				 NCCL_SUCCESS);
		assert_non_null(receive);
		send = sent(&link, 0, 5000, 3);
		finish(&net, send, NULL);
		finish(&net, receive, NULL);
		assert_int_equal(pattern_check(in, 5000, number), 5000);
	}
	link_close(&link);
}
