/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole device with queue pairs of each kind (RC and UD, with their own receives and with a
 * shared queue), in a world of its own. The input is a list of steps: packets of a stranger who
 * sits at the address that the RC queue pairs are connected to, faults put on and taken off, calls
 * of the application, time. Whatever comes: nothing is stored outside the region, no more completes
 * than was posted, and everything can be taken down.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim_world.h"
#include "../../sim/verbs/device.h" /* not core/verbs/device.h */
#include "wire/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REGION  8192u
#define GUARD   4096u
#define DEPTH   16u
#define KINDS   4 /* RC, RC with SRQ, UD, UD with SRQ */
#define QKEY    0x11223344u
#define PSN     0xfffff0u
#define STEP_NS 100000u

static struct fuzzed {
	struct sim_world *world;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[KINDS];
	struct ibv_ah *ah;
	struct wire_port *stranger;
	struct wire_route route;
	union ibv_gid stranger_gid;
	uint64_t posted, completed;
	uint8_t memory[GUARD + REGION + GUARD];
} it;

static void check(bool truth)
{
	if (!truth) {
		abort();
	}
}

static bool store_is_inside(void *context, const struct sim_world_store *store)
{
	const uint8_t *at = store->memory;

	(void)context;
	check(at >= it.memory + GUARD && store->length <= REGION &&
	      at + store->length <= it.memory + GUARD + REGION);
	return true;
}

/* ---- the stranger ---- */

static void hear_packet(void *context, const struct wire_received *packet, uint64_t now)
{
	(void)context, (void)packet, (void)now;
}

static void hear_nothing(void *context, uint64_t now)
{
	(void)context, (void)now;
}

static uint64_t never(void *context)
{
	(void)context;
	return RC_NO_DEADLINE;
}

static void hear_event(void *context, enum wire_event event, uint64_t now)
{
	(void)context, (void)event, (void)now;
}

static void stranger_come(void)
{
	static const struct wire_sink sink = {hear_packet, hear_nothing, never, hear_event};
	struct sim_device *device = to_device(it.context->device);
	struct wire_attach attach = {.sink = &sink, .name = "stranger"};
	union ibv_gid own;

	/* The address of host 1, whose device nobody opens. */
	gid_of_address(fabric_port(device->host->control, 1, 0)->address, 1, &it.stranger_gid);
	gid_of_address(device->address, 1, &own);
	memcpy(attach.gid, it.stranger_gid.raw, 16);
	memcpy(it.route.source_gid, it.stranger_gid.raw, 16);
	memcpy(it.route.destination_gid, own.raw, 16);
	check(!memory_wire_ops.attach(device->host->wire, &attach, &it.stranger));
}

static void put24(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)(value >> 16);
	at[1] = (uint8_t)(value >> 8);
	at[2] = (uint8_t)value;
}

/* Makes the packet one for this queue pair, its PSN one of the 16 around the one expected (or sent
 * next), its Q_Key right but for one bit's saying. */
static void aim(uint8_t *packet, size_t length, struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	check(!ibv_query_qp(qp, &attr, IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init));
	packet[1] &= 0xf0;
	packet[2] = packet[3] = 0xff;
	put24(packet + 5, qp->qp_num);
	put24(packet + 9, ((packet[11] & 0x10 ? attr.sq_psn : attr.rq_psn) + (packet[11] & 0xf) -
			   4) & RC_PSN_MASK);
	if (qp->qp_type == IBV_QPT_UD && length >= RC_BTH_BYTES + 8 && !(packet[16] & 1)) {
		packet[12] = QKEY >> 24;
		packet[13] = QKEY >> 16 & 0xff;
		packet[14] = QKEY >> 8 & 0xff;
		packet[15] = QKEY & 0xff;
	}
}

static void send_packet(const uint8_t *data, size_t length, struct ibv_qp *qp)
{
	uint8_t bytes[RC_PACKET_BYTES_MAX];
	struct rc_piece rest = {bytes + RC_BTH_BYTES, (uint32_t)(length - RC_BTH_BYTES)};
	struct rc_packet packet = {.header = bytes,
				   .header_length = RC_BTH_BYTES,
				   .payload_length = (uint32_t)(length - RC_BTH_BYTES),
				   .piece_count = 1,
				   .pieces = &rest};

	/* Shorter ones no wire takes: where would the ICRC begin? */
	if (length < RC_BTH_BYTES) {
		return;
	}
	memcpy(bytes, data, length);
	if (qp) {
		aim(bytes, length, qp);
	}
	memory_wire_ops.transmit(it.stranger, &it.route, &packet, sim_world_now(it.world));
}

/* ---- the application ---- */

static struct ibv_qp *qp_new(int kind)
{
	struct ibv_qp_init_attr init = {
		.send_cq = it.cq,
		.recv_cq = it.cq,
		.srq = kind % 2 ? it.srq : NULL,
		.cap = {DEPTH, kind % 2 ? 0 : DEPTH, 1, kind % 2 ? 0 : 1, 16},
		.qp_type = kind < 2 ? IBV_QPT_RC : IBV_QPT_UD,
		.sq_sig_all = 1,
	};

	return ibv_create_qp(it.pd, &init);
}

/* As far to RTS as it goes: the GID may be elsewhere, the queue pair stuck. */
static void qp_connect(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.qkey = QKEY,
		.path_mtu = IBV_MTU_256,
		.dest_qp_num = 5,
		.rq_psn = PSN,
		.sq_psn = PSN,
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 2,
		.min_rnr_timer = 1,
		.timeout = 8,
		.retry_cnt = 2,
		.rnr_retry = 2,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = it.stranger_gid, .sgid_index = 1}},
	};
	bool rc = qp->qp_type == IBV_QPT_RC;

	ibv_modify_qp(qp, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (rc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qp, &attr,
		      rc ? IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER
			 : IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(qp, &attr,
		      rc ? IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC
			 : IBV_QP_STATE | IBV_QP_SQ_PSN);
}

static void qp_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void post_receive(struct ibv_qp *qp, uint8_t how)
{
	struct ibv_sge sge = {(uintptr_t)it.memory + GUARD + (how & 0x3f) * 64u, 400, it.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = how, .sg_list = &sge, .num_sge = how != 0xff}, *bad;
	int code = qp->srq ? ibv_post_srq_recv(it.srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);

	it.posted += code == 0;
}

static void post_send(struct ibv_qp *qp, uint8_t how)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_READ,
						     IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_IMM};
	struct ibv_sge sge = {(uintptr_t)it.memory + GUARD + (how & 0x3f) * 64u, how, it.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = how,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcodes[how >> 6]},
			   *bad;

	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = it.ah;
		wr.wr.ud.remote_qpn = 5;
		wr.wr.ud.remote_qkey = QKEY;
	}
	it.posted += ibv_post_send(qp, &wr, &bad) == 0;
}

static void poll_all(void)
{
	struct ibv_async_event event;
	struct ibv_wc wc;

	while (ibv_poll_cq(it.cq, 1, &wc) == 1) {
		it.completed++;
	}
	check(it.completed <= it.posted);
	while (ibv_get_async_event(it.context, &event) == 0) {
		ibv_ack_async_event(&event);
	}
}

/* Objects that come and go, or don't come for want of memory. */
static void objects_make(void)
{
	struct ibv_qp *qp = qp_new(0);
	struct ibv_mr *mr = ibv_reg_mr(it.pd, it.memory + GUARD, 64, 0);
	struct ibv_cq *cq = ibv_create_cq(it.context, 4, NULL, NULL, 0);

	check(!qp || !ibv_destroy_qp(qp));
	check(!mr || !ibv_dereg_mr(mr));
	check(!cq || !ibv_destroy_cq(cq));
}

static void call(uint8_t what, uint8_t how)
{
	struct ibv_qp *qp = it.qp[how % KINDS];

	switch (what % 8) {
	case 0:
		post_receive(qp, how);
		break;
	case 1:
		post_send(qp, how);
		break;
	case 2:
		qp_to(qp, IBV_QPS_ERR);
		break;
	case 3:
		qp_to(qp, IBV_QPS_RESET);
		qp_connect(qp);
		break;
	case 4:
		objects_make();
		break;
	case 5:
		qp = qp_new(how % KINDS);
		if (qp) {
			check(!ibv_destroy_qp(it.qp[how % KINDS]));
			it.qp[how % KINDS] = qp;
			qp_connect(qp);
		}
		break;
	case 6: {
		struct ibv_srq_attr attr = {.srq_limit = how % DEPTH};

		ibv_modify_srq(it.srq, &attr, IBV_SRQ_LIMIT);
		break;
	}
	default:
		poll_all();
		break;
	}
}

static void fault(uint8_t which)
{
	static const char *const hows[] = {
		"down",        "blackhole", "loss=50%", "corrupt=50%", "duplicate=50%",
		"reorder=50%", "delay=1ms", "slow=10M", "speed=10G",   "unwritten",
		"stuck",       "gid",       "gid=1",    "nomem=qp",    "nomem=mr:1",
		"nomem=2",     "die",
	};
	char error[FABRIC_ERROR_SIZE];
	size_t count = sizeof(hows) / sizeof(hows[0]);

	if (which % 32 < count) {
		check(!sim_world_set_fault(it.world, "host0.rail0", hows[which % 32], NULL, error));
	} else {
		check(!sim_world_restore(it.world, "all", error));
	}
}

/* ---- one input ---- */

static void open_all(void)
{
	struct sim_world_options options = {.flush_on_port_down = true};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
	struct ibv_device **list;

	memset(&it, 0, sizeof(it));
	check(!sim_world_create(1, 2, 1, &options, &it.world));
	sim_world_observe(it.world, store_is_inside, NULL);
	sim_world_enter(it.world, 0);
	list = ibv_get_device_list(NULL);
	check(list);
	it.context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	check(it.context && fcntl(it.context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	stranger_come();
	it.pd = ibv_alloc_pd(it.context);
	it.cq = ibv_create_cq(it.context, 256, NULL, NULL, 0);
	it.mr = ibv_reg_mr(it.pd, it.memory + GUARD, REGION,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ);
	it.srq = ibv_create_srq(it.pd, &srq);
	ah.grh.dgid = it.stranger_gid;
	it.ah = ibv_create_ah(it.pd, &ah);
	check(it.pd && it.cq && it.mr && it.srq && it.ah);
	for (int kind = 0; kind < KINDS; kind++) {
		it.qp[kind] = qp_new(kind);
		check(it.qp[kind]);
		qp_connect(it.qp[kind]);
		post_receive(it.qp[kind], (uint8_t)kind);
	}
}

static void close_all(void)
{
	static const uint8_t zeros[GUARD];

	for (int kind = 0; kind < KINDS; kind++) {
		qp_to(it.qp[kind], IBV_QPS_ERR);
	}
	poll_all();
	check(!memcmp(it.memory, zeros, GUARD));
	check(!memcmp(it.memory + GUARD + REGION, zeros, GUARD));
	for (int kind = 0; kind < KINDS; kind++) {
		check(!ibv_destroy_qp(it.qp[kind]));
	}
	memory_wire_ops.detach(it.stranger);
	check(!ibv_destroy_ah(it.ah) && !ibv_destroy_srq(it.srq) && !ibv_dereg_mr(it.mr));
	check(!ibv_destroy_cq(it.cq) && !ibv_dealloc_pd(it.pd) && !ibv_close_device(it.context));
	check(!sim_world_destroy(it.world));
}

/* A step: what kind of step, a byte for it, and with a packet its length, low byte, and bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t until;

	open_all();
	while (size >= 3) {
		uint8_t step = data[0] % 8, byte = data[1];
		size_t length = data[2];

		data += 3;
		size -= 3;
		if (step <= KINDS) {
			length = (size_t)(byte & 1) << 8 | length;
			length = length < size ? length : size;
			send_packet(data, length, step < KINDS ? it.qp[step] : NULL);
			data += length;
			size -= length;
		} else if (step == 5) {
			fault(byte);
		} else if (step == 6) {
			call(byte, (uint8_t)length);
		}
		/* Step 7 is time alone: more of it. */
		until = sim_world_now(it.world) + STEP_NS * (step == 7 ? 1 + byte : 1);
		while (sim_world_step(it.world, until)) {
		}
	}
	close_all();
	return 0;
}
