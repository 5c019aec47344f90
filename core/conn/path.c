/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of a path: posting, completions, fence. */
#include "conn/conn.h"

#include <errno.h>
#include <string.h>

#include "util/clock.h"
#include "util/log.h"
#include "util/mutant.h"

#define POLL_BATCH     16
#define REFILL_BATCH   32
#define SEND_DEPTH     512
#define SENDER_RECVS   96  /* control messages and probes only */
#define RECEIVER_RECVS 640 /* the window's records on top */
#define INLINE_BYTES   256
#define MARKER_ROOM    2 /* send queue entries kept free for the fence */
#define PSN_LEAP       (1u << 22)
#define FENCE_LIMIT    (200 * SB_MS)

uint32_t sb_path_room(const struct sb_path *path)
{
	uint32_t used = path->sq_posted - path->sq_done;
	uint32_t usable = path->limits.send_depth - MARKER_ROOM;

	return used < usable ? usable - used : 0;
}

int sb_path_post(struct sb_connection *connection, struct sb_path *path, struct ibv_send_wr *first,
		 uint32_t count)
{
	struct ibv_send_wr *bad = NULL;
	uint32_t index = path->sq_posted;
	uint32_t signalled = 0;

	if (sb_path_room(path) < count) {
		return -ENOMEM;
	}
	for (struct ibv_send_wr *work = first; work != NULL; work = work->next) {
		index++;
		work->wr_id |= SB_WORK_ID(SB_WORK_NONE, index, 0);
		signalled += (work->send_flags & IBV_SEND_SIGNALED) != 0;
	}
	path->sq_posted = index;
	sb_count32(&path->outstanding, signalled);
	if (ibv_post_send(path->qp, first, &bad) != 0) {
		sb_path_suspect(connection, path, "posting was refused");
		return -EIO;
	}
	return 0;
}

void sb_path_refill(struct sb_connection *connection, struct sb_path *path)
{
	struct ibv_recv_wr work[REFILL_BATCH];
	struct ibv_recv_wr *bad = NULL;

	while (path->rq_missing > 0) {
		uint32_t count = path->rq_missing < REFILL_BATCH ? path->rq_missing : REFILL_BATCH;

		for (uint32_t i = 0; i < count; i++) {
			work[i] = (struct ibv_recv_wr){
				.wr_id = SB_WORK_ID(SB_WORK_RECV, 0, 0),
				.next = i + 1 < count ? &work[i + 1] : NULL,
			};
		}
		if (ibv_post_recv(path->qp, work, &bad) != 0) {
			sb_path_suspect(connection, path, "posting of receives was refused");
			return;
		}
		path->rq_missing -= count;
	}
}

/* Errors of the request itself: another path would give them again. */
static bool incurable(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_MW_BIND_ERR:
		return true;
	default:
		return false;
	}
}

/* Of a failed completion only wr_id, status, qp_num and vendor_err mean anything. */
static void completion_failed(struct sb_connection *connection, struct sb_path *path,
			      const struct ibv_wc *wc)
{
	const char *text = path->port->device->verbs->wc_status_str(wc->status);

	switch (SB_WORK_TYPE(wc->wr_id)) {
	case SB_WORK_SEND_MARKER:
		path->send_drained = true;
		return;
	case SB_WORK_RECV_MARKER:
		path->recv_drained = true;
		return;
	default:
		break;
	}
	if (path->phase == SB_PHASE_DRAINING) {
		return;
	}
	if (incurable(wc->status)) {
		sb_connection_fail(connection, -EIO,
				   "completion status %d (%s, vendor error 0x%x) on %s: no other "
				   "path can cure that",
				   wc->status, text, wc->vendor_err, sb_path_name(path));
		return;
	}
	sb_path_suspect(connection, path, text);
}

static void send_completed(struct sb_connection *connection, struct sb_path *path,
			   const struct ibv_wc *wc)
{
	path->sq_done = SB_WORK_INDEX(wc->wr_id);
	sb_count32(&path->outstanding, (uint32_t)-1);
	switch (SB_WORK_TYPE(wc->wr_id)) {
	case SB_WORK_RECORD:
		sb_send_completed(connection, path, SB_WORK_SLOT(wc->wr_id));
		break;
	case SB_WORK_PROBE:
		sb_failback_probe_done(connection, path);
		break;
	case SB_WORK_STALL_PROBE:
		sb_watch_answered(connection, path);
		break;
	default:
		break;
	}
}

static void arrived(struct sb_connection *connection, struct sb_path *path, const struct ibv_wc *wc)
{
	uint32_t imm = be32toh(wc->imm_data);

	path->rq_missing++;
	if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
		return;
	}
	switch (sb_imm_kind(imm)) {
	case SB_IMM_RECORD:
		if (!connection->is_sender) {
			sb_recv_record(connection, path, imm);
		}
		break;
	case SB_IMM_CONTROL:
		sb_control_mailbox(connection, path, sb_imm_slot(imm));
		break;
	case SB_IMM_PROBE:
		sb_failback_probe_seen(connection, path, imm);
		break;
	}
}

int sb_path_poll(struct sb_connection *connection, struct sb_path *path)
{
	struct ibv_wc wc[POLL_BATCH];
	int count;

	if (path->building || path->qp == NULL) {
		return 0;
	}
	count = ibv_poll_cq(path->cq, POLL_BATCH, wc);
	if (count < 0) {
		sb_path_suspect(connection, path, "its completion queue failed");
		return 0;
	}
	for (int i = 0; i < count; i++) {
		if (wc[i].qp_num != path->qp->qp_num) {
			continue;
		}
		if (wc[i].status != IBV_WC_SUCCESS) {
			completion_failed(connection, path, &wc[i]);
			continue;
		}
		if (wc[i].opcode & IBV_WC_RECV) {
			arrived(connection, path, &wc[i]);
		} else {
			send_completed(connection, path, &wc[i]);
		}
		sb_count32(&path->progress, 1);
	}
	if (path->rq_missing >= REFILL_BATCH && path->phase != SB_PHASE_DRAINING) {
		sb_path_refill(connection, path);
	}
	return count;
}

void sb_path_stop(struct sb_connection *connection, struct sb_path *path)
{
	path->was_up = path->phase == SB_PHASE_UP;
	path->phase = SB_PHASE_DRAINING;
	atomic_store_explicit(&path->watched, false, memory_order_relaxed);
	path->send_marker_posted = path->recv_marker_posted = false;
	path->send_drained = path->recv_drained = false;
	path->fence_deadline = sb_connection_now(connection) + FENCE_LIMIT;
	if ((SB_MUTANT(NO_RECEIVER_FENCE) || SB_MUTANT(SYNC_BEFORE_FENCE)) &&
	    !connection->is_sender && connection->failed == 0) {
		path->send_drained = path->recv_drained = true;
		return;
	}
	if (SB_MUTANT(SHARED_CTS_RING) && connection->is_sender && connection->failed == 0) {
		path->send_drained = path->recv_drained = true;
		return;
	}
	path->refused = sb_qp_error(path->qp) != 0;
}

void sb_path_suspect(struct sb_connection *connection, struct sb_path *path, const char *cause)
{
	if (path->building) {
		path->abort = true;
		return;
	}
	if (path->phase == SB_PHASE_DOWN || path->phase == SB_PHASE_DRAINING) {
		return;
	}
	if (SB_MUTANT(SECOND_FAULT_IGNORED) && connection->sync_open) {
		return;
	}
	if (path->qp == NULL) {
		path->phase = SB_PHASE_DOWN;
		path->fenced = path->incarnation;
		sb_failback_down(connection, path);
		return;
	}
	sb_path_stop(connection, path);
	connection->sync_cause = cause;
	sb_connection_event(connection, SB_EVENT_SUSPECT, path, 0, cause);
	if (!connection->settings.failover && path->was_up) {
		sb_connection_fail(connection, -EIO,
				   "%s on %s; failover is off, nothing else was tried", cause,
				   sb_path_name(path));
	}
	if (connection->is_sender && path->was_up) {
		path->fault_open = true;
		path->fault_repeat = 0;
		path->fault_gap = 0;
	}
	connection->urgent = true;
	sb_connection_attend(connection);
}

static void post_markers(struct sb_path *path)
{
	struct ibv_send_wr *bad_send = NULL;
	struct ibv_recv_wr *bad_recv = NULL;
	struct ibv_send_wr send = {
		.wr_id = SB_WORK_ID(SB_WORK_SEND_MARKER, 0, 0),
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_recv_wr recv = {.wr_id = SB_WORK_ID(SB_WORK_RECV_MARKER, 0, 0)};

	/* A full queue refuses: polled ones make room, the next call tries again. */
	if (!path->send_marker_posted) {
		path->send_marker_posted = ibv_post_send(path->qp, &send, &bad_send) == 0;
	}
	if (!path->recv_marker_posted) {
		path->recv_marker_posted = ibv_post_recv(path->qp, &recv, &bad_recv) == 0;
	}
}

/* A QP that refuses ERR (dead device) or never flushes: destroying it is the fence. What it still
 * has to tell is taken first. */
static void fence_by_force(struct sb_connection *connection, struct sb_path *path)
{
	while (sb_path_poll(connection, path) > 0) {
	}
	sb_qp_destroy(path->qp);
	path->qp = NULL;
	path->send_drained = path->recv_drained = true;
}

bool sb_path_drain(struct sb_connection *connection, struct sb_path *path)
{
	if (path->phase != SB_PHASE_DRAINING) {
		return true;
	}
	if (SB_MUTANT(FENCE_WITHOUT_DRAIN)) {
		path->send_drained = path->recv_drained = true;
	} else if (!path->refused && !(path->send_drained && path->recv_drained)) {
		post_markers(path);
		while (sb_path_poll(connection, path) > 0) {
		}
	}
	if (!(path->send_drained && path->recv_drained) &&
	    (path->refused || atomic_load(&path->port->device->fatal) ||
	     sb_connection_now(connection) >= path->fence_deadline)) {
		fence_by_force(connection, path);
	}
	if (!(path->send_drained && path->recv_drained)) {
		return false;
	}
	path->phase = SB_PHASE_DOWN;
	path->fenced = path->incarnation;
	path->sq_done = path->sq_posted;
	atomic_store_explicit(&path->outstanding, 0, memory_order_relaxed);
	sb_flush_path_down(connection, path);
	sb_connection_event(connection, SB_EVENT_FENCED, path, 0, connection->sync_cause);
	sb_failback_down(connection, path);
	sb_failover_fenced(connection, path);
	return true;
}

#ifdef SB_MUTANTS
/* What must never be done: the same QPN with the same PSN again. */
static int revive(struct sb_connection *connection, struct sb_path *path)
{
	const struct sb_verbs *verbs = path->port->device->verbs;
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = path->port->number,
		.qp_access_flags = SB_MEMORY_ACCESS,
	};

	if (verbs->modify_qp(path->qp, &reset, IBV_QP_STATE) != 0 ||
	    verbs->modify_qp(path->qp, &init,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS) != 0) {
		return -EIO;
	}
	path->sq_posted = path->sq_done = 0;
	atomic_store(&path->outstanding, 0);
	path->rq_missing = path->limits.recv_depth - 1;
	sb_path_refill(connection, path);
	return 0;
}
#else
#define revive(connection, path) 0
#endif

int sb_path_build(struct sb_connection *connection, struct sb_path *path)
{
	bool sender = connection->is_sender;
	int result = sb_port_read(path->port);

	if (result != 0) {
		return result;
	}
	if (SB_MUTANT(QP_REUSED) && path->qp != NULL) {
		return revive(connection, path);
	}
	sb_qp_destroy(path->qp);
	path->qp = NULL;
	path->limits = (struct sb_qp_limits){
		.send_depth = SEND_DEPTH,
		.recv_depth = sender ? SENDER_RECVS : RECEIVER_RECVS,
		.max_inline = INLINE_BYTES,
	};
	if (path->cq == NULL) {
		result = sb_cq_create(path->port->device, SEND_DEPTH + RECEIVER_RECVS + 8,
				      &path->cq);
		if (result != 0) {
			return result;
		}
	}
	result = sb_qp_create(path->port, path->cq, &path->limits, &path->qp);
	if (result != 0) {
		path->qp = NULL;
		return result;
	}
	/* Far from the last one, which a ghost of the old incarnation may still carry, even if the
	 * device hands out the same QPN again. */
	path->psn = (path->psn + PSN_LEAP +
		     connection->io.random(connection->io.context) % (2 * PSN_LEAP)) &
		    0xffffff;
	path->sq_posted = path->sq_done = 0;
	atomic_store_explicit(&path->outstanding, 0, memory_order_relaxed);
	/* One receive stays free for the fence's marker. */
	path->rq_missing = path->limits.recv_depth - 1;
	sb_path_refill(connection, path);
	path->gid_index = sb_port_gid(path->port, &path->gid);
	if (atomic_load(&connection->flush_wanted)) {
		result = sb_flush_open(connection, path);
	}
	return path->abort ? -EIO : result;
}

int sb_path_connect(struct sb_connection *connection, struct sb_path *path)
{
	struct sb_qp_address remote = path->remote;
	int class = connection->settings.traffic_class;

	/* The configured value of the host wins over both, see sb_qp_connect(). */
	if (class >= 0 && path->port->link_layer == IBV_LINK_LAYER_INFINIBAND) {
		remote.sl = (uint8_t)(class & 15);
	} else if (class >= 0) {
		remote.traffic_class = (uint8_t) class;
	}
	return sb_qp_connect(path->qp, path->port, path->psn, &remote);
}

void sb_path_release(struct sb_path *path)
{
	sb_flush_close(path);
	sb_qp_destroy(path->qp);
	sb_cq_destroy(path->cq);
	path->qp = NULL;
	path->cq = NULL;
}
