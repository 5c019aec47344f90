/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong use and what is not there: errors, no harm, no hang. */
#include "cases.h"

#include <sched.h>
#include <string.h>

void test_wrong_use(void **state)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	struct link link;
	void *comm = NULL, *request = NULL, *data = in, *memory, *many[9], *many_memory[9];
	size_t room = 100, rooms[9];
	int tag = 1, tags[9], before = net_warnings();

	(void)state;
	memset(handle, 0x5a, sizeof(handle));
	assert_int_not_equal(net_connect(&net, context, 0, handle, &comm), NCCL_SUCCESS);
	assert_null(comm);
	memset(handle, 0, sizeof(handle));
	assert_int_not_equal(net_connect(&net, context, 0, handle, &comm), NCCL_SUCCESS);
	assert_true(net_warnings() >= before + 2);
	link_open(0, NCCL_PTR_HOST, &link);
	assert_int_not_equal(net_isend(&net, link.ends.recv, out, 8, 1, link.out_memory, &request),
			     NCCL_SUCCESS);
	assert_int_not_equal(net_irecv(&net, link.ends.send, 1, &data, &room, &tag, &link.in_memory,
				       false, &request),
			     NCCL_SUCCESS);
	for (int i = 0; i < 9; i++) {
		many[i] = in;
		many_memory[i] = link.in_memory;
		rooms[i] = 8;
		tags[i] = 1;
	}
	assert_int_not_equal(
		net_irecv(&net, link.ends.recv, 9, many, rooms, tags, many_memory, false, &request),
		NCCL_SUCCESS);
	assert_int_not_equal(net_register(&net, link.ends.recv, in, 4096, 99, &memory),
			     NCCL_SUCCESS);
	assert_int_not_equal(net_close_send(&net, link.ends.recv), NCCL_SUCCESS);
	/* None of it did harm. */
	exchange(&link, 1000, 1000, 1);
	link_close(&link);
}

/* A handle of a listener that is gone: an error within the time allowed, not a hang. */
void test_nobody_there(void **state)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	enum nccl_result result = NCCL_SUCCESS;
	double deadline = seconds_now() + 30;
	void *listener, *comm = NULL;

	(void)state;
	assert_int_equal(net_listen(&net, context, 0, handle, &listener), NCCL_SUCCESS);
	assert_int_equal(net_close_listen(&net, listener), NCCL_SUCCESS);
	while (result == NCCL_SUCCESS && seconds_now() < deadline) {
		result = net_connect(&net, context, 0, handle, &comm);
		assert_null(comm);
		sched_yield();
	}
	assert_int_not_equal(result, NCCL_SUCCESS);
}

/* Larger than its receive: an error at both ends, nothing written behind the buffer. */
void test_oversize(void **state)
{
	struct link link;
	enum nccl_result result = NCCL_SUCCESS;
	double deadline = seconds_now() + 20;
	void *receive, *request = NULL;
	int done = 0, before = net_warnings();

	(void)state;
	link_open(0, NCCL_PTR_HOST, &link);
	memset(in, 0xa5, 8192);
	receive = expected(&link, 0, 1000, 3);
	while (result == NCCL_SUCCESS && request == NULL && seconds_now() < deadline) {
		result = net_isend(&net, link.ends.send, out, 1001, 3, link.out_memory, &request);
	}
	assert_int_not_equal(result, NCCL_SUCCESS);
	assert_null(request);
	result = NCCL_SUCCESS;
	while (result == NCCL_SUCCESS && seconds_now() < deadline) {
		result = net_test(&net, receive, &done, NULL);
		assert_int_equal(done, 0);
	}
	assert_int_not_equal(result, NCCL_SUCCESS);
	assert_true(net_warnings() > before);
	for (size_t i = 0; i < 8192; i++) {
		assert_int_equal(in[i], 0xa5);
	}
	link_close(&link);
}
