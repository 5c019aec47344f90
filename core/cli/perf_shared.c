/* SPDX-License-Identifier: Apache-2.0 */
#include "perf.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "util/clock.h"

#define RESOLUTION_NS (20 * SB_US)

static size_t rounded(size_t bytes)
{
	return (bytes + 4095) / 4096 * 4096;
}

/*
 * Ranks of a ring go host by host within a local rank, so that every hop leaves the host and every
 * rail carries traffic both ways (where there is more than one host).
 */
static void place_rank(const struct perf_options *options, struct perf_rank *ranks, int rank)
{
	int hosts = options->hosts;
	int local = rank % options->ranks_per_host;
	int host = rank / options->ranks_per_host;
	int position = local * hosts + host;
	int next = (position + 1) % options->ranks;
	int previous = (position + options->ranks - 1) % options->ranks;

	ranks[rank].host = host;
	ranks[rank].local = local;
	ranks[rank].position = position;
	ranks[rank].next = next % hosts * options->ranks_per_host + next / hosts;
	ranks[rank].previous = previous % hosts * options->ranks_per_host + previous / hosts;
}

struct perf_shared *perf_shared_create(const struct perf_options *options)
{
	size_t ranks = (size_t)options->ranks;
	size_t head = rounded(sizeof(struct perf_shared) + ranks * sizeof(struct perf_rank));
	size_t events = rounded(PERF_EVENTS_MAX * sizeof(struct perf_event));
	size_t deliveries = rounded(PERF_DELIVERIES_MAX * sizeof(uint64_t));
	size_t samples = rounded(PERF_SAMPLES_MAX * sizeof(struct sb_sample));
	size_t bytes = head + ranks * (events + deliveries + samples);
	struct perf_shared *shared;
	char *free_memory;

	/* Only what is written to takes memory. */
	shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (shared == MAP_FAILED) {
		return NULL;
	}
	shared->options = options;
	shared->bytes = bytes;
	free_memory = (char *)shared + head;
	for (int i = 0; i < options->ranks; i++) {
		struct perf_rank *rank = &shared->ranks[i];

		place_rank(options, shared->ranks, i);
		rank->resolution_ns = RESOLUTION_NS;
		rank->events = (struct perf_event *)free_memory;
		free_memory += events;
		rank->deliveries = (uint64_t *)free_memory;
		free_memory += deliveries;
		rank->samples = (struct sb_sample *)free_memory;
		free_memory += samples;
		for (int size = 0; size < PERF_SIZES_MAX; size++) {
			rank->final[size] = UINT64_MAX;
			shared->final[size] = UINT64_MAX;
		}
	}
	return shared;
}

void perf_shared_free(struct perf_shared *shared)
{
	munmap(shared, shared->bytes);
}

void perf_record_event(void *context, const struct sb_event *event)
{
	struct perf_rank *rank = context;
	uint32_t index = atomic_fetch_add(&rank->event_count, 1);
	struct perf_event *record;

	if (index >= PERF_EVENTS_MAX) {
		atomic_fetch_sub(&rank->event_count, 1);
		atomic_fetch_add(&rank->events_lost, 1);
		return;
	}
	record = &rank->events[index];
	record->kind = event->kind;
	record->time_ns = event->time_ns;
	record->connection = event->connection;
	record->is_sender = event->is_sender;
	record->path = event->path;
	record->incarnation = event->incarnation;
	record->epoch = event->epoch;
	record->count = event->count;
	snprintf(record->cause, sizeof(record->cause), "%s",
		 event->cause != NULL ? event->cause : "");
	atomic_store_explicit(&record->ready, 1, memory_order_release);
}

/* Makes room in a very long run: every second time goes, the resolution halves. */
static void thin_out(struct perf_rank *rank, uint32_t count)
{
	for (uint32_t i = 0; i < count / 2; i++) {
		rank->deliveries[i] = rank->deliveries[2 * i];
	}
	rank->resolution_ns *= 2;
	atomic_store_explicit(&rank->delivery_count, count / 2, memory_order_release);
}

void perf_record_delivery(struct perf_rank *rank, uint64_t now_ns)
{
	uint32_t count = atomic_load_explicit(&rank->delivery_count, memory_order_relaxed);

	atomic_store_explicit(&rank->last_delivery_ns, now_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&rank->messages, 1, memory_order_relaxed);
	if (count > 0 && now_ns - rank->deliveries[count - 1] < rank->resolution_ns) {
		return;
	}
	if (count == PERF_DELIVERIES_MAX) {
		thin_out(rank, count);
		count /= 2;
	}
	rank->deliveries[count] = now_ns;
	atomic_store_explicit(&rank->delivery_count, count + 1, memory_order_release);
}

void perf_record_sample(struct perf_rank *rank, const struct sb_connection *connection,
			uint64_t now_ns)
{
	uint32_t count = atomic_load_explicit(&rank->sample_count, memory_order_relaxed);
	struct sb_sample *sample;

	sb_connection_info(connection, &rank->receive_info);
	if (count == PERF_SAMPLES_MAX) {
		return; /* the picture ends after PERF_SAMPLES_MAX steps, 2.9 hours */
	}
	sample = &rank->samples[count];
	sample->time_ns = now_ns;
	for (int i = 0; i < rank->receive_info.paths && i < SB_PATHS_MAX; i++) {
		sample->bytes[i] = rank->receive_info.path[i].bytes;
	}
	atomic_store_explicit(&rank->sample_count, count + 1, memory_order_release);
}
