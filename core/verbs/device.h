/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA devices and their ports: what is there, which GID a port speaks with, whether it is up.
 *
 * Ownership: sb_devices_open() makes one sb_device per device and one sb_port per port; both live
 * until sb_devices_close(). Their indexes never change.
 * Threads: sb_port_refresh() and the sb_port_…() readers may run in any thread (a lock per port);
 * `active` and `fatal` may be read at any time. Other fields are constant after the opening, save
 * those marked "under the lock".
 * Device names come from libibverbs, everything else that is not in the verbs from sysfs, whose
 * root SWITCHBACK_SYSFS can move.
 */
#ifndef SB_VERBS_DEVICE_H
#define SB_VERBS_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "switchback.h"
#include "verbs/verbs.h"

#define SB_PCI_PATH_BYTES 256

/* What the environment says about QPs and GIDs; read once when the devices are opened. */
struct sb_verbs_settings {
	int gid_index;      /* NCCL_IB_GID_INDEX; -1: choose */
	int address_family; /* NCCL_IB_ADDR_FAMILY: AF_INET or AF_INET6; 0: no preference set */
	uint8_t range[16];  /* NCCL_IB_ADDR_RANGE as the beginning of a GID: */
	int range_bits;     /* so many bits of it; 0: any GID */
	int roce_version;   /* NCCL_IB_ROCE_VERSION_NUM: 1 or 2 */
	int timeout;        /* NCCL_IB_TIMEOUT: 4.096 us << timeout */
	int retry_count;    /* NCCL_IB_RETRY_CNT, at most 6 because rxe takes 7 for "without end" */
	int service_level;  /* NCCL_IB_SL; -1: not set */
	int traffic_class;  /* NCCL_IB_TC; -1: not set */
	int pkey_index;     /* NCCL_IB_PKEY */
	int pci_order;      /* NCCL_IB_DEVICE_PCI_ORDER, 1 by default */
	int relaxed_ordering; /* NCCL_IB_PCI_RELAXED_ORDERING=1; off by default, see memory.h */
};
/* -EINVAL after one log line per bad value. */
int sb_verbs_settings_read(struct sb_verbs_settings *settings);

struct sb_device {
	const struct sb_verbs *verbs;
	struct sb_verbs_settings settings;
	struct ibv_context *context;
	struct ibv_pd *pd;
	char name[SB_NAME_BYTES];
	char pci_path[SB_PCI_PATH_BYTES]; /* real path of the PCI device; "" if unknown */
	char physical[SB_PCI_PATH_BYTES]; /* of a virtual function: its physical one; else "" */
	int numa_node;                    /* -1: unknown */
	int index;
	uint64_t guid; /* in host order */
	struct ibv_device_attr attributes;
	bool dmabuf;      /* DMA-BUF registration works */
	bool peer_memory; /* a kernel module lets plain registration take GPU memory */
	atomic_int fatal; /* the device reported its death; its context is of no more use */
};

struct sb_port {
	struct sb_device *device;
	int index;
	uint8_t number; /* from 1 */
	/* What NCCL_IB_HCA says if it does for every port, else the index of the port on its host;
	 * subnets are compared when two hosts meet. */
	int rail;
	int rail_id, plane_id;      /* as NCCL_IB_HCA says; -1: it doesn't */
	char netdev[SB_NAME_BYTES]; /* "" if unknown */
	char pci_path[SB_PCI_PATH_BYTES];
	int numa_node;
	int link_layer; /* IBV_LINK_LAYER_* */

	int backup_count; /* filled by whoever chooses them (conn/context.c) */
	int backups[SB_PATHS_MAX - 1];
	char backup_reason[SB_REASON_BYTES];

	atomic_int active; /* port up, link up, GID known, device not dead */

	pthread_mutex_t lock;
	struct ibv_port_attr attributes; /* under the lock */
	union ibv_gid gid;               /* under the lock; zero where none was found yet */
	int gid_index;                   /* under the lock; -1 likewise */
	int gid_version;                 /* under the lock; RoCE version, 0 if unknown or IB */
	union ibv_gid home; /* under the lock; the first choice, which is gone back to */
	bool carrier;       /* under the lock; false: netlink said that the netdev's link is down */
};

/*
 * Opens every device and lists its ports with an Ethernet or InfiniBand link layer, also those that
 * are down. A device that can't be opened gets one WARN and is left out.
 * NCCL_IB_HCA limits the choice: "mlx5_0:1,mlx5_1" names begin so, "=…" exact, "^…" all but those;
 * an item is NAME:PORT:RAIL:PLANE. Devices are in the order of their PCI addresses (domain, bus,
 * device, function), those without at the end, all by name where that is equal; with
 * NCCL_IB_DEVICE_PCI_ORDER=0 as libibverbs lists them.
 * -ENODEV: no port is left (one log line says why), -EINVAL: bad environment, -ENOMEM.
 */
int sb_devices_open(const struct sb_verbs *verbs, struct sb_device ***devices, int *device_count,
		    struct sb_port ***ports, int *port_count);
/* All QPs, CQs and MRs must be gone. NULL is fine. */
void sb_devices_close(struct sb_device **devices, int device_count, struct sb_port **ports,
		      int port_count);

/*
 * Reads state, MTU, speed and LID again; looks the GID up again by value, since its index may have
 * moved, and chooses anew while the value is gone (an address often comes later than the link).
 * Sets `active`. 0: active. -ENETDOWN: the port isn't active. -ENODATA: active, but no GID fits
 * (not used). -EIO: the port can't be queried, or the device is dead. System calls only; never
 * waits.
 */
int sb_port_refresh(struct sb_port *port);
/* The same but for `active`, which is only for whoever tells the connections of its changes: a
 * change that somebody else makes would never be told. */
int sb_port_read(struct sb_port *port);
/* As netlink says; -ENETDOWN from sb_port_refresh() while it is false. */
void sb_port_set_carrier(struct sb_port *port, bool carrier);

/* The GID and its index; -1 and zeros where the port has none. */
int sb_port_gid(struct sb_port *port, union ibv_gid *gid);
void sb_port_attributes(struct sb_port *port, struct ibv_port_attr *attributes);
uint64_t sb_port_speed_mbps(struct sb_port *port);
/* "mlx5_0/1" */
void sb_port_name(const struct sb_port *port, char *text, size_t bytes);
/* GID as text: an IPv4-mapped one as a.b.c.d, else as an IPv6 address. */
void sb_gid_text(const union ibv_gid *gid, char *text, size_t bytes);

enum sb_device_event_kind {
	SB_DEVICE_PORT_DOWN,
	SB_DEVICE_PORT_UP,
	SB_DEVICE_GID_CHANGE, /* GID or LID: look it up again */
	SB_DEVICE_FATAL,      /* sets device->fatal */
	SB_DEVICE_QP_FATAL,   /* QP_FATAL, QP_REQ_ERR, QP_ACCESS_ERR */
	SB_DEVICE_CQ_ERROR,
	SB_DEVICE_OTHER
};
struct sb_device_event {
	enum sb_device_event_kind kind;
	enum ibv_event_type type;
	int port_number; /* port events: from 1; else 0 */
	uint32_t qp_num; /* QP events; else 0 */
};
/* One asynchronous event, acknowledged already. Never blocks: -EAGAIN when there is none; another
 * negative value when the device's event channel is broken. Call until -EAGAIN. */
int sb_device_next_event(struct sb_device *device, struct sb_device_event *event);
/* Port of this device with that number, or NULL. */
struct sb_port *sb_device_port(const struct sb_device *device, struct sb_port **ports,
			       int port_count, int number);

#endif
