/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, flushes of what came by them, several ports as one. */
#include "cases.h"

#include <sched.h>
#include <string.h>

void test_properties(void **state)
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

/* Memory that is said to be the GPU's: flushed on the device that the data came by. */
void test_flush(void **state)
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

/* The sender is done and closes; what it sent is flushed all the same. */
void test_flush_after_close(void **state)
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

/* A flush while the port that the data came by is dead. */
void test_flush_after_cut(void **state)
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

/* Two ports as one device: data split over both, also while one of them is cut. */
void test_virtual_device(void **state)
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
