/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/perf_netns.h"

#define CONNECT_PATIENCE 60.0

struct communicator {
	const struct proxy_options *options;
	const struct net *net;
	struct proxy_shared *shared;
	int rank, number, device;
	void *context;
	pthread_t service;
	void *listener[STREAM_KINDS];
	struct stream send[STREAM_KINDS], recv[STREAM_KINDS];
};

/* ---- progress thread ---- */

static bool may_fail(const struct communicator *communicator)
{
	return communicator->options->kill ||
	       (communicator->options->final_cut != NULL && communicator->number % 2 == 0);
}

static void told(struct communicator *communicator, const struct stream *stream, int kind,
		 enum nccl_result result)
{
	uint64_t now_us = (uint64_t)(seconds_now() * 1e6);
	int none = 0;

	CHECK(may_fail(communicator),
	      "the plugin returned %d for %s stream %d of communicator %d, after %llu of %llu "
	      "messages",
	      result, stream->is_sender ? "sending" : "receiving", kind, communicator->number,
	      (unsigned long long)stream->done,
	      (unsigned long long)atomic_load(&stream->shared->last));
	if (atomic_compare_exchange_strong(
		    &communicator->shared->rank[communicator->rank].first_error, &none,
		    (int)result)) {
		atomic_store(&communicator->shared->rank[communicator->rank].first_us, now_us);
	}
	atomic_store(&communicator->shared->rank[communicator->rank].last_us, now_us);
	atomic_fetch_add(&communicator->shared->rank[communicator->rank].errors, 1);
}

/* Until all streams are at their end, or have failed. */
static void *progress(void *argument)
{
	struct communicator *communicator = argument;
	bool failed[2 * STREAM_KINDS] = {false};
	int open = 2 * STREAM_KINDS;

	while (open > 0) {
		bool moved = false;

		open = 0;
		for (int i = 0; i < 2 * STREAM_KINDS; i++) {
			struct stream *stream = i % 2 == 0 ? &communicator->send[i / 2]
							   : &communicator->recv[i / 2];
			enum nccl_result result;

			if (failed[i] || stream_finished(stream)) {
				continue;
			}
			open++;
			if (atomic_load(&communicator->shared->stop)) {
				stream_stop(stream);
			}
			moved |= stream_pass(stream, &result);
			if (result != NCCL_SUCCESS) {
				told(communicator, stream, i / 2, result);
				failed[i] = true;
			}
		}
		if (!moved) {
			sched_yield();
		}
	}
	return NULL;
}

/* ---- service thread ---- */

static void listen_all(struct communicator *communicator)
{
	for (int kind = 0; kind < STREAM_KINDS; kind++) {
		struct stream_shared *shared = communicator->recv[kind].shared;

		CHECK(net_listen(communicator->net, communicator->context, communicator->device,
				 shared->handle, &communicator->listener[kind]) == NCCL_SUCCESS,
		      "listen");
		atomic_store(&shared->listening, 1);
	}
}

/* NCCL keeps the handle in memory of its own and passes that again and again. */
static void connect_all(struct communicator *communicator)
{
	_Alignas(8) uint8_t handle[STREAM_KINDS][NCCL_HANDLE_BYTES];
	bool have[STREAM_KINDS] = {false};
	double deadline = seconds_now() + CONNECT_PATIENCE;
	int missing = 2 * STREAM_KINDS;

	while (missing > 0) {
		missing = 0;
		for (int kind = 0; kind < STREAM_KINDS; kind++) {
			struct stream *send = &communicator->send[kind];
			struct stream *recv = &communicator->recv[kind];

			if (!have[kind] && atomic_load(&send->shared->listening)) {
				memcpy(handle[kind], send->shared->handle, NCCL_HANDLE_BYTES);
				have[kind] = true;
			}
			if (have[kind] && send->comm == NULL) {
				CHECK(net_connect(communicator->net, communicator->context,
						  communicator->device, handle[kind],
						  &send->comm) == NCCL_SUCCESS,
				      "connect");
			}
			if (recv->comm == NULL) {
				CHECK(net_accept(communicator->net, communicator->listener[kind],
						 &recv->comm) == NCCL_SUCCESS,
				      "accept");
			}
			missing += (send->comm == NULL) + (recv->comm == NULL);
		}
		CHECK(seconds_now() < deadline, "%d comms are not connected", missing);
		sched_yield();
	}
	for (int kind = 0; kind < STREAM_KINDS; kind++) {
		CHECK(net_close_listen(communicator->net, communicator->listener[kind]) ==
			      NCCL_SUCCESS,
		      "closeListen");
	}
}

static void close_all(struct communicator *communicator)
{
	for (int kind = 0; kind < STREAM_KINDS; kind++) {
		stream_deregister(&communicator->send[kind]);
		CHECK(net_close_send(communicator->net, communicator->send[kind].comm) ==
			      NCCL_SUCCESS,
		      "closeSend");
		stream_deregister(&communicator->recv[kind]);
		CHECK(net_close_recv(communicator->net, communicator->recv[kind].comm) ==
			      NCCL_SUCCESS,
		      "closeRecv");
	}
	CHECK(net_finalize(communicator->net, communicator->context) == NCCL_SUCCESS, "finalize");
}

static void *service(void *argument)
{
	struct communicator *communicator = argument;
	pthread_t progressing;

	listen_all(communicator);
	connect_all(communicator);
	for (int kind = 0; kind < STREAM_KINDS; kind++) {
		stream_register(&communicator->send[kind]);
		stream_register(&communicator->recv[kind]);
	}
	CHECK(pthread_create(&progressing, NULL, progress, communicator) == 0, "thread");
	atomic_fetch_add(&communicator->shared->started, 1);
	/* Registration at run time, beside the progress thread, as for user buffers. */
	while (!atomic_load(&communicator->shared->stop)) {
		struct stream *stream = &communicator->recv[STREAM_REGISTERED];
		void *memory = NULL, *data = aligned_alloc(4096, 65536);

		CHECK(data != NULL, "memory");
		CHECK(net_register(communicator->net, stream->comm, data, 65536, NCCL_PTR_HOST,
				   &memory) == NCCL_SUCCESS,
		      "regMr");
		usleep(20000);
		CHECK(net_deregister(communicator->net, stream->comm, memory) == NCCL_SUCCESS,
		      "deregMr");
		free(data);
	}
	CHECK(pthread_join(progressing, NULL) == 0, "thread");
	close_all(communicator);
	return NULL;
}

/* ---- rank ---- */

static void take_properties(const struct net *net, int device,
			    struct nccl_properties_v12 *properties)
{
	CHECK(net_properties(net, device, properties) == NCCL_SUCCESS, "device %d", device);
	CHECK(properties->name != NULL, "device %d has no name", device);
	CHECK(properties->max_recvs >= STREAM_GROUP_MAX, "maxRecvs %d", properties->max_recvs);
}

/* The two ports as one device, in NCCL's order of calls: all properties, the merge, the new number
 * of devices, and of each new one its members and theirs. */
static int merge(const struct net *net, int physical)
{
	const int members[2] = {0, 1};
	struct nccl_properties_v12 properties, member;
	int device = -1, count = 0;

	CHECK(net_make_virtual(net, &device, members, 2) == NCCL_SUCCESS, "makeVDevice");
	CHECK(net_devices(net, &count) == NCCL_SUCCESS, "devices");
	CHECK(device == physical && count == physical + 1, "device %d of %d, after %d", device,
	      count, physical);
	take_properties(net, device, &properties);
	CHECK(properties.members.count == 2, "%d members", properties.members.count);
	for (int i = 0; i < properties.members.count; i++) {
		CHECK(properties.members.devices[i] == members[i], "member %d", i);
		take_properties(net, properties.members.devices[i], &member);
		CHECK(member.members.count == 1 && strcmp(member.name, properties.name) != 0,
		      "member %s of %s", member.name, properties.name);
	}
	return device;
}

/* As NCCL does under its lock: init for each communicator, the rest once. */
static void start(struct communicator *communicator)
{
	const struct net *net = communicator->net;
	static int physical = 0, virtual_device = -1;
	struct nccl_properties_v12 properties;

	CHECK(net_init(net, NCCL_UNDEFINED, &communicator->context) == NCCL_SUCCESS, "init");
	if (physical == 0) {
		CHECK(net_devices(net, &physical) == NCCL_SUCCESS && physical >= 1, "%d devices",
		      physical);
		for (int i = 0; i < physical; i++) {
			take_properties(net, i, &properties);
		}
		if (communicator->options->virtual_device) {
			virtual_device = merge(net, physical);
		}
	}
	communicator->device = (communicator->number + communicator->rank) % physical;
	if (communicator->options->final_cut != NULL) {
		communicator->device = communicator->number % physical;
	} else if (virtual_device >= 0) {
		communicator->device = virtual_device;
	}
}

int proxy_rank(const struct proxy_options *options, int rank, struct proxy_shared *shared)
{
	static struct communicator communicators[PROXY_COMMS_MAX];
	struct net net;
	char host[16], error[512];

	if (options->netns != NULL) {
		CHECK(perf_netns_enter(options->netns, rank, error, sizeof(error)) == 0, "%s",
		      error);
		if (strcmp(options->verbs, "-") != 0) {
			setenv("SWITCHBACK_VERBS", options->verbs, 1);
		}
	}
	snprintf(host, sizeof(host), "%d", rank);
	setenv("SWITCHBACK_HOST", host, 1);
	net_log_verbose(options->verbose);
	CHECK(net_load(options->plugin, options->version, &net) == 0, "plugin");
	for (int i = 0; i < options->comms; i++) {
		struct communicator *communicator = &communicators[i];

		*communicator = (struct communicator){.options = options,
						      .net = &net,
						      .shared = shared,
						      .rank = rank,
						      .number = i};
		start(communicator);
		for (int kind = 0; kind < STREAM_KINDS; kind++) {
			uint64_t seed = ((uint64_t)i * STREAM_KINDS + (uint64_t)kind) << 40;
			uint64_t other = 1ull << 63;

			stream_init(&communicator->send[kind], &net, kind, true,
				    seed + (rank == 0 ? 0 : other), &shared->stream[i][kind][rank]);
			stream_init(&communicator->recv[kind], &net, kind, false,
				    seed + (rank == 1 ? 0 : other),
				    &shared->stream[i][kind][1 - rank]);
		}
		CHECK(pthread_create(&communicator->service, NULL, service, communicator) == 0,
		      "thread");
	}
	for (int i = 0; i < options->comms; i++) {
		CHECK(pthread_join(communicators[i].service, NULL) == 0, "thread");
	}
	atomic_store(&shared->rank[rank].warnings, net_warnings());
	return 0;
}
