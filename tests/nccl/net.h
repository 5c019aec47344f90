/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network plugin as NCCL sees it, whatever its API version: loaded with dlopen, found by its
 * symbol, called through the table of exactly that version. Any plugin will do, not only ours.
 * Errors: NCCL's results, as the plugin returned them; net_load() returns 0 or -errno and says why
 * on standard error. Sizes beyond what an old version can express are refused.
 */
#ifndef TESTS_NCCL_NET_H
#define TESTS_NCCL_NET_H

#include <stdbool.h>

#include "abi.h"
#include "net_v12.h"

#define NET_FIRST 6
#define NET_LAST  12

struct net {
	int version;
	void *library;
	const void *table;
	const char *name;
	void *profiler_handle; /* given as phandle from v10 on: must be ignored cleanly */
};

int net_load(const char *path, int version, struct net *net);

/* One communicator; *context is NULL before v11. */
enum nccl_result net_init(const struct net *net, int traffic_class, void **context);
enum nccl_result net_finalize(const struct net *net, void *context);
enum nccl_result net_devices(const struct net *net, int *count);
/* Members that a version lacks are 0. */
enum nccl_result net_properties(const struct net *net, int device,
				struct nccl_properties_v12 *properties);
/* INVALID_USAGE before v9. */
enum nccl_result net_make_virtual(const struct net *net, int *device, const int *members,
				  int count);
enum nccl_result net_set_attributes(const struct net *net, void *context);

enum nccl_result net_listen(const struct net *net, void *context, int device, void *handle,
			    void **listener);
enum nccl_result net_connect(const struct net *net, void *context, int device, void *handle,
			     void **comm);
enum nccl_result net_accept(const struct net *net, void *listener, void **comm);
enum nccl_result net_register(const struct net *net, void *comm, void *data, size_t bytes, int type,
			      void **memory);
enum nccl_result net_deregister(const struct net *net, void *comm, void *memory);
enum nccl_result net_isend(const struct net *net, void *comm, void *data, size_t bytes, int tag,
			   void *memory, void **request);
/* `optional`: asks as NCCL does for its LL protocols that the size need not be reported. */
enum nccl_result net_irecv(const struct net *net, void *comm, int n, void **data, size_t *bytes,
			   int *tags, void **memory, bool optional, void **request);
enum nccl_result net_iflush(const struct net *net, void *comm, int n, void **data, int *bytes,
			    void **memory, void **request);
enum nccl_result net_test(const struct net *net, void *request, int *done, int *bytes);
enum nccl_result net_close_send(const struct net *net, void *comm);
enum nccl_result net_close_recv(const struct net *net, void *comm);
enum nccl_result net_close_listen(const struct net *net, void *listener);

/* Lines of level WARN that the plugin has logged so far. */
int net_warnings(void);
/* Whether a line of any level held the words; the first LINES_BYTES are kept. */
bool net_logged(const char *words);
/* Also print what it logs. */
void net_log_verbose(bool on);

#endif
