/* SPDX-License-Identifier: Apache-2.0 */
/* The QP state table: every transition with every attribute, values, queues in each state, the
 * drain, and what a query tells. */
#include "rc_pair.h"

#define STATES (IBV_QPS_ERR + 1)

/* The specification's table for RC, written a second time: required and optional attributes. A
 * transition that is not here does not exist. */
struct row {
	enum ibv_qp_state from, to;
	int required, optional;
};

#define MOVE    (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RUNNING (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | MOVE)

static const struct row rows[] = {
	{IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH},
	{IBV_QPS_RTR, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 RUNNING},
	{IBV_QPS_RTS, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, RUNNING | IBV_QP_RATE_LIMIT},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_SQD, IBV_QPS_ERR, 0, 0},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0, RUNNING},
	{IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 RUNNING | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		 IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX},
	{IBV_QPS_SQE, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_SQE, IBV_QPS_ERR, 0, 0},
	{IBV_QPS_ERR, IBV_QPS_RESET, 0, 0},
	{IBV_QPS_ERR, IBV_QPS_ERR, 0, 0},
};

static const struct row *row_of(enum ibv_qp_state from, enum ibv_qp_state to)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].from == from && rows[i].to == to) {
			return &rows[i];
		}
	}
	return NULL;
}

static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	return rc_transition_allowed(IBV_QPT_RC, from, to, mask | IBV_QP_STATE);
}

static void every_transition_and_attribute(void **state)
{
	unsigned legal = 0;

	(void)state;
	for (enum ibv_qp_state from = 0; from < STATES; from++) {
		for (enum ibv_qp_state to = 0; to < STATES; to++) {
			const struct row *row = row_of(from, to);
			int required = row ? row->required : 0;

			assert_int_equal(allowed(from, to, required), row != NULL);
			legal += row != NULL;
			for (int bit = 0; bit < 26; bit++) {
				int one = 1 << bit;

				if (one == IBV_QP_STATE) {
					continue;
				}
				if (required & one) {
					assert_false(allowed(from, to, required & ~one));
				} else {
					assert_int_equal(allowed(from, to, required | one),
							 row && (row->optional & one));
				}
			}
			if (row) {
				assert_true(allowed(from, to, required | row->optional));
			}
		}
	}
	assert_int_equal(legal, sizeof(rows) / sizeof(rows[0]));
	assert_false(rc_transition_allowed(IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_RESET, 0));
	assert_false(rc_transition_allowed(IBV_QPT_RC, (enum ibv_qp_state)77, IBV_QPS_RESET, 0));
	assert_false(rc_transition_allowed(IBV_QPT_RC, IBV_QPS_INIT, (enum ibv_qp_state)77, 0));
}

static void datagram_table(void **state)
{
	const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

	(void)state;
	assert_true(rc_transition_allowed(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, init));
	assert_false(rc_transition_allowed(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT,
					   init | IBV_QP_ACCESS_FLAGS));
	assert_true(rc_transition_allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0));
	assert_false(rc_transition_allowed(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV));
	assert_false(rc_transition_allowed(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, 0));
	assert_true(rc_transition_allowed(IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN));
	assert_true(rc_transition_allowed(IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0));
}

/* Takes a fresh QP into `target` by the shortest way. */
static void bring_to(struct pair *pair, enum ibv_qp_state target)
{
	struct pair_options options = {};
	struct ibv_qp_attr attr = pair_attributes(&options, 0);
	struct rc_qp *qp = pair->end[0].qp;
	static const struct {
		enum ibv_qp_state state;
		int mask;
	} steps[] = {{IBV_QPS_INIT, PAIR_TO_INIT},
		     {IBV_QPS_RTR, PAIR_TO_RTR},
		     {IBV_QPS_RTS, PAIR_TO_RTS},
		     {IBV_QPS_SQD, IBV_QP_STATE},
		     {IBV_QPS_ERR, IBV_QP_STATE}};

	for (size_t i = 0; i < 5 && rc_state(qp) != target; i++) {
		attr.qp_state = steps[i].state;
		assert_int_equal(rc_modify(qp, &attr, steps[i].mask, pair->now), 0);
	}
	assert_int_equal(rc_state(qp), target);
}

static const enum ibv_qp_state reachable[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
					      IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

/* rc_modify() itself obeys the table, and a refusal changes nothing. */
static void modify_obeys(void **state)
{
	(void)state;
	for (size_t i = 0; i < 6; i++) {
		for (enum ibv_qp_state to = 0; to < STATES; to++) {
			struct pair *pair = pair_new(&(struct pair_options){});
			struct pair_options options = {};
			struct ibv_qp_attr attr = pair_attributes(&options, 0);
			const struct row *row = row_of(reachable[i], to);
			int mask = IBV_QP_STATE | (row ? row->required : 0);

			bring_to(pair, reachable[i]);
			attr.qp_state = to;
			assert_int_equal(rc_modify(pair->end[0].qp, &attr, mask, pair->now),
					 row ? 0 : -EINVAL);
			assert_int_equal(rc_state(pair->end[0].qp), row ? to : reachable[i]);
			pair_close(pair);
		}
	}
}

static void values_out_of_range(void **state)
{
	struct pair_options options = {};
	struct pair *pair = pair_new(&options);
	struct rc_qp *qp = pair->end[0].qp;
	struct ibv_qp_attr good = pair_attributes(&options, 0), attr;

	(void)state;
	bring_to(pair, IBV_QPS_INIT);
	good.qp_state = IBV_QPS_RTR;
#define REFUSED(mask, field, value)                                                                \
	do {                                                                                       \
		attr = good;                                                                       \
		attr.field = (value);                                                              \
		assert_int_equal(rc_modify(qp, &attr, mask, pair->now), -EINVAL);                  \
	} while (0)
	REFUSED(PAIR_TO_RTR, path_mtu, 0);
	REFUSED(PAIR_TO_RTR, path_mtu, 6);
	REFUSED(PAIR_TO_RTR, dest_qp_num, 0x1000000);
	REFUSED(PAIR_TO_RTR, min_rnr_timer, 32);
	REFUSED(PAIR_TO_RTR, max_dest_rd_atomic, 17);
	assert_int_equal(rc_modify(qp, &good, PAIR_TO_RTR | IBV_QP_ALT_PATH, pair->now),
			 -EOPNOTSUPP);
	assert_int_equal(rc_state(qp), IBV_QPS_INIT);
	assert_int_equal(rc_modify(qp, &good, PAIR_TO_RTR, pair->now), 0);
	good.qp_state = IBV_QPS_RTS;
	REFUSED(PAIR_TO_RTS, timeout, 32);
	REFUSED(PAIR_TO_RTS, retry_cnt, 8);
	REFUSED(PAIR_TO_RTS, rnr_retry, 8);
	REFUSED(PAIR_TO_RTS, max_rd_atomic, 17);
	REFUSED(PAIR_TO_RTS | IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_SQD);
	REFUSED(PAIR_TO_RTS | IBV_QP_PATH_MIG_STATE, path_mig_state, IBV_MIG_ARMED);
	assert_int_equal(rc_state(qp), IBV_QPS_RTR);
	good.cur_qp_state = IBV_QPS_RTR;
	assert_int_equal(rc_modify(qp, &good, PAIR_TO_RTS | IBV_QP_CUR_STATE, pair->now), 0);
	pair_close(pair);
}

/* Posting, state by state. */
static void posting(void **state)
{
	(void)state;
	for (size_t i = 0; i < 6; i++) {
		enum ibv_qp_state at = reachable[i];
		struct pair *pair = pair_new(&(struct pair_options){});
		bool send = at == IBV_QPS_RTS || at == IBV_QPS_SQD || at == IBV_QPS_ERR;
		bool receive = at != IBV_QPS_RESET;
		bool flushed = at == IBV_QPS_ERR;

		bring_to(pair, at);
		assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 8, 0, 0),
				 send ? 0 : -EINVAL);
		assert_int_equal(pair_post_receive(pair, 0, 1, 0, 8), receive ? 0 : -EINVAL);
		assert_int_equal(pair->end[0].sends, flushed);
		assert_int_equal(pair->end[0].receives, flushed);
		rc_send_progress(pair->end[0].qp, 9, pair->now);
		assert_int_equal(pair->end[0].transmitted, at == IBV_QPS_RTS);
		pair_close(pair);
	}
}

/* Packets are answered from RTR on, and not in RESET, INIT, ERR. */
static void answering(void **state)
{
	(void)state;
	for (size_t i = 0; i < 6; i++) {
		enum ibv_qp_state at = reachable[i];
		bool answers = at == IBV_QPS_RTR || at == IBV_QPS_RTS || at == IBV_QPS_SQD;
		struct pair *pair = pair_new(&(struct pair_options){});
		uint8_t bytes[RC_HEADER_BYTES_MAX + 8] = {0};
		struct rc_header header = {.opcode = RC_WRITE_ONLY,
					   .ack_request = true,
					   .partition_key = 0xffff,
					   .qpn = 0x11,
					   .remote_address = (uintptr_t)pair->end[0].memory,
					   .remote_key = PAIR_KEY,
					   .dma_length = 8};
		uint32_t length = rc_header_build(&header, bytes);

		bring_to(pair, at);
		pair_deliver(pair, 0, bytes, length + 8);
		rc_flush_acks(pair->end[0].qp, pair->now);
		assert_int_equal(pair->end[0].transmitted, answers);
		assert_int_equal(pair->end[0].stores, answers ? 8 : 0);
		assert_int_equal(pair->end[0].events[IBV_EVENT_COMM_EST], at == IBV_QPS_RTR);
		pair_close(pair);
	}
}

/* RESET forgets silently; the QP can be used again, with other PSNs. */
static void reset_forgets(void **state)
{
	struct pair_options options = {};
	struct pair *pair = pair_open(&options);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	(void)state;
	pair->fate = pair_lose_all;
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(pair_post(pair, i, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
		assert_int_equal(pair_post_receive(pair, 0, i, 0, 8), 0);
	}
	pair_progress(pair);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rc_modify(pair->end[i].qp, &attr, IBV_QP_STATE, pair->now), 0);
	}
	assert_int_equal(pair->end[0].sends, 0);
	assert_int_equal(pair->end[0].receives, 0);
	assert_int_equal(rc_next_deadline(pair->end[0].qp), RC_NO_DEADLINE);
	pair->fate = NULL;
	options.psn[0] = 0x800000;
	pair_connect(pair, &options);
	assert_int_equal(pair_post_receive(pair, 1, 3, 0, 8), 0);
	assert_int_equal(pair_post(pair, 100, IBV_WR_SEND, 8, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(pair->end[0].sends, 1);
	assert_int_equal(pair->end[0].send[0].wr_id, 100);
	assert_int_equal(pair->end[1].receives, 1);
	pair_close(pair);
}

/* SQD: what was begun is finished, what was not waits; the event comes when all is finished. */
static void drain(void **state)
{
	struct pair *pair = pair_open(&(struct pair_options){});
	struct pair_end *end = &pair->end[0];
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1}, now;

	(void)state;
	assert_int_equal(pair_post(pair, 1, IBV_WR_RDMA_WRITE, 5000, 0, 0), 0);
	assert_int_equal(pair_post(pair, 2, IBV_WR_RDMA_WRITE, 5000, 0, 0), 0);
	assert_int_equal(rc_send_progress(end->qp, 2, pair->now), 2);
	assert_int_equal(
		rc_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, pair->now), 0);
	rc_query(end->qp, &now);
	assert_int_equal(now.sq_draining, 1);
	assert_int_equal(end->events[IBV_EVENT_SQ_DRAINED], 0);
	pair_run(pair);
	assert_int_equal(end->sends, 1);
	assert_int_equal(end->events[IBV_EVENT_SQ_DRAINED], 1);
	rc_query(end->qp, &now);
	assert_int_equal(now.sq_draining, 0);
	assert_int_equal(pair_post(pair, 3, IBV_WR_RDMA_WRITE, 8, 0, 0), 0);
	pair_run(pair);
	assert_int_equal(end->sends, 1);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(rc_modify(end->qp, &attr, IBV_QP_STATE, pair->now), 0);
	pair_run(pair);
	assert_int_equal(end->sends, 3);
	/* With nothing under way the event comes at once; without asking, never. */
	attr.qp_state = IBV_QPS_SQD;
	assert_int_equal(
		rc_modify(end->qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, pair->now), 0);
	assert_int_equal(end->events[IBV_EVENT_SQ_DRAINED], 2);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(rc_modify(end->qp, &attr, IBV_QP_STATE, pair->now), 0);
	attr.qp_state = IBV_QPS_SQD;
	assert_int_equal(rc_modify(end->qp, &attr, IBV_QP_STATE, pair->now), 0);
	assert_int_equal(end->events[IBV_EVENT_SQ_DRAINED], 2);
	pair_close(pair);
}

static void query_tells_all(void **state)
{
	struct pair_options options = {.psn = {0x123456, 0x654321},
				       .timeout = 14,
				       .retry_cnt = 6,
				       .rnr_retry = 5,
				       .min_rnr_timer = 12,
				       .max_rd_atomic = 3};
	struct pair *pair = pair_open(&options);
	struct ibv_qp_attr attr;

	(void)state;
	rc_query(pair->end[0].qp, &attr);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.cur_qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.path_mtu, IBV_MTU_1024);
	assert_int_equal(attr.sq_psn, 0x123456);
	assert_int_equal(attr.rq_psn, 0x654321);
	assert_int_equal(attr.dest_qp_num, 0x12);
	assert_int_equal(attr.port_num, 1);
	assert_int_equal(attr.timeout, 14);
	assert_int_equal(attr.retry_cnt, 6);
	assert_int_equal(attr.rnr_retry, 5);
	assert_int_equal(attr.min_rnr_timer, 12);
	assert_int_equal(attr.max_rd_atomic, 3);
	assert_int_equal(attr.max_dest_rd_atomic, 3);
	assert_int_equal(attr.cap.max_send_wr, 64);
	assert_int_equal(attr.cap.max_inline_data, 64);
	assert_int_equal(attr.path_mig_state, IBV_MIG_MIGRATED);
	assert_int_equal(rc_remote_qpn(pair->end[0].qp), 0x12);
	pair_close(pair);
}

/* ---- receives from a shared queue ---- */

struct shared {
	struct ibv_sge sge;
	unsigned left;
};

static int take_shared(void *source, uint64_t *wr_id, struct ibv_sge *sges, unsigned max_sge)
{
	struct shared *shared = source;

	assert_true(max_sge >= 1);
	if (!shared->left) {
		return -ENOENT;
	}
	*wr_id = 100 + shared->left--;
	sges[0] = shared->sge;
	return 1;
}

static void shared_receive_queue(void **state)
{
	struct pair_options options = {.rnr_retry = 1, .min_rnr_timer = 1};
	struct pair *pair = pair_new(&options);
	struct pair_end *end = &pair->end[1];
	struct shared shared = {.sge = pair_sge(pair, 1, 0, 100), .left = 2};
	struct rc_config config = {.ops = &pair_ops,
				   .owner = end,
				   .settings = &pair->settings,
				   .qpn = 0x12,
				   .max_recv_sge = 2,
				   .take_receive = take_shared,
				   .receive_source = &shared};
	struct pair_options connect = {.rnr_retry = 1, .min_rnr_timer = 1};

	(void)state;
	config.max_rd_atomic = 16;
	free(end->block);
	end->block = aligned_alloc(64, rc_qp_bytes(&config));
	assert_non_null(end->block);
	memset(end->block, 0, rc_qp_bytes(&config));
	end->qp = rc_qp_init(end->block, &config);
	pair_connect(pair, &connect);
	assert_int_equal(pair_post_receive(pair, 1, 1, 0, 8), -EINVAL);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pair_post(pair, i, IBV_WR_SEND, 50, 0, 0), 0);
	}
	pair_run(pair);
	assert_int_equal(end->receives, 2);
	assert_int_equal(end->receive[0].wr_id, 102);
	assert_int_equal(end->receive[1].wr_id, 101);
	assert_int_equal(pair->end[0].send[2].status, IBV_WC_RNR_RETRY_EXC_ERR);
	rc_fail(end->qp, IBV_WC_FATAL_ERR, pair->now);
	assert_int_equal(end->events[IBV_EVENT_QP_LAST_WQE_REACHED], 1);
	pair_close(pair);
}

static void configuration_out_of_range(void **state)
{
	struct rc_settings settings;
	struct rc_config good = {.ops = &pair_ops, .settings = &settings, .max_send_wr = 1}, bad;

	(void)state;
	rc_settings_default(&settings);
	assert_true(rc_qp_bytes(&good) > 0);
	assert_int_equal(rc_qp_bytes(&good) % 64, 0);
	bad = good;
	bad.ops = NULL;
	assert_int_equal(rc_qp_bytes(&bad), 0);
	bad = good;
	bad.max_send_sge = RC_PIECES_MAX + 1;
	assert_int_equal(rc_qp_bytes(&bad), 0);
	bad = good;
	bad.max_send_wr = 0x80000000;
	assert_int_equal(rc_qp_bytes(&bad), 0);
	bad = good;
	bad.qpn = 0x1000000;
	assert_int_equal(rc_qp_bytes(&bad), 0);
	bad = good;
	bad.take_receive = take_shared;
	bad.max_recv_wr = 1;
	assert_int_equal(rc_qp_bytes(&bad), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_transition_and_attribute),
		cmocka_unit_test(datagram_table),
		cmocka_unit_test(modify_obeys),
		cmocka_unit_test(values_out_of_range),
		cmocka_unit_test(posting),
		cmocka_unit_test(answering),
		cmocka_unit_test(reset_forgets),
		cmocka_unit_test(drain),
		cmocka_unit_test(query_tells_all),
		cmocka_unit_test(shared_receive_queue),
		cmocka_unit_test(configuration_out_of_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
