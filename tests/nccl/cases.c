/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases that any network plugin of NCCL has to pass, one by one, through one API version; both ends
 * in this process, over the simulated fabric.
 * Usage: cases PLUGIN VERBS_LIBRARY VERSION
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define BUFFER_BYTES (4u << 20)

static struct net net;
static void *context;
static int device_count;
static uint8_t *out, *in; /* BUFFER_BYTES each */

static void *registered(void *comm, void *data, int type)
{
	void *memory = NULL;

	assert_int_equal(net_register(&net, comm, data, BUFFER_BYTES, type, &memory), NCCL_SUCCESS);
	return memory;
}

struct link {
	struct ends ends;
	void *out_memory, *in_memory;
};

static void link_open(int device, int type, struct link *link)
{
	ends_open(&net, context, device, &link->ends);
	link->out_memory = registered(link->ends.send, out, type);
	link->in_memory = registered(link->ends.recv, in, type);
}

static void link_close(struct link *link)
{
	assert_int_equal(net_deregister(&net, link->ends.send, link->out_memory), NCCL_SUCCESS);
	assert_int_equal(net_deregister(&net, link->ends.recv, link->in_memory), NCCL_SUCCESS);
	ends_close(&net, &link->ends);
}

/* Until the plugin takes it. */
static void *sent(struct link *link, size_t offset, size_t bytes, int tag)
{
	double deadline = seconds_now() + 20;
	void *request = NULL;

	while (request == NULL) {
		assert_int_equal(net_isend(&net, link->ends.send, out + offset, bytes, tag,
					   link->out_memory, &request),
				 NCCL_SUCCESS);
		assert_true(seconds_now() < deadline);
	}
	return request;
}

static void *expected(struct link *link, size_t offset, size_t bytes, int tag)
{
	void *data = in + offset;
	void *request = NULL;

	assert_int_equal(net_irecv(&net, link->ends.recv, 1, &data, &bytes, &tag, &link->in_memory,
				   false, &request),
			 NCCL_SUCCESS);
	assert_non_null(request);
	return request;
}

static void exchange(struct link *link, size_t bytes, size_t room, uint64_t number)
{
	void *receive, *send;
	int size = -1;

	pattern_fill(out, bytes, number);
	memset(in, 0xa5, room + 64);
	receive = expected(link, 0, room, 3);
	send = sent(link, 0, bytes, 3);
	finish(&net, send, NULL);
	finish(&net, receive, &size);
	assert_int_equal(size, bytes);
	assert_int_equal(pattern_check(in, bytes, number), bytes);
	for (size_t i = bytes; i < room + 64; i++) {
		assert_int_equal(in[i], 0xa5);
	}
}

/* ---- cases ---- */

static void test_properties(void **state)
{
	(void)state;
	assert_int_equal(device_count, 2);
	for (int i = 0; i < device_count; i++) {
		struct nccl_properties_v12 properties;

		assert_int_equal(net_properties(&net, i, &properties), NCCL_SUCCESS);
		assert_non_null(properties.name);
		assert_true(properties.pointers & NCCL_PTR_HOST);
		assert_false(properties.pointers & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF));
		assert_int_equal(properties.speed, 100000);
		assert_true(properties.max_comms > 0);
		assert_int_equal(properties.max_recvs, 8);
		assert_int_equal(properties.device_type, NCCL_NET_DEVICE_HOST);
		assert_true(net.version < 8 || properties.reg_is_global == 1);
		assert_true(net.version < 9 || properties.max_p2p_bytes == (size_t)1 << 40);
		assert_true(net.version < 9 || properties.members.count == 1);
		assert_true(net.version < 9 || properties.members.devices[0] == i);
		assert_int_equal(properties.rail, -1);
	}
	struct nccl_properties_v12 none;

	assert_int_not_equal(net_properties(&net, device_count, &none), NCCL_SUCCESS);
	assert_int_not_equal(net_properties(&net, -1, &none), NCCL_SUCCESS);
	assert_int_equal(net_set_attributes(&net, context), NCCL_SUCCESS);
}

static void test_sizes(void **state)
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

static void test_early_listener_close(void **state)
{
	struct link link;

	(void)state;
	link_open(1, NCCL_PTR_HOST, &link);
	assert_int_equal(net_close_listen(&net, link.ends.listener), NCCL_SUCCESS);
	link.ends.listener = NULL;
	exchange(&link, 70000, 70000, 5);
	link_close(&link);
}

static void test_listener_reuse(void **state)
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

static void test_send_before_receive(void **state)
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
static void test_group_by_tags(void **state)
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
static void test_oldest_group_only(void **state)
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
static void test_many_requests(void **state)
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

static void test_optional_completion(void **state)
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

/* Memory that is said to be the GPU's: flushed on the device that the data came by. */
static void test_flush(void **state)
{
	struct link link;
	void *data[2] = {in, in + 65536}, *memory[2], *receive, *flush = NULL, *send;
	int size = 0, sizes[2] = {0, 70}, none[2] = {0, 0};

	(void)state;
	link_open(0, NCCL_PTR_CUDA, &link);
	memory[0] = memory[1] = link.in_memory;
	for (uint64_t number = 0; number < 100; number++) {
		pattern_fill(out, 9000, number);
		receive = expected(&link, 0, 65536, 3);
		send = sent(&link, 0, 9000, 3);
		finish(&net, receive, &size);
		assert_int_equal(net_iflush(&net, link.ends.recv, 1, data, &size, memory, &flush),
				 NCCL_SUCCESS);
		assert_non_null(flush);
		finish(&net, flush, NULL);
		finish(&net, send, NULL);
		assert_int_equal(pattern_check(in, 9000, number), 9000);
	}
	assert_int_equal(net_iflush(&net, link.ends.recv, 2, data, sizes, memory, &flush),
			 NCCL_SUCCESS);
	assert_non_null(flush);
	finish(&net, flush, NULL);
	/* Nothing to flush: nothing to wait for. */
	assert_int_equal(net_iflush(&net, link.ends.recv, 2, data, none, memory, &flush),
			 NCCL_SUCCESS);
	assert_null(flush);
	link_close(&link);
}

static void test_wrong_use(void **state)
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
static void test_nobody_there(void **state)
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
static void test_oversize(void **state)
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

static void test_close_in_flight(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		close_with_requests(true);
		close_with_requests(false);
	}
}

/* The last send is done, its end closes at once; the data is there all the same. */
static void test_close_after_send(void **state)
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

/* The sender is done and closes; what it sent is flushed all the same. */
static void test_flush_after_close(void **state)
{
	struct link link;
	void *data = in, *receive, *flush = NULL, *send;
	double until;
	int size = 0;

	(void)state;
	link_open(0, NCCL_PTR_CUDA, &link);
	pattern_fill(out, 9000, 4);
	receive = expected(&link, 0, 65536, 3);
	send = sent(&link, 0, 9000, 3);
	finish(&net, send, NULL);
	finish(&net, receive, &size);
	net_deregister(&net, link.ends.send, link.out_memory);
	assert_int_equal(net_close_send(&net, link.ends.send), NCCL_SUCCESS);
	for (until = seconds_now() + 0.3; seconds_now() < until; sched_yield()) {
		assert_int_equal(
			net_iflush(&net, link.ends.recv, 1, &data, &size, &link.in_memory, &flush),
			NCCL_SUCCESS);
		assert_non_null(flush);
		finish(&net, flush, NULL);
	}
	assert_int_equal(pattern_check(in, 9000, 4), 9000);
	net_deregister(&net, link.ends.recv, link.in_memory);
	assert_int_equal(net_close_recv(&net, link.ends.recv), NCCL_SUCCESS);
	assert_int_equal(net_close_listen(&net, link.ends.listener), NCCL_SUCCESS);
}

/* Two ports as one device: data split over both, also while one of them is cut. */
static void test_virtual_device(void **state)
{
	static const size_t sizes[] = {0, 1, 127, 128, 129, 255, 256, 257, 4096, 100001, 1000003};
	const int members[2] = {0, 1}, twice[2] = {1, 1}, missing[2] = {0, 99};
	struct nccl_properties_v12 properties;
	struct link link;
	int device = -1;

	(void)state;
	if (net.version < 9) {
		assert_int_equal(net_make_virtual(&net, &device, members, 2), NCCL_INVALID_USAGE);
		return;
	}
	assert_int_not_equal(net_make_virtual(&net, &device, twice, 2), NCCL_SUCCESS);
	assert_int_not_equal(net_make_virtual(&net, &device, missing, 2), NCCL_SUCCESS);
	assert_int_not_equal(net_make_virtual(&net, &device, members, 0), NCCL_SUCCESS);
	assert_int_equal(net_make_virtual(&net, &device, members, 2), NCCL_SUCCESS);
	assert_true(device >= 2);
	assert_int_equal(net_properties(&net, device, &properties), NCCL_SUCCESS);
	assert_int_equal(properties.members.count, 2);
	assert_int_equal(properties.speed, 200000);
	assert_string_equal(properties.name, "sbr0+sbr1");
	link_open(device, NCCL_PTR_HOST, &link);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		exchange(&link, sizes[i], sizes[i] + 500, i);
	}
	fixture_fault("rail1", "down", NULL);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		exchange(&link, sizes[i], sizes[i] + 500, 50 + i);
	}
	fixture_restore("rail1");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		exchange(&link, sizes[i], sizes[i] + 500, 90 + i);
	}
	link_close(&link);
}

/* A flush while the port that the data came by is dead. */
static void test_flush_after_cut(void **state)
{
	struct link link;
	void *data = in, *receive, *flush = NULL, *send;
	int size = 0;

	(void)state;
	link_open(0, NCCL_PTR_CUDA, &link);
	for (uint64_t number = 0; number < 6; number++) {
		pattern_fill(out, 9000, number);
		receive = expected(&link, 0, 65536, 3);
		send = sent(&link, 0, 9000, 3);
		finish(&net, receive, &size);
		if (number % 2 == 0) {
			fixture_fault("rail0", "down", NULL);
		} else {
			fixture_restore("rail0");
		}
		assert_int_equal(
			net_iflush(&net, link.ends.recv, 1, &data, &size, &link.in_memory, &flush),
			NCCL_SUCCESS);
		assert_non_null(flush);
		finish(&net, flush, NULL);
		finish(&net, send, NULL);
		assert_int_equal(pattern_check(in, 9000, number), 9000);
	}
	link_close(&link);
}

/* From v11 on communicators come and go; devices and handles stay good. */
static void test_communicators(void **state)
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_properties),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_early_listener_close),
		cmocka_unit_test(test_listener_reuse),
		cmocka_unit_test(test_send_before_receive),
		cmocka_unit_test(test_group_by_tags),
		cmocka_unit_test(test_oldest_group_only),
		cmocka_unit_test(test_many_requests),
		cmocka_unit_test(test_optional_completion),
		cmocka_unit_test(test_flush),
		cmocka_unit_test(test_wrong_use),
		cmocka_unit_test(test_nobody_there),
		cmocka_unit_test(test_oversize),
		cmocka_unit_test(test_close_in_flight),
		cmocka_unit_test(test_close_after_send),
		cmocka_unit_test(test_flush_after_close),
		cmocka_unit_test(test_virtual_device),
		cmocka_unit_test(test_flush_after_cut),
		cmocka_unit_test(test_communicators),
	};
	int failed;

	if (argc != 4) {
		fprintf(stderr, "usage: %s PLUGIN VERBS_LIBRARY VERSION\n", argv[0]);
		return 2;
	}
	fixture_fabric(argv[2], 1, 2);
	fixture_pci((const char *const[]){"0000:81:00.0", "0000:82:00.0", NULL});
	setenv("SWITCHBACK_CONNECT_TIMEOUT", "3", 1);
	net_log_verbose(getenv("CASES_VERBOSE") != NULL);
	out = aligned_alloc(4096, BUFFER_BYTES);
	in = aligned_alloc(4096, BUFFER_BYTES);
	CHECK(out != NULL && in != NULL, "memory");
	CHECK(net_load(argv[1], atoi(argv[3]), &net) == 0, "plugin");
	CHECK(net_init(&net, NCCL_UNDEFINED, &context) == NCCL_SUCCESS, "init");
	CHECK(net_devices(&net, &device_count) == NCCL_SUCCESS, "devices");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	CHECK(net_finalize(&net, context) == NCCL_SUCCESS, "finalize");
	free(in);
	free(out);
	return failed != 0;
}
