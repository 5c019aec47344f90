/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/qp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/log.h"

#define RNR_WITHOUT_END 7  /* retries; a receive queue that is empty for long is a stall */
#define RNR_TIMER       12 /* 0.64 ms, IB specification table 46 */
#define HOP_LIMIT       255

int sb_cq_create(struct sb_device *device, int depth, struct ibv_cq **cq)
{
	*cq = device->verbs->create_cq(device->context, depth, device, NULL, 0);
	if (*cq == NULL) {
		int status = errno != 0 ? -errno : -EIO;

		sb_error("%s: ibv_create_cq of %d entries (the device has %d): %s", device->name,
			 depth, device->attributes.max_cqe, strerror(-status));
		return status;
	}
	return 0;
}

static int destroyed(const struct sb_device *device, const char *what, int status)
{
	if (status != 0) {
		sb_warn("%s: %s: %s", device->name, what, strerror(status));
	}
	return -status;
}

int sb_cq_destroy(struct ibv_cq *cq)
{
	const struct sb_device *device = cq != NULL ? cq->cq_context : NULL;

	return cq == NULL ? 0 : destroyed(device, "ibv_destroy_cq", device->verbs->destroy_cq(cq));
}

int sb_qp_destroy(struct ibv_qp *qp)
{
	const struct sb_port *port = qp != NULL ? qp->qp_context : NULL;

	return qp == NULL ? 0
			  : destroyed(port->device, "ibv_destroy_qp",
				      port->device->verbs->destroy_qp(qp));
}

/* Inline data costs room in each WQE; a device that has less says so only by refusing. */
static struct ibv_qp *create(struct sb_port *port, struct ibv_cq *cq, struct sb_qp_limits *limits)
{
	const struct sb_device *device = port->device;

	for (uint32_t max_inline = limits->max_inline;; max_inline /= 2) {
		struct ibv_qp_init_attr attributes = {
			.qp_context = port,
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = limits->send_depth,
				.max_recv_wr = limits->recv_depth,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = max_inline},
		};
		struct ibv_qp *qp = device->verbs->create_qp(device->pd, &attributes);

		if (qp != NULL) {
			qp->qp_context = port;
			limits->send_depth = attributes.cap.max_send_wr;
			limits->recv_depth = attributes.cap.max_recv_wr;
			limits->max_inline = attributes.cap.max_inline_data;
			return qp;
		}
		if (max_inline == 0 || (errno != EINVAL && errno != ENOMEM)) {
			return NULL;
		}
	}
}

static int modify(struct ibv_qp *qp, struct sb_port *port, struct ibv_qp_attr *attributes, int mask,
		  const char *what)
{
	int status = port->device->verbs->modify_qp(qp, attributes, mask);

	if (status != 0) {
		/* Some providers return -1 and set errno. */
		status = status > 0 ? status : errno;
		sb_error("%s/%d: QP %u: %s: %s", port->device->name, port->number, qp->qp_num, what,
			 strerror(status));
	}
	return -status;
}

int sb_qp_create(struct sb_port *port, struct ibv_cq *cq, struct sb_qp_limits *limits,
		 struct ibv_qp **qp)
{
	struct sb_device *device = port->device;
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = (uint16_t)device->settings.pkey_index,
		.port_num = port->number,
		.qp_access_flags =
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	char what[64];
	int status;

	*qp = create(port, cq, limits);
	if (*qp == NULL) {
		status = errno != 0 ? -errno : -EIO;
		sb_error("%s/%d: ibv_create_qp with %u send and %u receive WQEs (the device has "
			 "%d): %s%s",
			 device->name, port->number, limits->send_depth, limits->recv_depth,
			 device->attributes.max_qp_wr, strerror(-status),
			 status == -ENOMEM ? "; see ulimit -l" : "");
		return status;
	}
	snprintf(what, sizeof(what), "to INIT with P_Key index %u (NCCL_IB_PKEY)",
		 attributes.pkey_index);
	status = modify(*qp, port, &attributes,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, what);
	if (status != 0) {
		sb_qp_destroy(*qp);
		*qp = NULL;
	}
	return status;
}

/* A configured value wins; without one, what the peer uses: then one end need be configured. */
static uint8_t configured(int here, uint8_t peer)
{
	return here >= 0 ? (uint8_t)here : peer;
}

static int check_address(const struct sb_port *port, const struct sb_qp_address *remote)
{
	if (remote->mtu < IBV_MTU_256 || remote->mtu > IBV_MTU_4096 ||
	    remote->link_layer != port->link_layer || remote->qpn == 0 ||
	    (remote->qpn | remote->psn) >> 24 != 0 || remote->sl > 15) {
		sb_error("%s/%d: the peer's QP address makes no sense here: QP %u, PSN %u, MTU %u, "
			 "link layer %u (here %d), SL %u",
			 port->device->name, port->number, remote->qpn, remote->psn, remote->mtu,
			 remote->link_layer, port->link_layer, remote->sl);
		return -EPROTO;
	}
	return 0;
}

static void address_handle(const struct sb_port *port, const struct ibv_port_attr *attributes,
			   const union ibv_gid *gid, int gid_index,
			   const struct sb_qp_address *remote, struct ibv_ah_attr *handle)
{
	const struct sb_verbs_settings *settings = &port->device->settings;
	bool ethernet = port->link_layer == IBV_LINK_LAYER_ETHERNET;

	*handle = (struct ibv_ah_attr){
		.dlid = remote->lid,
		.sl = configured(settings->service_level, remote->sl),
		.port_num = port->number,
		/* InfiniBand: a GRH only to another subnet, or where the fabric wants one. */
		.is_global = ethernet || (attributes->flags & IBV_QPF_GRH_REQUIRED) != 0 ||
			     memcmp(remote->gid, gid->raw, 8) != 0,
	};
	if (handle->is_global) {
		memcpy(handle->grh.dgid.raw, remote->gid, sizeof(remote->gid));
		handle->grh.sgid_index = (uint8_t)gid_index;
		handle->grh.hop_limit = HOP_LIMIT;
		handle->grh.traffic_class =
			configured(settings->traffic_class, remote->traffic_class);
	}
}

int sb_qp_connect(struct ibv_qp *qp, struct sb_port *port, uint32_t local_psn,
		  const struct sb_qp_address *remote)
{
	const struct sb_verbs_settings *settings = &port->device->settings;
	struct ibv_port_attr here;
	struct ibv_qp_attr attributes = {0};
	union ibv_gid gid;
	int gid_index = sb_port_gid(port, &gid);
	int status = check_address(port, remote);

	if (status != 0) {
		return status;
	}
	sb_port_attributes(port, &here);
	if (gid_index < 0) {
		return -ENETDOWN;
	}
	attributes.qp_state = IBV_QPS_RTR;
	attributes.path_mtu = here.active_mtu < (enum ibv_mtu)remote->mtu
				      ? here.active_mtu
				      : (enum ibv_mtu)remote->mtu;
	attributes.dest_qp_num = remote->qpn;
	attributes.rq_psn = remote->psn;
	attributes.max_dest_rd_atomic = 1;
	attributes.min_rnr_timer = RNR_TIMER;
	address_handle(port, &here, &gid, gid_index, remote, &attributes.ah_attr);
	status = modify(qp, port, &attributes,
			IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			"to RTR");
	if (status != 0) {
		return status;
	}
	attributes.qp_state = IBV_QPS_RTS;
	attributes.timeout = (uint8_t)settings->timeout;
	attributes.retry_cnt = (uint8_t)settings->retry_count;
	attributes.rnr_retry = RNR_WITHOUT_END;
	attributes.sq_psn = local_psn;
	attributes.max_rd_atomic = 1;
	return modify(qp, port, &attributes,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		      "to RTS");
}

void sb_qp_local_address(struct ibv_qp *qp, struct sb_port *port, uint32_t psn,
			 struct sb_qp_address *address)
{
	const struct sb_verbs_settings *settings = &port->device->settings;
	struct ibv_port_attr attributes;
	union ibv_gid gid;

	sb_port_gid(port, &gid);
	sb_port_attributes(port, &attributes);
	*address = (struct sb_qp_address){
		.qpn = qp->qp_num,
		.psn = psn & 0xffffff,
		.lid = attributes.lid,
		.mtu = (uint8_t)attributes.active_mtu,
		.link_layer = (uint8_t)port->link_layer,
		.sl = configured(settings->service_level, 0),
		.traffic_class = configured(settings->traffic_class, 0),
	};
	memcpy(address->gid, gid.raw, sizeof(address->gid));
}

int sb_qp_error(struct ibv_qp *qp)
{
	const struct sb_port *port = qp->qp_context;
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};

	return -port->device->verbs->modify_qp(qp, &attributes, IBV_QP_STATE);
}
