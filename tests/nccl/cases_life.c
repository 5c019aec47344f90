/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners, connections and communicators come and go, also with requests open. */
#include "cases.h"

#include <sched.h>
#include <string.h>

void test_early_listener_close(void **state)
{
	struct link link;

	(void)state;
	link_open(1, NCCL_PTR_HOST, &link);
	assert_int_equal(net_close_listen(&net, link.ends.listener), NCCL_SUCCESS);
	link.ends.listener = NULL;
	exchange(&link, 70000, 70000, 5);
	link_close(&link);
}

void test_listener_reuse(void **state)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES], copy[3][NCCL_HANDLE_BYTES];
	void *listener, *send[3] = {NULL}, *recv[3] = {NULL};
	double deadline = seconds_now() + 20;
	int open = 0;

	(void)state;
	assert_int_equal(net_listen(&net, context, 0, handle, &listener), NCCL_SUCCESS);
	for (int i = 0; i < 3; i++) {
		memcpy(copy[i], handle, sizeof(handle));
	}
	while (open < 6) {
		open = 0;
		for (int i = 0; i < 3; i++) {
			if (send[i] == NULL) {
				assert_int_equal(net_connect(&net, context, 0, copy[i], &send[i]),
						 NCCL_SUCCESS);
			}
			if (recv[i] == NULL) {
				assert_int_equal(net_accept(&net, listener, &recv[i]),
						 NCCL_SUCCESS);
			}
			open += (send[i] != NULL) + (recv[i] != NULL);
		}
		assert_true(seconds_now() < deadline);
		sched_yield();
	}
	assert_int_equal(net_close_listen(&net, listener), NCCL_SUCCESS);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(net_close_recv(&net, recv[i]), NCCL_SUCCESS);
		assert_int_equal(net_close_send(&net, send[i]), NCCL_SUCCESS);
	}
}

static void close_with_requests(bool send_first)
{
	struct link link, other;

	link_open(0, NCCL_PTR_HOST, &link);
	link_open(1, NCCL_PTR_HOST, &other);
	for (size_t i = 0; i < 20; i++) {
		expected(&link, i * 65536, 65536, 3);
	}
	for (size_t i = 0; i < 10; i++) {
		sent(&link, i * 65536, 65536, 3);
	}
	assert_int_equal(net_deregister(&net, link.ends.send, link.out_memory), NCCL_SUCCESS);
	assert_int_equal(net_deregister(&net, link.ends.recv, link.in_memory), NCCL_SUCCESS);
	if (send_first) {
		assert_int_equal(net_close_send(&net, link.ends.send), NCCL_SUCCESS);
		assert_int_equal(net_close_recv(&net, link.ends.recv), NCCL_SUCCESS);
	} else {
		assert_int_equal(net_close_recv(&net, link.ends.recv), NCCL_SUCCESS);
		assert_int_equal(net_close_send(&net, link.ends.send), NCCL_SUCCESS);
	}
	assert_int_equal(net_close_listen(&net, link.ends.listener), NCCL_SUCCESS);
	exchange(&other, 100000, 100000, 77);
	link_close(&other);
}

void test_close_in_flight(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		close_with_requests(true);
		close_with_requests(false);
	}
}

/* The last send is done, its end closes at once; the data is there all the same. */
void test_close_after_send(void **state)
{
	(void)state;
	for (uint64_t number = 0; number < 10; number++) {
		struct link link;
		void *receive, *send;
		int size = 0;

		link_open(0, NCCL_PTR_HOST, &link);
		pattern_fill(out, 300000, number);
		receive = expected(&link, 0, 300000, 3);
		send = sent(&link, 0, 300000, 3);
		finish(&net, send, NULL);
		net_deregister(&net, link.ends.send, link.out_memory);
		assert_int_equal(net_close_send(&net, link.ends.send), NCCL_SUCCESS);
		finish(&net, receive, &size);
		assert_int_equal(size, 300000);
		assert_int_equal(pattern_check(in, 300000, number), 300000);
		net_deregister(&net, link.ends.recv, link.in_memory);
		assert_int_equal(net_close_recv(&net, link.ends.recv), NCCL_SUCCESS);
		assert_int_equal(net_close_listen(&net, link.ends.listener), NCCL_SUCCESS);
	}
}

/* From v11 on communicators come and go; devices and handles stay good. */
void test_communicators(void **state)
{
	void *more[3];
	struct link link;

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++) {
			assert_int_equal(net_init(&net, i, &more[i]), NCCL_SUCCESS);
			assert_true(net.version < 11 || more[i] != NULL);
		}
		for (int i = 0; i < 3; i++) {
			void *mine = context;

			context = more[i];
			link_open(i % 2, NCCL_PTR_HOST, &link);
			exchange(&link, 5000, 5000, (uint64_t)i);
			link_close(&link);
			context = mine;
			assert_int_equal(net_finalize(&net, more[i]), NCCL_SUCCESS);
		}
		/* The last one goes, the next starts from nothing. */
		assert_int_equal(net_finalize(&net, context), NCCL_SUCCESS);
		assert_int_equal(net_init(&net, NCCL_UNDEFINED, &context), NCCL_SUCCESS);
	}
	link_open(0, NCCL_PTR_HOST, &link);
	exchange(&link, 5000, 5000, 9);
	link_close(&link);
}
