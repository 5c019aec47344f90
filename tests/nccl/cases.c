/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cases that any network plugin of NCCL has to pass, one by one, through one API version; both ends
 * in this process, over the simulated fabric.
 * Usage: cases PLUGIN VERBS_LIBRARY VERSION
 */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct net net;
void *context;
int device_count;
uint8_t *out, *in;

static void *registered(void *comm, void *data, int type)
{
	void *memory = NULL;

	assert_int_equal(net_register(&net, comm, data, BUFFER_BYTES, type, &memory), NCCL_SUCCESS);
	return memory;
}

void link_open(int device, int type, struct link *link)
{
	ends_open(&net, context, device, &link->ends);
	link->out_memory = registered(link->ends.send, out, type);
	link->in_memory = registered(link->ends.recv, in, type);
}

void link_close(struct link *link)
{
	assert_int_equal(net_deregister(&net, link->ends.send, link->out_memory), NCCL_SUCCESS);
	assert_int_equal(net_deregister(&net, link->ends.recv, link->in_memory), NCCL_SUCCESS);
	ends_close(&net, &link->ends);
}

void *sent(struct link *link, size_t offset, size_t bytes, int tag)
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

void *expected(struct link *link, size_t offset, size_t bytes, int tag)
{
	void *data = in + offset;
	void *request = NULL;

	assert_int_equal(net_irecv(&net, link->ends.recv, 1, &data, &bytes, &tag, &link->in_memory,
				   false, &request),
			 NCCL_SUCCESS);
	assert_non_null(request);
	return request;
}

void exchange(struct link *link, size_t bytes, size_t room, uint64_t number)
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
