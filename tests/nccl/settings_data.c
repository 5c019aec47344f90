/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that change how data travels. */
#include "settings.h"

#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

void carries_data(struct machine *machine, int device)
{
	const size_t bytes = 300001;
	uint8_t *out = malloc(bytes), *in = malloc(bytes);
	void *out_memory, *in_memory, *receive = NULL, *send = NULL, *data = in;
	size_t room = bytes;
	struct ends ends;
	int tag = 0, size;

	CHECK(out != NULL && in != NULL, "memory");
	ends_open(&machine->net, machine->context, device, &ends);
	CHECK(net_register(&machine->net, ends.send, out, bytes, NCCL_PTR_HOST, &out_memory) == 0,
	      "regMr");
	CHECK(net_register(&machine->net, ends.recv, in, bytes, NCCL_PTR_HOST, &in_memory) == 0,
	      "regMr");
	for (uint64_t number = 0; number < 20; number++) {
		pattern_fill(out, bytes, number);
		CHECK(net_irecv(&machine->net, ends.recv, 1, &data, &room, &tag, &in_memory, false,
				&receive) == NCCL_SUCCESS &&
			      receive != NULL,
		      "irecv");
		for (send = NULL; send == NULL;) {
			CHECK(net_isend(&machine->net, ends.send, out, bytes, tag, out_memory,
					&send) == NCCL_SUCCESS,
			      "isend");
		}
		finish(&machine->net, send, NULL);
		finish(&machine->net, receive, &size);
		CHECK((size_t)size == bytes && pattern_check(in, bytes, number) == bytes, "data");
	}
	CHECK(net_deregister(&machine->net, ends.send, out_memory) == 0, "deregMr");
	CHECK(net_deregister(&machine->net, ends.recv, in_memory) == 0, "deregMr");
	ends_close(&machine->net, &ends);
	free(in);
	free(out);
}

static void first_carries_data(struct machine *machine)
{
	both(machine);
	carries_data(machine, 0);
}

static void classes(struct machine *machine)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	void *context, *listener, *comm;

	void *first = machine->context;

	CHECK(net_init(&machine->net, 96, &context) == NCCL_SUCCESS, "init");
	machine->context = context;
	carries_data(machine, 1);
	machine->context = first;
	CHECK(net_finalize(&machine->net, context) == NCCL_SUCCESS, "finalize");
	CHECK(net_init(&machine->net, 300, &context) == NCCL_SUCCESS, "init");
	CHECK(net_listen(&machine->net, context, 0, handle, &listener) == NCCL_SUCCESS, "listen");
	CHECK(net_connect(&machine->net, context, 0, handle, &comm) == NCCL_INVALID_ARGUMENT,
	      "traffic class 300 was taken");
	CHECK(comm == NULL, "comm");
	CHECK(net_close_listen(&machine->net, listener) == NCCL_SUCCESS, "closeListen");
	CHECK(net_finalize(&machine->net, context) == NCCL_SUCCESS, "finalize");
}

/* The port has one key: nothing can be connected, and the log says so. */
static void no_such_pkey(struct machine *machine)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	enum nccl_result result = NCCL_SUCCESS;
	double deadline = seconds_now() + 20;
	void *listener, *send = NULL, *recv = NULL;

	CHECK(net_listen(&machine->net, machine->context, 0, handle, &listener) == NCCL_SUCCESS,
	      "listen");
	while (result == NCCL_SUCCESS && seconds_now() < deadline) {
		result = net_connect(&machine->net, machine->context, 0, handle, &send);
		if (recv == NULL) {
			net_accept(&machine->net, listener, &recv);
		}
		CHECK(send == NULL && recv == NULL, "a connection with P_Key index 5");
		sched_yield();
	}
	CHECK(result != NCCL_SUCCESS && net_logged("P_Key index 5 (NCCL_IB_PKEY)"), "result %d",
	      result);
	CHECK(net_close_listen(&machine->net, listener) == NCCL_SUCCESS, "closeListen");
}

static void no_interface(struct machine *machine)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	void *listener;

	CHECK(net_listen(&machine->net, machine->context, 0, handle, &listener) != NCCL_SUCCESS,
	      "listen");
	CHECK(net_logged("NCCL_SOCKET_IFNAME=nothing"), "no word about the interface");
}

static void no_merging(struct machine *machine)
{
	const int members[2] = {0, 1};
	int device;

	CHECK(net_make_virtual(&machine->net, &device, members, 2) != NCCL_SUCCESS, "makeVDevice");
}

/* The control socket's address is in the log as soon as there is something to say of the peer. */
static void ipv6_carries_data(struct machine *machine)
{
	_Alignas(8) uint8_t handle[NCCL_HANDLE_BYTES];
	void *listener, *comm = NULL;

	first_carries_data(machine);
	/* A listener that is gone: the error names its address. */
	CHECK(net_listen(&machine->net, machine->context, 0, handle, &listener) == NCCL_SUCCESS &&
		      net_close_listen(&machine->net, listener) == NCCL_SUCCESS,
	      "listen");
	while (net_connect(&machine->net, machine->context, 0, handle, &comm) == NCCL_SUCCESS) {
		CHECK(comm == NULL, "connected to nothing");
		sched_yield();
	}
	CHECK(net_logged("[::1]"), "not over IPv6");
}

void test_ipv6(void **state)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	int status = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&address, sizeof(address));

	(void)state;
	if (fd >= 0) {
		close(fd);
	}
	if (status != 0) {
		printf("skipped: no IPv6 on the loopback interface\n");
		skip();
	}
	in_process(ipv6_carries_data,
		   WITH("NCCL_SOCKET_FAMILY=AF_INET6", "SWITCHBACK_CONNECT_TIMEOUT=2"));
}

void test_data_settings(void **state)
{
	(void)state;
	in_process(first_carries_data, WITH("NCCL_IB_QPS_PER_CONNECTION=3"));
	in_process(first_carries_data, WITH("NCCL_IB_QPS_PER_CONNECTION=none"));
	in_process(first_carries_data, WITH("SWITCHBACK_SEND_ACK=1"));
	in_process(first_carries_data, WITH("SWITCHBACK_FAILOVER=0"));
	in_process(first_carries_data, WITH("NCCL_IB_GID_INDEX=1", "NCCL_IB_SL=3", "NCCL_IB_TC=41",
					    "NCCL_IB_TIMEOUT=20", "NCCL_IB_RETRY_CNT=7"));
	in_process(first_carries_data, WITH("NCCL_IB_PCI_RELAXED_ORDERING=1"));
	in_process(first_carries_data, WITH("NCCL_IB_GID_INDEX=0"));
	in_process(first_carries_data, WITH("NCCL_IB_PKEY=0"));
	in_process(no_such_pkey, WITH("NCCL_IB_PKEY=5", "SWITCHBACK_CONNECT_TIMEOUT=2"));
	in_process(first_carries_data, WITH("NCCL_IB_SPLIT_DATA_ON_QPS=0", "NCCL_IB_USE_INLINE=1",
					    "NCCL_IB_ADAPTIVE_ROUTING=1"));
	in_process(first_carries_data,
		   WITH("NCCL_SOCKET_IFNAME==lo", "NCCL_SOCKET_FAMILY=AF_INET"));
	in_process(no_interface, WITH("NCCL_SOCKET_IFNAME=nothing"));
	in_process(classes, WITH("NCCL_IB_HCA="));
	in_process(no_merging, WITH("NCCL_IB_MERGE_NICS=0"));
}
