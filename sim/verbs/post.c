/* SPDX-License-Identifier: Apache-2.0 */
/* Posting work, and what the transport asks of the device: memory, sending, completions. */
#include "verbs/device.h"
#include <errno.h>
#include <string.h>

int qp_post_send(struct ibv_qp *ibv, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
	struct sim_qp *qp = to_qp(ibv);
	int code;

	pthread_mutex_lock(&qp->nic->lock);
	if (qp->nic->dead) {
		*bad = list;
		code = -EIO;
	} else if (qp->ud) {
		code = ud_post_send(qp, list, bad);
	} else {
		code = rc_post_send(qp->rc, list, bad, nic_now(qp->nic));
		/* Also after an error: those before the bad one are posted. */
		nic_progress_qp(qp->nic, qp);
	}
	pthread_mutex_unlock(&qp->nic->lock);
	return -code;
}

int qp_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *list, struct ibv_recv_wr **bad)
{
	struct sim_qp *qp = to_qp(ibv);
	int code;

	pthread_mutex_lock(&qp->nic->lock);
	if (qp->nic->dead) {
		*bad = list;
		code = -EIO;
	} else if (qp->ud) {
		code = ud_post_recv(qp, list, bad);
	} else {
		code = rc_post_recv(qp->rc, list, bad, nic_now(qp->nic));
	}
	pthread_mutex_unlock(&qp->nic->lock);
	return -code;
}

static int rc_transmit(void *owner, const struct rc_packet *packet)
{
	struct sim_qp *qp = owner;

	if ((qp->nic->down || qp->nic->addressless) && qp->nic->device->host->flush_on_port_down) {
		qp->unsendable = true;
		return 0;
	}
	return qp->nic->wire->transmit(qp->nic->port, &qp->route, packet, nic_now(qp->nic));
}

static void *rc_memory(void *owner, uint32_t key, uint64_t address, uint32_t length, int access)
{
	struct sim_qp *qp = owner;

	if (access & IBV_ACCESS_REMOTE_READ) {
		device_settle(qp->nic->device);
	}
	return keys_find(qp->nic, qp->qp.pd, key, address, length, access);
}

/* Of a failed completion only wr_id, status, qp_num and vendor_err mean anything: real devices
 * leave in the rest what was there before. */
static struct ibv_wc vague(const struct ibv_wc *wc)
{
	struct ibv_wc made;

	memset(&made, 0xa5, sizeof(made));
	made.wr_id = wc->wr_id;
	made.status = wc->status;
	made.qp_num = wc->qp_num;
	made.vendor_err = wc->vendor_err;
	return made;
}

static void rc_complete(void *owner, bool receive, const struct ibv_wc *wc, bool solicited)
{
	struct sim_qp *qp = owner;

	if (nic_unwritten(qp->nic)) {
		return;
	}
	device_settle(qp->nic->device);
	if (wc->status != IBV_WC_SUCCESS && qp->nic->device->host->vague_errors) {
		struct ibv_wc told = vague(wc);

		cq_push(to_cq(receive ? qp->qp.recv_cq : qp->qp.send_cq), &told, solicited);
		return;
	}
	cq_push(to_cq(receive ? qp->qp.recv_cq : qp->qp.send_cq), wc, solicited);
}

static void rc_event(void *owner, enum ibv_event_type type)
{
	struct sim_qp *qp = owner;
	struct ibv_async_event event = {.element.qp = &qp->qp, .event_type = type};

	async_push(to_context(qp->qp.context), &event);
}

static bool rc_observe_store(void *owner, const struct rc_store *store)
{
	struct sim_qp *qp = owner;
	struct sim_device *device = qp->nic->device;

	return !nic_unwritten(qp->nic) &&
	       (!device->host->observe || device->host->observe(device->host, device->rail, store));
}

const struct rc_ops qp_rc_ops = {
	.transmit = rc_transmit,
	.remote_memory = rc_memory,
	.local_memory = rc_memory,
	.complete = rc_complete,
	.event = rc_event,
	.observe_store = rc_observe_store,
};
