/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address handles, and the header that a UD receiver finds in front of the data. With RoCE v2 over
 * IPv4 those 40 bytes hold 20 that mean nothing and then the IPv4 header of the packet.
 */
#include "verbs/device.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>

int route_resolve(struct sim_nic *nic, const struct ibv_ah_attr *attr, struct wire_route *route)
{
	bool infiniband = link_is_infiniband(nic->device);
	union ibv_gid own;
	int code = 0;

	if (attr->port_num != 1 || (!attr->is_global && !infiniband) ||
	    (attr->is_global && gid_to_mapped(&attr->grh.dgid, route->destination_gid))) {
		return -EINVAL;
	}
	if (attr->is_global) {
		code = gid_read(nic, attr->grh.sgid_index, &own);
	} else {
		link_lid_to_mapped(nic->device, attr->dlid, route->destination_gid);
	}
	if (code) {
		return code;
	}
	gid_of_address(nic->device->address, 1, &own);
	memcpy(route->source_gid, own.raw, sizeof(route->source_gid));
	route->traffic_class = attr->grh.traffic_class;
	route->hop_limit = attr->grh.hop_limit;
	return 0;
}

VERBS_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct sim_nic *nic = to_nic(pd->context);
	int code = device_allocate(nic->device, FABRIC_AH);
	struct sim_ah *ah = code ? NULL : calloc(1, sizeof(*ah));

	if (!ah) {
		code = -ENOMEM;
	} else {
		pthread_mutex_lock(&nic->lock);
		code = nic->dead ? -EIO : route_resolve(nic, attr, &ah->route);
		pthread_mutex_unlock(&nic->lock);
	}
	if (code) {
		free(ah);
		errno = -code;
		return NULL;
	}
	ah->ah.context = pd->context;
	ah->ah.pd = pd;
	atomic_fetch_add(&to_pd(pd)->references, 1);
	return &ah->ah;
}

VERBS_EXPORT int ibv_destroy_ah(struct ibv_ah *ibv)
{
	atomic_fetch_sub(&to_pd(ibv->pd)->references, 1);
	free(to_ah(ibv));
	return 0;
}

static uint16_t header_checksum(const struct iphdr *header)
{
	const uint16_t *words = (const uint16_t *)(const void *)header;
	uint32_t sum = 0;

	for (size_t i = 0; i < sizeof(*header) / 2; i++) {
		sum += words[i];
	}
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

void grh_build(const uint8_t source_gid[16], const uint8_t destination_gid[16], uint32_t length,
	       uint8_t grh[GRH_BYTES])
{
	struct iphdr header = {
		.ihl = 5,
		.version = 4,
		.tot_len = htons((uint16_t)(sizeof(header) + 8 + length)),
		.frag_off = htons(0x4000),
		.ttl = 64,
		.protocol = IPPROTO_UDP,
	};

	memcpy(&header.saddr, source_gid + 12, 4);
	memcpy(&header.daddr, destination_gid + 12, 4);
	header.check = header_checksum(&header);
	memset(grh, 0, GRH_BYTES);
	memcpy(grh + GRH_BYTES - sizeof(header), &header, sizeof(header));
}

VERBS_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
				     struct ibv_wc *wc, struct ibv_grh *grh,
				     struct ibv_ah_attr *attr)
{
	const struct sim_nic *nic = to_nic(context);
	struct iphdr header;

	memset(attr, 0, sizeof(*attr));
	attr->port_num = port_num;
	attr->sl = wc->sl;
	attr->dlid = wc->slid;
	attr->src_path_bits = wc->dlid_path_bits;
	if (port_num == 1 && !(wc->wc_flags & IBV_WC_GRH) && link_is_infiniband(nic->device)) {
		return 0;
	}
	memcpy(&header, (uint8_t *)grh + GRH_BYTES - sizeof(header), sizeof(header));
	if (port_num != 1 || !(wc->wc_flags & IBV_WC_GRH) || header.version != 4 ||
	    header_checksum(&header) != 0) {
		errno = EINVAL;
		return -1;
	}
	attr->is_global = 1;
	attr->grh.sgid_index = (uint8_t)(1 + atomic_load(&nic->control->gid_shift));
	attr->grh.hop_limit = 64;
	attr->grh.traffic_class = header.tos;
	gid_of_address(ntohl(header.saddr), 1, &attr->grh.dgid);
	return 0;
}

VERBS_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
						  struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;

	return ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attr)
		       ? NULL
		       : ibv_create_ah(pd, &attr);
}
