/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of sim_rc_soak.c: what they plan to send and to get, and a check of each completion
 * and each store as it comes. */
#ifndef RC_SOAK_H
#define RC_SOAK_H

#include "wire/memory.h"

#define QPS        2
#define MESSAGES   24
#define AREA       (1u << 17) /* of each QP's memory: source | received | written | read */
#define QUEUE      8
#define KEY        7u
#define TIME_LIMIT RC_MSECS(120000)
#define FIRST_QPN  0x100u

enum area { SOURCE, RECEIVED, WRITTEN, READ, AREAS };

struct message {
	enum ibv_wr_opcode opcode;
	uint32_t length;
	uint32_t from; /* offset in the source area it is read from */
	uint32_t to;   /* offset in the area it goes to */
};

struct device;

struct end {
	struct device *device;
	struct end *peer;
	struct rc_qp *qp;
	void *block;
	uint8_t *memory; /* AREAS areas */
	struct message message[MESSAGES];
	unsigned posted, sent, received, receives_posted;
	uint32_t used[AREAS]; /* of the areas that this end's messages go to */
	uint64_t stored;
	uint64_t must_store;
};

struct device {
	struct wire_port *port;
	struct wire_route route;
	struct end end[QPS];
};

struct soak {
	uint64_t seed;
	struct memory_wire *wire;
	struct rc_settings settings;
	struct device device[2];
};

static struct soak soak;

static inline struct wire_random *random_of(void)
{
	return memory_wire_random(soak.wire);
}

static inline uint32_t pick(uint32_t bound)
{
	return (uint32_t)wire_random_below(random_of(), bound);
}

/* ---- the device ---- */

static inline int transmit(void *owner, const struct rc_packet *packet)
{
	struct device *device = ((struct end *)owner)->device;

	return memory_wire_ops.transmit(device->port, &device->route, packet,
					memory_wire_now(soak.wire));
}

static inline void *memory(void *owner, uint32_t key, uint64_t address, uint32_t length, int access)
{
	struct end *end = owner;
	uint64_t base = (uintptr_t)end->memory;

	(void)access;
	return key == KEY && address >= base && address + length <= base + AREAS * AREA
		       ? end->memory + (address - base)
		       : NULL;
}

static const struct message *next_receiving(const struct end *end, unsigned number)
{
	for (unsigned i = 0; i < MESSAGES; i++) {
		const struct message *message = &end->peer->message[i];

		if (message->opcode != IBV_WR_RDMA_WRITE && message->opcode != IBV_WR_RDMA_READ &&
		    !number--) {
			return message;
		}
	}
	return NULL;
}

static inline void complete(void *owner, bool receive, const struct ibv_wc *wc, bool solicited)
{
	struct end *end = owner;
	const struct message *message;

	(void)solicited;
	assert_int_equal(wc->status, IBV_WC_SUCCESS);
	if (!receive) {
		assert_int_equal(wc->wr_id, end->sent);
		end->sent++;
		return;
	}
	assert_int_equal(wc->wr_id, end->received);
	message = next_receiving(end, end->received++);
	assert_non_null(message);
	assert_int_equal(wc->byte_len, message->length);
	assert_int_equal(wc->wc_flags, message->opcode == IBV_WR_SEND ? 0 : IBV_WC_WITH_IMM);
}

static inline void event(void *owner, enum ibv_event_type type)
{
	(void)owner;
	(void)type;
	fail_msg("an event without an error");
}

static inline bool observe(void *owner, const struct rc_store *store)
{
	struct end *end = owner;

	if (store->kind != RC_STORE_READ_RESPONSE) {
		end->stored += store->length;
	}
	return true;
}

static const struct rc_ops ops = {transmit, memory, memory, complete, event, observe};

static inline void post_receive(struct end *end)
{
	const struct message *message = next_receiving(end, end->receives_posted);
	bool send = message->opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
	uint64_t base = (uintptr_t)end->memory + RECEIVED * AREA + message->to;
	uint32_t cut = send ? pick(message->length + 1) : 0;
	struct ibv_sge sges[2] = {{base, cut, KEY}, {base + cut, message->length - cut, KEY}};
	struct ibv_recv_wr *bad,
		wr = {.wr_id = end->receives_posted, .sg_list = sges, .num_sge = send ? 2 : 0};

	assert_int_equal(rc_post_recv(end->qp, &wr, &bad, memory_wire_now(soak.wire)), 0);
	end->receives_posted++;
}

static inline void post_message(struct end *end)
{
	const struct message *message = &end->message[end->posted];
	bool read = message->opcode == IBV_WR_RDMA_READ;
	uint64_t mine = (uintptr_t)end->memory, other = (uintptr_t)end->peer->memory;
	uint64_t local = mine + (read ? READ * AREA + message->to : message->from);
	uint32_t cut = pick(message->length + 1);
	struct ibv_sge sges[2] = {{local, cut, KEY}, {local + cut, message->length - cut, KEY}};
	struct ibv_send_wr *bad,
		wr = {.wr_id = end->posted,
		      .sg_list = sges,
		      .num_sge = 2,
		      .opcode = message->opcode,
		      .send_flags =
			      (pick(4) ? 0 : IBV_SEND_FENCE) |
			      (!read && message->length <= 32 && pick(2) ? IBV_SEND_INLINE : 0),
		      .wr.rdma = {.remote_addr = other + (read ? message->from
							       : WRITTEN * AREA + message->to),
				  .rkey = KEY}};

	assert_int_equal(rc_post_send(end->qp, &wr, &bad, memory_wire_now(soak.wire)), 0);
	end->posted++;
}

/* The application: posts what fits, sometimes late, so that receives are short now and then. */
static inline void post_some(struct end *end)
{
	while (end->posted < MESSAGES && end->posted - end->sent < QUEUE && pick(4)) {
		post_message(end);
	}
	while (next_receiving(end, end->receives_posted) &&
	       end->receives_posted - end->received < QUEUE && pick(3)) {
		post_receive(end);
	}
}

static inline void on_packet(void *context, const struct wire_received *packet, uint64_t now)
{
	struct device *device = context;
	struct rc_view view;

	if (rc_packet_parse(packet->bytes, packet->length, &view)) {
		return; /* a corrupted bit that the ICRC does not cover */
	}
	for (unsigned i = 0; i < QPS; i++) {
		if (rc_qpn(device->end[i].qp) == view.header.qpn) {
			rc_receive(device->end[i].qp, &view, now);
		}
	}
}

static inline void on_run(void *context, uint64_t now)
{
	struct device *device = context;

	for (unsigned i = 0; i < QPS; i++) {
		struct rc_qp *qp = device->end[i].qp;

		rc_expire(qp, now);
		rc_flush_acks(qp, now);
		post_some(&device->end[i]);
		while (rc_send_progress(qp, 16, now) == 16) {
		}
		assert_false(rc_send_pending(qp, now));
	}
}

static inline uint64_t on_deadline(void *context)
{
	struct device *device = context;
	uint64_t first = RC_NO_DEADLINE;

	for (unsigned i = 0; i < QPS; i++) {
		uint64_t deadline = rc_next_deadline(device->end[i].qp);

		first = deadline < first ? deadline : first;
	}
	return first;
}

static inline void on_event(void *context, enum wire_event type, uint64_t now)
{
	(void)context;
	(void)type;
	(void)now;
	fail_msg("an event of a port that nobody touched");
}

static const struct wire_sink sink = {on_packet, on_run, on_deadline, on_event};

#endif
