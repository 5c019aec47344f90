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

#include "rc_soak.h"

#define SEEDS 2000u

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
