/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random traffic over a bad network, in virtual time: two devices, two connections, both
 * directions, every opcode, from one seed each. Everything must come out as if the network were
 * perfect: each completion in order and a success, every byte right and stored exactly once.
 *
 *   test_sim_rc_soak [FIRST_SEED [COUNT]]     replays seeds
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/memory.h"

#define SEEDS      2000u
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

static struct wire_random *random_of(void)
{
	return memory_wire_random(soak.wire);
}

static uint32_t pick(uint32_t bound)
{
	return (uint32_t)wire_random_below(random_of(), bound);
}

/* ---- the device ---- */

static int transmit(void *owner, const struct rc_packet *packet)
{
	struct device *device = ((struct end *)owner)->device;

	return memory_wire_ops.transmit(device->port, &device->route, packet,
					memory_wire_now(soak.wire));
}

static void *memory(void *owner, uint32_t key, uint64_t address, uint32_t length, int access)
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

static void complete(void *owner, bool receive, const struct ibv_wc *wc, bool solicited)
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

static void event(void *owner, enum ibv_event_type type)
{
	(void)owner;
	(void)type;
	fail_msg("an event without an error");
}

static bool observe(void *owner, const struct rc_store *store)
{
	struct end *end = owner;

	if (store->kind != RC_STORE_READ_RESPONSE) {
		end->stored += store->length;
	}
	return true;
}

static const struct rc_ops ops = {transmit, memory, memory, complete, event, observe};

static void post_receive(struct end *end)
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

static void post_message(struct end *end)
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
static void post_some(struct end *end)
{
	while (end->posted < MESSAGES && end->posted - end->sent < QUEUE && pick(4)) {
		post_message(end);
	}
	while (next_receiving(end, end->receives_posted) &&
	       end->receives_posted - end->received < QUEUE && pick(3)) {
		post_receive(end);
	}
}

static void on_packet(void *context, const struct wire_received *packet, uint64_t now)
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

static void on_run(void *context, uint64_t now)
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

static uint64_t on_deadline(void *context)
{
	struct device *device = context;
	uint64_t first = RC_NO_DEADLINE;

	for (unsigned i = 0; i < QPS; i++) {
		uint64_t deadline = rc_next_deadline(device->end[i].qp);

		first = deadline < first ? deadline : first;
	}
	return first;
}

static void on_event(void *context, enum wire_event type, uint64_t now)
{
	(void)context;
	(void)type;
	(void)now;
	fail_msg("an event of a port that nobody touched");
}

static const struct wire_sink sink = {on_packet, on_run, on_deadline, on_event};

/* ---- one seed ---- */

static uint32_t random_length(uint32_t mtu)
{
	switch (pick(8)) {
	case 0:
		return pick(4);
	case 1:
	case 2:
		return pick(64);
	case 3:
		return mtu * (1 + pick(3)) + pick(3) - 1;
	case 4:
		return pick(8 * mtu);
	default:
		return pick(2 * mtu);
	}
}

static void plan_messages(struct end *end, uint32_t mtu)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						     IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						     IBV_WR_RDMA_READ};

	for (unsigned i = 0; i < MESSAGES; i++) {
		struct message *message = &end->message[i];
		enum area area;

		message->opcode = opcodes[pick(5)];
		message->length = random_length(mtu);
		area = message->opcode == IBV_WR_RDMA_READ             ? READ
		       : message->opcode <= IBV_WR_RDMA_WRITE_WITH_IMM ? WRITTEN
								       : RECEIVED;
		if (end->used[area] + message->length + 8 > AREA) {
			message->length = 0;
		}
		message->from = pick(AREA - message->length);
		message->to = end->used[area];
		end->used[area] += message->length + pick(8);
		end->must_store += area == READ ? 0 : message->length;
	}
}

static struct wire_fault random_fault(void)
{
	static const uint32_t ppm[] = {0, 0, 1000, 20000, 100000, 250000};

	return (struct wire_fault){
		.loss_ppm = ppm[pick(6)],
		.corrupt_ppm = ppm[pick(4)],
		.duplicate_ppm = ppm[pick(6)],
		.reorder_ppm = ppm[pick(6)],
		.reorder_ns = RC_USECS(1 + pick(100)),
		.delay_ns = pick(3) ? 0 : RC_USECS(pick(3000)),
		.jitter_ns = pick(4) ? 0 : RC_USECS(pick(300)),
		.bytes_per_second = pick(3) ? 0 : 10000000 + pick(1000000000),
	};
}

static void connect_end(struct end *end, unsigned d, unsigned i, enum ibv_mtu mtu,
			const uint32_t psn[2], uint8_t depth)
{
	struct rc_config config = {.ops = &ops,
				   .owner = end,
				   .settings = &soak.settings,
				   .qpn = FIRST_QPN * (d + 1) + i,
				   .max_send_wr = QUEUE,
				   .max_recv_wr = QUEUE,
				   .max_send_sge = 2,
				   .max_recv_sge = 2,
				   .max_inline = 32,
				   .max_rd_atomic = 16,
				   .sq_sig_all = true};
	struct ibv_qp_attr attr = {.qp_access_flags =
					   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
				   .path_mtu = mtu,
				   .dest_qp_num = FIRST_QPN * (2 - d) + i,
				   .rq_psn = psn[!d],
				   .sq_psn = psn[d],
				   .max_rd_atomic = depth,
				   .max_dest_rd_atomic = depth,
				   .min_rnr_timer = (uint8_t)(1 + pick(14)),
				   .timeout = 14,
				   .retry_cnt = 7,
				   .rnr_retry = 7};

	end->block = aligned_alloc(64, rc_qp_bytes(&config));
	end->memory = calloc(AREAS, AREA);
	assert_non_null(end->block);
	assert_non_null(end->memory);
	memset(end->block, 0, rc_qp_bytes(&config));
	end->qp = rc_qp_init(end->block, &config);
	attr.qp_state = IBV_QPS_INIT;
	assert_int_equal(
		rc_modify(end->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0),
		0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(rc_modify(end->qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER,
				   0),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(rc_modify(end->qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC,
				   0),
			 0);
}

/* Fills what is read by anyone; cheap, and different in each end. */
static void fill_source(struct end *end, uint64_t seed)
{
	struct wire_random random;

	wire_random_seed(&random, seed);
	for (uint32_t i = 0; i < AREA; i += 8) {
		uint64_t word = wire_random_next(&random);

		memcpy(end->memory + i, &word, 8);
	}
}

static void open_soak(uint64_t seed)
{
	uint32_t mtu_bytes;

	memset(&soak, 0, sizeof(soak));
	soak.seed = seed;
	assert_int_equal(
		memory_wire_create(&(struct memory_wire_options){.seed = seed}, &soak.wire), 0);
	rc_settings_default(&soak.settings);
	soak.settings.retry_seven_infinite = true;
	soak.settings.early_min_ns = pick(4) ? RC_MSECS(4) : 0;
	soak.settings.window_bytes = 4096u << pick(9);
	soak.settings.read_chunk_bytes = pick(4) ? 1024u << pick(9) : 0;
	soak.settings.ack_interval = 1 + pick(64);
	for (unsigned i = 0; i < QPS; i++) {
		enum ibv_mtu mtu = IBV_MTU_256 + (pick(3) ? 0 : pick(5));
		uint32_t psn[2] = {(0xffffff - pick(200)) & RC_PSN_MASK, pick(1u << 24)};
		uint8_t depth = (uint8_t)(1 + pick(16));

		mtu_bytes = 128u << mtu;
		for (unsigned d = 0; d < 2; d++) {
			struct end *end = &soak.device[d].end[i];

			end->device = &soak.device[d];
			end->peer = &soak.device[!d].end[i];
			connect_end(end, d, i, mtu, psn, depth);
			plan_messages(end, mtu_bytes);
			fill_source(end, seed * 4 + d * 2 + i);
		}
	}
	for (unsigned d = 0; d < 2; d++) {
		struct device *device = &soak.device[d];
		struct wire_attach attach = {.sink = &sink, .context = device};
		struct wire_fault fault = random_fault();

		attach.gid[15] = device->route.source_gid[15] = (uint8_t)(1 + d);
		device->route.destination_gid[15] = (uint8_t)(2 - d);
		assert_int_equal(memory_wire_ops.attach(soak.wire, &attach, &device->port), 0);
		memory_wire_set_fault(device->port, MEMORY_WIRE_OUT, &fault);
		if (pick(2)) {
			fault = random_fault();
			memory_wire_set_fault(device->port, MEMORY_WIRE_IN, &fault);
		}
	}
}

static bool finished(void)
{
	for (unsigned d = 0; d < 2; d++) {
		for (unsigned i = 0; i < QPS; i++) {
			const struct end *end = &soak.device[d].end[i];

			if (end->sent < MESSAGES || next_receiving(end, end->received)) {
				return false;
			}
		}
	}
	return true;
}

static void check_end(const struct end *end)
{
	assert_int_equal(rc_state(end->qp), IBV_QPS_RTS);
	assert_int_equal(end->peer->stored, end->must_store);
	for (unsigned i = 0; i < MESSAGES; i++) {
		const struct message *message = &end->message[i];
		const struct end *target = end->peer, *source = end;
		enum area area = RECEIVED;

		if (message->opcode == IBV_WR_RDMA_READ) {
			area = READ;
			target = end;
			source = end->peer;
		} else if (message->opcode <= IBV_WR_RDMA_WRITE_WITH_IMM) {
			area = WRITTEN;
		}
		assert_memory_equal(target->memory + area * AREA + message->to,
				    source->memory + message->from, message->length);
	}
}

static void close_soak(void)
{
	memory_wire_destroy(soak.wire);
	for (unsigned d = 0; d < 2; d++) {
		for (unsigned i = 0; i < QPS; i++) {
			free(soak.device[d].end[i].block);
			free(soak.device[d].end[i].memory);
		}
	}
}

static void run_seed(uint64_t seed)
{
	uint64_t tick;

	open_soak(seed);
	for (tick = 0; !finished() && memory_wire_now(soak.wire) < TIME_LIMIT; tick++) {
		/* The application wakes each 100 µs at least. */
		for (unsigned d = 0; d < 2; d++) {
			memory_wire_kick(soak.device[d].port);
		}
		while (memory_wire_step(soak.wire, RC_USECS(100) * (tick + 1))) {
		}
	}
	if (!finished()) {
		fail_msg("not finished after 120 s of virtual time");
	}
	for (unsigned d = 0; d < 2; d++) {
		for (unsigned i = 0; i < QPS; i++) {
			check_end(&soak.device[d].end[i]);
		}
	}
	close_soak();
}

static uint64_t first_seed = 1, seeds = SEEDS;

static int tell_seed(void **state)
{
	(void)state;
	if (soak.seed != first_seed + seeds - 1) {
		print_error("failing seed: test_sim_rc_soak %llu 1\n",
			    (unsigned long long)soak.seed);
	}
	return 0;
}

static void random_traffic(void **state)
{
	(void)state;
	for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
		run_seed(seed);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(random_traffic, tell_seed)};

	first_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : first_seed;
	seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : seeds;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
