/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin behind all API versions: v6.c to v12.c only translate to these calls.
 *
 * Devices: physical ones first (the active ports, in NCCL's order), then virtual ones in the order
 * of their making; an index stays valid for the life of the process. A virtual device is a bundle
 * of connections, one per member port (and per queue pair where NCCL_IB_QPS_PER_CONNECTION says
 * more than one), each with its own backups; every message is split over all of them.
 *
 * Results: while a path is left or may come back, nothing but NCCL_SUCCESS. Whatever fails for good
 * has been told by one WARN before the result is returned.
 * Threads: any; one comm belongs to one thread for isend, irecv, iflush and test, while another may
 * register memory with it.
 */
#ifndef PLUGIN_PLUGIN_H
#define PLUGIN_PLUGIN_H

#include "abi.h"
#include "net_v12.h"
#include "switchback.h"

#define PLUGIN_NAME "Switchback"

/* ---- log.c ---- */

/* NULL is ignored; the first one stays. Also takes libswitchback's lines. */
void plugin_log_set(nccl_logger logger);
void plugin_log(enum nccl_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
#define plugin_warn(...) plugin_log(NCCL_LOG_WARN, __VA_ARGS__)
#define plugin_info(...) plugin_log(NCCL_LOG_INFO, __VA_ARGS__)
/* 0 or -errno of libswitchback. */
enum nccl_result plugin_result(int status);

/* ---- incident.c: what an operator should hear although the job goes on ---- */

/* Before the first event; takes the ports' names. */
void plugin_incident_ports(struct sb_context *context);
/* sb_event_fn */
void plugin_incident(void *context, const struct sb_event *event);

/* ---- process.c: the context of libswitchback and who uses it ---- */

/* `context` (may be NULL) becomes the communicator's own, for plugin_finalize(). `config` may be
 * NULL. */
enum nccl_result plugin_init(void **context, const struct nccl_comm_config *config,
			     nccl_logger logger);
enum nccl_result plugin_finalize(void *context);
/* What a communicator wants, or NCCL_UNDEFINED; context may be NULL. */
int plugin_traffic_class(const void *context);
/* libswitchback's context, kept open until plugin_release(). NULL: not initialised. */
struct sb_context *plugin_hold(void);
void plugin_release(void);
/* A decimal environment variable; what is no number or out of range gets one WARN and `preset`. */
int plugin_setting(const char *name, int low, int high, int preset);

/* ---- device.c ---- */

#define PLUGIN_MEMBERS_MAX 8 /* of a virtual device; v12's limit */

/* Fills the table the first time, with one INFO line per device. Under the process's lock. */
int plugin_devices_fill(struct sb_context *context);
enum nccl_result plugin_devices(int *count);
/* Strings stay valid for the life of the process. */
enum nccl_result plugin_properties(int device, struct nccl_properties_v12 *properties);
enum nccl_result plugin_make_virtual(int *device, const int *members, int count);
/* Member ports of a device as libswitchback counts them now. INVALID_USAGE: no such device;
 * SYSTEM_ERROR: a port is gone from the machine. */
enum nccl_result plugin_device_ports(struct sb_context *context, int device,
				     int ports[PLUGIN_MEMBERS_MAX], int *count);

/* ---- connect.c ---- */

enum nccl_result plugin_listen(int device, void *handle, void **listener);
enum nccl_result plugin_connect(int device, int traffic_class, void *handle, void **send_comm);
enum nccl_result plugin_accept(void *listener, void **recv_comm);
enum nccl_result plugin_close_listen(void *listener);

/* ---- comm.c ---- */

/* Takes the connections (also on failure) and the caller's hold on the context. */
enum nccl_result plugin_comm_create(struct sb_connection *const *connections, int count,
				    int is_sender, void **comm);
enum nccl_result plugin_register(void *comm, void *data, size_t bytes, int type, void **memory);
enum nccl_result plugin_register_dmabuf(void *comm, void *data, size_t bytes, int type,
					uint64_t offset, int fd, void **memory);
enum nccl_result plugin_deregister(void *comm, void *memory);
enum nccl_result plugin_isend(void *comm, void *data, size_t bytes, int tag, void *memory,
			      void **request);
enum nccl_result plugin_irecv(void *comm, int n, void **data, const size_t *bytes, const int *tags,
			      void **memory, void **request);
enum nccl_result plugin_iflush(void *comm, int n, void **data, int *bytes, void **memory,
			       void **request);
enum nccl_result plugin_test(void *request, int *done, int *bytes);
enum nccl_result plugin_close_send(void *comm);
enum nccl_result plugin_close_recv(void *comm);

#endif
