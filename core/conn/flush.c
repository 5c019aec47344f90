/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flush: makes received GPU data visible to the GPU. The completion record goes to host memory, the
 * data to the GPU; only a read of the GPU's memory that follows the data on its way through PCIe
 * shows that it has arrived. So each device that data came by lately reads one byte of the buffer
 * with RDMA READ through a queue pair that is connected to itself.
 *
 * A path that data came by and that is down since can't be asked. It was fenced, so its last write
 * left the device long ago; a read by any other device of the connection stands in. With no path
 * at all the flush waits until one is back, as all requests do. The peer has no part in it: it may
 * have closed the connection as soon as its last send was done.
 */
#include "conn/conn.h"

#include <errno.h>
#include <string.h>

#include "util/log.h"

#define DEPTH      64
#define POLL_BATCH 16

static uint32_t bit_of(const struct sb_path *path)
{
	return 1u << path->index;
}

/* ---- queues ---- */

void sb_flush_close(struct sb_path *path)
{
	sb_qp_destroy(path->flush.qp);
	sb_cq_destroy(path->flush.cq);
	path->flush = (struct sb_flush_queue){.newest = path->flush.newest};
}

int sb_flush_open(struct sb_connection *connection, struct sb_path *path)
{
	struct sb_flush_queue *queue = &path->flush;
	struct sb_qp_limits limits = {.send_depth = DEPTH, .recv_depth = 1};
	struct sb_qp_address self;
	uint32_t psn = connection->io.random(connection->io.context) & 0xffffff;
	int result;

	sb_flush_close(path);
	result = sb_cq_create(path->port->device, DEPTH, &queue->cq);
	if (result == 0) {
		result = sb_qp_create(path->port, queue->cq, &limits, &queue->qp);
	}
	if (result == 0) {
		sb_qp_local_address(queue->qp, path->port, psn, &self);
		result = sb_qp_connect(queue->qp, path->port, psn, &self);
	}
	if (result != 0) {
		sb_flush_close(path);
		return result;
	}
	queue->usable = true;
	return 0;
}

int sb_flush_enable(struct sb_connection *connection)
{
	int result = 0;

	if (connection->is_sender || atomic_load(&connection->flush_wanted)) {
		return 0;
	}
	sb_owner_take(&connection->owner);
	for (int i = 0; i < connection->path_count && result == 0; i++) {
		struct sb_path *path = &connection->path[i];

		if (sb_path_up(path) && path->flush.qp == NULL) {
			result = sb_flush_open(connection, path);
		}
	}
	atomic_store(&connection->flush_wanted, result == 0);
	sb_owner_give(&connection->owner);
	return result;
}

void sb_flush_path_up(struct sb_connection *connection, struct sb_path *path)
{
	if (atomic_load_explicit(&connection->flush_wanted, memory_order_relaxed) &&
	    !path->flush.usable && sb_flush_open(connection, path) != 0) {
		sb_path_suspect(connection, path, "it can't flush GPU memory");
	}
}

/* What was asked of this path has to be asked of another. */
static void ask_again(struct sb_connection *connection, struct sb_path *path)
{
	path->flush.usable = false;
	path->flush.open = 0;
	for (int i = 0; i < SB_REQUESTS_MAX; i++) {
		struct sb_request *request = &connection->requests[i];

		if (request->kind == SB_REQUEST_FLUSH && (request->waiting & bit_of(path)) != 0) {
			request->waiting &= ~bit_of(path);
			request->again = true;
		}
	}
}

void sb_flush_path_down(struct sb_connection *connection, struct sb_path *path)
{
	if (path->flush.usable && !connection->peer_closed) {
		ask_again(connection, path);
	}
}

/* ---- posting ---- */

static bool can_read(const struct sb_connection *connection, const struct sb_path *path,
		     const struct sb_request *request)
{
	return (sb_path_up(path) || connection->peer_closed) && path->flush.usable &&
	       sb_memory_on(request->memory, path->port->device->index);
}

/* False when its queue is full or refuses. */
static bool post_read(struct sb_connection *connection, struct sb_path *path,
		      struct sb_request *request)
{
	struct ibv_send_wr *bad;
	struct ibv_sge sge = {
		.addr = (uintptr_t)&connection->region.path[path->index].flushed,
		.length = 1,
		.lkey = sb_path_lkey(path, connection->region.memory),
	};
	struct ibv_send_wr work = {
		.wr_id = (uint64_t)(request - connection->requests),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = request->address,
			    .rkey = sb_memory_rkey(request->memory, path->port->device->index)},
	};

	if ((request->waiting & bit_of(path)) != 0) {
		return true;
	}
	if (path->flush.open == DEPTH || ibv_post_send(path->flush.qp, &work, &bad) != 0) {
		return false;
	}
	path->flush.open++;
	sb_count32(&path->outstanding, 1);
	request->waiting |= bit_of(path);
	return true;
}

/* Data may still be on its way only for receives that the user can have seen of late. */
static bool carried_lately(const struct sb_connection *connection, const struct sb_path *path)
{
	return path->flush.newest != 0 && path->flush.newest + SB_WINDOW >= connection->resume;
}

static void post_flush(struct sb_connection *connection, struct sb_request *request)
{
	struct sb_path *other = NULL;

	request->again = false;
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (!can_read(connection, path, request)) {
			continue;
		}
		if (carried_lately(connection, path)) {
			request->again |= !post_read(connection, path, request);
		} else {
			other = path;
		}
	}
	if (request->waiting == 0 && !request->again) {
		request->again = other == NULL || !post_read(connection, other, request);
	}
}

/* Of the last buffer with bytes: reads do not overtake what came before. */
static void choose_buffer(struct sb_request *request, int n, void *const *data, const size_t *bytes,
			  struct sb_memory *const *memory)
{
	for (int i = 0; i < n; i++) {
		if (bytes[i] > 0 && memory[i] != NULL && memory[i]->type == SB_MEMORY_CUDA) {
			request->address = (uintptr_t)data[i];
			request->memory = memory[i];
		}
	}
}

int sb_flush(struct sb_connection *connection, int n, void *const *data, const size_t *bytes,
	     struct sb_memory *const *memory, struct sb_request **request)
{
	struct sb_request *taken;
	int result = 0;

	*request = NULL;
	if (connection->is_sender || n < 1 || n > SB_GROUP_MAX) {
		return -EINVAL;
	}
	sb_owner_enter(&connection->owner);
	taken = connection->free_requests;
	if (connection->failed != 0 && !connection->peer_closed) {
		result = sb_connection_result(connection);
	} else if (taken != NULL) {
		connection->free_requests = taken->next_free;
		*taken = (struct sb_request){.connection = connection, .kind = SB_REQUEST_FLUSH};
		choose_buffer(taken, n, data, bytes, memory);
		if (taken->memory != NULL) {
			post_flush(connection, taken);
		} else {
			/* Host memory is coherent with the completion queue. */
			taken->done = true;
		}
		*request = taken;
	}
	sb_owner_leave(&connection->owner);
	return result;
}

/* ---- completions ---- */

static void read_failed(struct sb_connection *connection, struct sb_path *path,
			const struct ibv_wc *wc)
{
	const char *text = path->port->device->verbs->wc_status_str(wc->status);

	if (wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_LOC_PROT_ERR) {
		sb_connection_fail(connection, -EIO,
				   "a flush read on %s failed: %s (vendor error 0x%x)",
				   sb_path_name(path), text, wc->vendor_err);
		return;
	}
	ask_again(connection, path);
	sb_path_suspect(connection, path, "a flush read failed");
}

static void poll_reads(struct sb_connection *connection, struct sb_path *path)
{
	struct ibv_wc wc[POLL_BATCH];
	int count = ibv_poll_cq(path->flush.cq, POLL_BATCH, wc);

	for (int i = 0; i < count && path->flush.usable; i++) {
		struct sb_request *request = &connection->requests[wc[i].wr_id];

		if (wc[i].status != IBV_WC_SUCCESS) {
			read_failed(connection, path, &wc[i]);
			return;
		}
		path->flush.open--;
		sb_count32(&path->outstanding, (uint32_t)-1);
		sb_count32(&path->progress, 1);
		request->waiting &= ~bit_of(path);
	}
}

int sb_flush_progress(struct sb_connection *connection, struct sb_request *request)
{
	for (int i = 0; i < connection->path_count; i++) {
		struct sb_path *path = &connection->path[i];

		if (!path->building && path->flush.usable && path->flush.open > 0) {
			poll_reads(connection, path);
		}
	}
	if (connection->failed != 0 && !connection->peer_closed) {
		return sb_connection_result(connection);
	}
	if (request->again) {
		post_flush(connection, request);
	}
	request->done = request->waiting == 0 && !request->again;
	return request->again ? sb_connection_result(connection) : 0;
}
