/* SPDX-License-Identifier: Apache-2.0 */
/* The device at work: packets to their QPs, timers, sending, events of the port. */
#include "verbs/device.h"
#include "wire/udp.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Packets that one QP may send before the next has its turn. */
#define TURN_PACKETS 64
#define TURNS        64
/* No QP is held to less than this. */
#define WINDOW_LEAST (32u << 10)

uint64_t nic_now(const struct sim_nic *nic)
{
	return nic->wire->now(nic->port);
}

/* ---- QPs by number ---- */

static uint32_t bucket_of(const struct sim_nic *nic, uint32_t qpn)
{
	return qpn & (nic->qp_buckets - 1);
}

struct sim_qp *nic_find_qp(const struct sim_nic *nic, uint32_t qpn)
{
	struct sim_qp *qp = nic->qps ? nic->qps[bucket_of(nic, qpn)] : NULL;

	while (qp && qp->qp.qp_num != qpn) {
		qp = qp->next_in_bucket;
	}
	return qp;
}

static void bucket_insert(struct sim_nic *nic, struct sim_qp *qp)
{
	struct sim_qp **bucket = &nic->qps[bucket_of(nic, qp->qp.qp_num)];

	qp->next_in_bucket = *bucket;
	*bucket = qp;
}

/* Grows the table and the timers' heap together, so that a timer never needs memory. */
static int qps_grow(struct sim_nic *nic)
{
	uint32_t old_buckets = nic->qp_buckets, buckets = old_buckets ? 2 * old_buckets : 16;
	struct sim_qp **old = nic->qps, **table = calloc(buckets, sizeof(*table));
	struct sim_qp **heap = realloc(nic->timers.heap, buckets * sizeof(*heap));

	if (heap) {
		nic->timers.heap = heap;
		nic->timers.room = buckets;
	}
	if (!table || !heap) {
		free(table);
		return -ENOMEM;
	}
	nic->qps = table;
	nic->qp_buckets = buckets;
	for (uint32_t i = 0; i < old_buckets; i++) {
		while (old[i]) {
			struct sim_qp *qp = old[i];

			old[i] = qp->next_in_bucket;
			bucket_insert(nic, qp);
		}
	}
	free(old);
	return 0;
}

int nic_add_qp(struct sim_nic *nic, struct sim_qp *qp)
{
	if (nic->qp_count == nic->qp_buckets && qps_grow(nic)) {
		return -ENOMEM;
	}
	qp->timer_index = TIMER_NONE;
	bucket_insert(nic, qp);
	nic->qp_count++;
	return 0;
}

static void ready_remove(struct sim_nic *nic, struct sim_qp *qp)
{
	struct sim_link **link = &nic->ready;

	if (!qp->ready.queued) {
		return;
	}
	while (*link != &qp->ready) {
		link = &(*link)->next;
	}
	*link = qp->ready.next;
	if (!*link) {
		nic->ready_end = link;
	}
	qp->ready.queued = false;
}

void nic_remove_qp(struct sim_nic *nic, struct sim_qp *qp)
{
	struct sim_qp **link = &nic->qps[bucket_of(nic, qp->qp.qp_num)];

	while (*link != qp) {
		link = &(*link)->next_in_bucket;
	}
	*link = qp->next_in_bucket;
	nic->qp_count--;
	ready_remove(nic, qp);
	timers_remove(&nic->timers, qp);
}

/* ---- work ---- */

static void ready_add(struct sim_nic *nic, struct sim_qp *qp)
{
	if (!qp->ready.queued) {
		qp->ready.queued = true;
		qp->ready.next = NULL;
		*nic->ready_end = &qp->ready;
		nic->ready_end = &qp->ready.next;
	}
}

static struct sim_qp *ready_take(struct sim_nic *nic)
{
	struct sim_link *link = nic->ready;

	if (!link) {
		return NULL;
	}
	nic->ready = link->next;
	if (!nic->ready) {
		nic->ready_end = &nic->ready;
	}
	link->queued = false;
	return container_of(link, struct sim_qp, ready);
}

/*
 * QPs that have something on its way share what the peer's socket holds: there is nobody else to
 * hold back a sender that overruns it. (Those to other peers are counted, too: it is a bound, and
 * loss does the rest.)
 */
static void window_share(struct sim_nic *nic)
{
	uint32_t share;

	if (nic->buffer_bytes == 0) {
		return;
	}
	share = nic->buffer_bytes / (nic->timers.count + 1);
	if (share < WINDOW_LEAST) {
		share = WINDOW_LEAST;
	}
	nic->settings.window_bytes = share < nic->window_bytes ? share : nic->window_bytes;
}

/* One turn of a QP: what it owes and what it may send. */
static void qp_turn(struct sim_nic *nic, struct sim_qp *qp, unsigned budget, uint64_t now)
{
	unsigned sent;

	if (nic->dead) {
		return;
	}
	window_share(nic);
	rc_flush_acks(qp->rc, now);
	sent = rc_send_progress(qp->rc, budget, now);
	if (qp->unsendable) {
		qp->unsendable = false;
		rc_fail(qp->rc, IBV_WC_WR_FLUSH_ERR, now);
	}
	if (sent == budget || rc_send_pending(qp->rc, now)) {
		ready_add(nic, qp);
		nic->blocked = nic->blocked || sent < budget;
	}
	timers_update(&nic->timers, qp, rc_next_deadline(qp->rc));
}

static void nic_run(void *context, uint64_t now)
{
	struct sim_nic *nic = context;
	struct sim_qp *qp;

	while ((qp = timers_first(&nic->timers)) && qp->timer <= now) {
		timers_remove(&nic->timers, qp);
		if (rc_next_deadline(qp->rc) <= now && !nic->dead) {
			rc_expire(qp->rc, now);
			ready_add(nic, qp);
		}
		if (!nic->dead) {
			timers_update(&nic->timers, qp, rc_next_deadline(qp->rc));
		}
		if (qp->timer_index != TIMER_NONE && qp->timer <= now) {
			break; /* due again at once: the others have their turn first */
		}
	}
	nic->blocked = false;
	for (int turn = 0; turn < TURNS && !nic->blocked && (qp = ready_take(nic)); turn++) {
		qp_turn(nic, qp, TURN_PACKETS, now);
		/* Payload may be read only until the QP is called again: it may be next in line. */
		if (qp->ready.queued && nic->ready == &qp->ready) {
			nic->wire->flush(nic->port, now);
		}
	}
	nic->wire->flush(nic->port, now);
}

static uint64_t nic_next_deadline(void *context)
{
	struct sim_nic *nic = context;
	struct sim_qp *qp = timers_first(&nic->timers);

	if (nic->ready && !nic->blocked) {
		return 0;
	}
	return qp ? qp->timer : RC_NO_DEADLINE;
}

void nic_progress_qp(struct sim_nic *nic, struct sim_qp *qp)
{
	uint64_t now = nic_now(nic);

	if (!nic->blocked) {
		ready_remove(nic, qp);
		qp_turn(nic, qp, TURNS * TURN_PACKETS, now);
		nic->wire->flush(nic->port, now);
	} else {
		ready_add(nic, qp);
		timers_update(&nic->timers, qp, rc_next_deadline(qp->rc));
	}
	if (nic->device->host->udp) {
		nic_thread_notice(nic);
	}
}

/* ---- what the wire reports ---- */

static void nic_packet(void *context, const struct wire_received *received, uint64_t now)
{
	struct sim_nic *nic = context;
	struct rc_view view;
	struct sim_qp *qp;

	if (nic->dead || rc_packet_parse(received->bytes, received->length, &view)) {
		return;
	}
	qp = nic_find_qp(nic, view.header.qpn);
	if (qp && qp->ud) {
		ud_receive(qp, &view, received);
		return;
	}
	/* An RC QP listens to its peer's port only. */
	if (!qp || !qp->routed ||
	    memcmp(qp->route.destination_gid, received->source_gid, 16) != 0) {
		return;
	}
	rc_receive(qp->rc, &view, now);
	ready_add(nic, qp);
}

void nic_die(struct sim_nic *nic)
{
	if (!nic->dead) {
		nic->dead = true;
		async_push_port(nic, IBV_EVENT_DEVICE_FATAL);
	}
}

/* QPs that wait for something can't get it: they fail now, as rxe's do. */
static void waiting_qps_fail(struct sim_nic *nic, uint64_t now)
{
	for (uint32_t i = 0; i < nic->qp_buckets; i++) {
		for (struct sim_qp *qp = nic->qps[i]; qp; qp = qp->next_in_bucket) {
			if (qp->rc && rc_next_deadline(qp->rc) != RC_NO_DEADLINE) {
				rc_fail(qp->rc, IBV_WC_WR_FLUSH_ERR, now);
			}
		}
	}
}

/* Without its address a device that fails QPs of a port that is down fails them, too. */
static void address_changed(struct sim_nic *nic, uint64_t now)
{
	struct wire_state state = {0};

	async_push_port(nic, IBV_EVENT_GID_CHANGE);
	nic->wire->query(nic->port, &state);
	nic->addressless = !state.addressed;
	if (nic->addressless && nic->device->host->flush_on_port_down) {
		waiting_qps_fail(nic, now);
	}
}

static void nic_event(void *context, enum wire_event event, uint64_t now)
{
	struct sim_nic *nic = context;

	switch (event) {
	case WIRE_PORT_UP:
		nic->down = false;
		async_push_port(nic, IBV_EVENT_PORT_ACTIVE);
		break;
	case WIRE_PORT_DOWN:
		nic->down = true;
		async_push_port(nic, IBV_EVENT_PORT_ERR);
		if (nic->device->host->flush_on_port_down) {
			waiting_qps_fail(nic, now);
		}
		break;
	case WIRE_GID_CHANGE:
		address_changed(nic, now);
		break;
	case WIRE_DEVICE_FATAL:
		nic_die(nic);
		break;
	}
}

void nic_retrained(struct sim_nic *nic)
{
	nic_event(nic, WIRE_PORT_DOWN, nic_now(nic));
	nic_event(nic, WIRE_PORT_UP, nic_now(nic));
}

static const struct wire_sink nic_sink = {
	.packet = nic_packet,
	.run = nic_run,
	.next_deadline = nic_next_deadline,
	.event = nic_event,
};

/* Port and, in real time, thread. */
static int nic_start(struct sim_nic *nic)
{
	struct sim_device *device = nic->device;
	struct wire_attach attach = {.sink = &nic_sink, .context = nic, .name = device->ibv.name};
	struct wire_state state = {0};
	union ibv_gid gid;
	int code;

	attach.netdev = device->netdev[0] ? device->netdev : NULL;
	gid_of_address(device->address, 1, &gid);
	memcpy(attach.gid, gid.raw, sizeof(attach.gid));
	code = nic->wire->attach(device->host->wire, &attach, &nic->port);
	if (code) {
		return code;
	}
	if (device->host->attached) {
		code = device->host->attached(device->host, device->rail, nic->port);
	}
	if (code == 0) {
		nic->wire->query(nic->port, &state);
		nic->down = !state.up;
		nic->buffer_bytes = state.buffer_bytes;
		nic->window_bytes = nic->settings.window_bytes;
		window_share(nic);
		code = device->host->udp ? nic_thread_start(nic) : 0;
	}
	if (code) {
		nic->wire->detach(nic->port);
	}
	return code;
}

int nic_open(struct sim_device *device, struct sim_nic **result)
{
	struct sim_nic *nic = calloc(1, sizeof(*nic));
	int code;

	if (!nic) {
		return -ENOMEM;
	}
	pthread_mutex_init(&nic->lock, NULL);
	nic->device = device;
	nic->control = fabric_port(device->host->control, device->host->number, device->rail);
	nic->wire = device->host->wire_ops;
	nic->ready_end = &nic->ready;
	rc_settings_default(&nic->settings);
	nic->settings.retry_seven_infinite = device->host->retry_seven_infinite;
	code = nic_start(nic);
	if (code) {
		pthread_mutex_destroy(&nic->lock);
		free(nic);
		return code;
	}
	*result = nic;
	return 0;
}

void nic_abandon(struct sim_nic *nic)
{
	udp_wire_abandon(nic->port);
	pthread_mutex_init(&nic->lock, NULL); /* the thread that held it is not here */
	nic->abandoned = true;
	nic->dead = true;
}

static void nic_stop(struct sim_nic *nic)
{
	struct sim_host *host = nic->device->host;

	if (host->udp) {
		nic_thread_stop(nic);
	}
	if (host->attached) {
		host->attached(host, nic->device->rail, NULL);
	}
	nic->wire->detach(nic->port);
}

void nic_close(struct sim_nic *nic)
{
	if (!nic->abandoned) {
		nic_stop(nic);
	}
	keys_free(&nic->keys);
	free(nic->qps);
	free(nic->timers.heap);
	pthread_mutex_destroy(&nic->lock);
	free(nic);
}
