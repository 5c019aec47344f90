/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts as network namespaces, as netns/rails.sh makes them: NAME-host0, NAME-host1, … and, in
 * SWITCHBACK_NETNS_STATE (/run/switchback-netns by default), the folder NAME with `config` (lines
 * hosts=N and device=KIND among others) and hostH.env, the environment of a process there
 * (NAME=VALUE lines).
 */
#ifndef SB_CLI_PERF_NETNS_H
#define SB_CLI_PERF_NETNS_H

#include <stdbool.h>
#include <stddef.h>

/* How many hosts there are, and whether their devices are simulated ones, of the fabric `name`.
 * -errno, with one line in `error`, when there are none of that name. */
int perf_netns_hosts(const char *name, bool *simulated, char *error, size_t bytes);

/*
 * Takes this process, which must have one thread, into the namespace of a host: its network, its
 * view of /sys and its environment. 0 or -errno with one line in `error`; -EPERM needs root.
 */
int perf_netns_enter(const char *name, int host, char *error, size_t bytes);

#endif
