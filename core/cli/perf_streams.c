/* SPDX-License-Identifier: Apache-2.0 */
/* `perf sendrecv`: each rank sends to the next one of the ring and receives from the previous one.
 */
#include "perf_rank.h"

#include <errno.h>
#include <inttypes.h>

#include "coll/stream.h"
#include "perf_verify.h"
#include "util/clock.h"

static void fill(void *context, uint64_t message, char *data, size_t bytes)
{
	struct perf_work *work = context;

	perf_pattern_fill(work->self->send_id, message, data, bytes);
}

static void verify(struct perf_work *work, uint64_t message, const char *data, size_t bytes,
		   const char *when)
{
	size_t wrong;
	size_t first = perf_pattern_check(work->self->receive_id, message, data, bytes, &wrong);

	if (first != PERF_NO_ERROR) {
		perf_rank_wrong(work,
				"message %" PRIu64 " of connection %016" PRIx64
				": %zu of %zu bytes "
				"wrong %s, the first at offset %zu (it is 0x%02x)",
				message, work->self->receive_id, wrong, bytes, when, first,
				(unsigned char)data[first]);
	}
}

static void delivered(void *context, uint64_t message, const char *data, size_t bytes)
{
	struct perf_work *work = context;

	perf_rank_delivered(work);
	if (!work->shared->options->check) {
		return;
	}
	if (bytes != work->expected_bytes) {
		perf_rank_wrong(work, "message %" PRIu64 ": %zu bytes received, %zu sent", message,
				bytes, work->expected_bytes);
		return;
	}
	verify(work, message, data, bytes, "at delivery");
	atomic_fetch_add(&work->self->verified_messages, 1);
	atomic_fetch_add(&work->self->verified_bytes, bytes);
}

static void reuse(void *context, uint64_t message, const char *data, size_t bytes)
{
	verify(context, message, data, bytes, "some time after delivery");
}

/* How far the sender may go: a window ahead, until the time is over or enough are sent. */
static void authorize(struct perf_work *work, int size, const struct coll_stream *sender,
		      uint64_t start_ns)
{
	const struct perf_options *options = work->shared->options;
	struct perf_rank *self = work->self;
	uint64_t allowed = atomic_load(&self->allowed[size]);
	uint64_t most = options->iterations != 0 ? options->iterations : UINT64_MAX;
	uint64_t ahead = coll_stream_started(sender) + sender->window;

	if (atomic_load(&self->final[size]) != UINT64_MAX) {
		return;
	}
	if (allowed == most || atomic_load(&work->shared->stop) ||
	    (options->iterations == 0 && allowed > 0 && perf_rank_time_over(work, start_ns))) {
		atomic_store(&self->final[size], allowed);
		return;
	}
	ahead = ahead < most ? ahead : most;
	if (ahead > allowed) {
		atomic_store(&self->allowed[size], ahead);
	}
}

static int run_size(struct perf_work *work, int size, struct coll_stream *sender,
		    struct coll_stream *receiver)
{
	struct perf_rank *self = work->self;
	struct perf_rank *previous = &work->shared->ranks[self->previous];
	size_t bytes = (size_t)work->shared->options->sizes[size];
	uint64_t start_ns;
	int result = perf_rank_barrier(work);

	work->expected_bytes = bytes;
	coll_stream_begin(sender, bytes);
	coll_stream_begin(receiver, bytes);
	start_ns = sb_clock_ns();
	while (result >= 0 && (coll_stream_done(sender) < atomic_load(&self->final[size]) ||
			       coll_stream_done(receiver) < atomic_load(&previous->final[size]))) {
		int moved;

		authorize(work, size, sender, start_ns);
		moved = coll_stream_progress(sender, atomic_load(&self->allowed[size]));
		if (moved < 0) {
			return perf_rank_connection_failed(work, moved);
		}
		result = coll_stream_progress(receiver, atomic_load(&previous->allowed[size]));
		if (result < 0) {
			return perf_rank_connection_failed(work, result);
		}
		result = perf_rank_pass(work, moved | result);
	}
	if (result < 0) {
		return result;
	}
	self->results[size].iterations = coll_stream_done(receiver);
	self->results[size].ns = sb_clock_ns() - start_ns;
	coll_stream_finish(receiver);
	return 0;
}

int perf_run_streams(struct perf_work *work)
{
	const struct perf_options *options = work->shared->options;
	struct coll_stream_hooks hooks = {work, options->check ? fill : NULL, delivered,
					  options->check ? reuse : NULL};
	struct coll_stream sender, receiver;
	int result;

	result = coll_stream_open(&sender, work->send, 1, (uint32_t)work->rank,
				  (size_t)options->sizes[options->size_count - 1], 0, &hooks);
	if (result < 0) {
		return perf_rank_fail(work, result, "memory of the messages to send");
	}
	result = coll_stream_open(&receiver, work->receive, 0, (uint32_t)work->self->previous,
				  (size_t)options->sizes[options->size_count - 1], options->check,
				  &hooks);
	if (result < 0) {
		coll_stream_close(&sender);
		return perf_rank_fail(work, result, "memory of the messages to receive");
	}
	result = perf_rank_ready(work);
	for (int size = 0; size < options->size_count && result >= 0; size++) {
		result = run_size(work, size, &sender, &receiver);
	}
	if (result >= 0) {
		result = perf_rank_barrier(work);
	}
	coll_stream_close(&sender);
	coll_stream_close(&receiver);
	return result;
}
