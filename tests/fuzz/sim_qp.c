/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A QP with work in both queues, fed packets by the input: two bytes of length, then the packet.
 * QPN and P_Key are made right and the PSN is taken near those expected, so that most get past the
 * door. Between packets time passes. Nothing may be stored outside the region, and at the end each
 * WQE has completed exactly once, in order.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rc/rc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define QPN       0x11u
#define KEY       0x42u
#define REGION    16384u
#define ADDRESS   0x10000u /* the region as packets and SGEs name it */
#define SEND_PSN  0xfffffau
#define EXPECTED  0xfffff0u
#define WQES      8u
#define BLOCK_MAX 65536u

static uint8_t region[REGION];
static uint64_t completed[2]; /* send, receive */

static void check(bool truth)
{
	if (!truth) {
		abort();
	}
}

static int transmit(void *owner, const struct rc_packet *packet)
{
	uint32_t length = 0;

	(void)owner;
	check(packet->header_length <= RC_HEADER_BYTES_MAX && packet->pad < 4);
	for (unsigned i = 0; i < packet->piece_count; i++) {
		length += packet->pieces[i].length;
	}
	check(length == packet->payload_length && length <= 256);
	return 0;
}

static void *memory(void *owner, uint32_t key, uint64_t address, uint32_t length, int access)
{
	(void)owner;
	(void)access;
	if (key != KEY || address < ADDRESS || length > REGION ||
	    address - ADDRESS > REGION - length) {
		return NULL;
	}
	return region + (address - ADDRESS);
}

static void complete(void *owner, bool receive, const struct ibv_wc *wc, bool solicited)
{
	(void)owner;
	(void)solicited;
	check(wc->wr_id == completed[receive]);
	completed[receive]++;
}

static void event(void *owner, enum ibv_event_type type)
{
	(void)owner;
	(void)type;
}

static const struct rc_ops ops = {transmit, memory, memory, complete, event, NULL};

static struct rc_qp *connect_qp(void *block, const struct rc_config *config)
{
	struct rc_qp *qp = rc_qp_init(block, config);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .qp_access_flags =
					   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
				   .path_mtu = IBV_MTU_256,
				   .rq_psn = EXPECTED,
				   .sq_psn = SEND_PSN,
				   .max_rd_atomic = 2,
				   .max_dest_rd_atomic = 2,
				   .min_rnr_timer = 1,
				   .timeout = 10,
				   .retry_cnt = 3,
				   .rnr_retry = 3};

	check(!rc_modify(qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0));
	attr.qp_state = IBV_QPS_RTR;
	check(!rc_modify(qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			 0));
	attr.qp_state = IBV_QPS_RTS;
	check(!rc_modify(qp, &attr,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
			 0));
	return qp;
}

static void post_work(struct rc_qp *qp)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_READ,
						     IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};

	for (uint64_t i = 0; i < WQES; i++) {
		struct ibv_sge sge = {ADDRESS + 512 * i, (uint32_t)(100 * i), KEY};
		struct ibv_send_wr *bad_send, send = {.wr_id = i,
						      .sg_list = &sge,
						      .num_sge = 1,
						      .opcode = opcodes[i % 4]};
		struct ibv_recv_wr *bad_receive,
			receive = {.wr_id = i, .sg_list = &sge, .num_sge = 1};

		check(!rc_post_send(qp, &send, &bad_send, 0));
		check(!rc_post_recv(qp, &receive, &bad_receive, 0));
	}
}

static void run(struct rc_qp *qp, uint64_t now)
{
	rc_expire(qp, now);
	rc_flush_acks(qp, now);
	for (unsigned i = 0; i < 64 && rc_send_progress(qp, 16, now) == 16; i++) {
	}
}

/* Makes the packet one for this QP, and its PSN one of the 16 around those that matter. */
static void aim(uint8_t *packet, size_t length)
{
	uint32_t psn;

	if (length < RC_BTH_BYTES) {
		return;
	}
	psn = (packet[11] & 0x10 ? SEND_PSN : EXPECTED) + (packet[11] & 0xf) - 4;
	packet[1] &= 0xf0;
	packet[2] = packet[3] = 0xff;
	packet[5] = packet[6] = 0;
	packet[7] = QPN;
	packet[9] = (uint8_t)(psn >> 16);
	packet[10] = (uint8_t)(psn >> 8);
	packet[11] = (uint8_t)psn;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t block[BLOCK_MAX] __attribute__((aligned(64)));
	struct rc_settings settings;
	struct rc_config config = {.ops = &ops,
				   .settings = &settings,
				   .qpn = QPN,
				   .max_send_wr = WQES,
				   .max_recv_wr = WQES,
				   .max_send_sge = 1,
				   .max_recv_sge = 1,
				   .max_rd_atomic = 2,
				   .sq_sig_all = true};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct rc_qp *qp;
	uint64_t now = 0;

	rc_settings_default(&settings);
	check(rc_qp_bytes(&config) && rc_qp_bytes(&config) <= sizeof(block));
	memset(block, 0, sizeof(block));
	completed[0] = completed[1] = 0;
	qp = connect_qp(block, &config);
	post_work(qp);
	run(qp, now);
	while (size >= 2) {
		size_t length = (size_t)(data[0] & 0x1f) << 8 | data[1];
		uint8_t *packet;
		struct rc_view view;

		data += 2;
		size -= 2;
		length = length < size ? length : size;
		packet = malloc(length ? length : 1);
		check(packet);
		memcpy(packet, data, length);
		aim(packet, length);
		if (!rc_packet_parse(packet, length, &view)) {
			rc_receive(qp, &view, now);
		}
		free(packet);
		data += length;
		size -= length;
		now += RC_USECS(300);
		run(qp, now);
	}
	check(!rc_modify(qp, &attr, IBV_QP_STATE, now));
	check(completed[0] == WQES && completed[1] == WQES);
	check(rc_next_deadline(qp) == RC_NO_DEADLINE);
	return 0;
}
