/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events as JSON lines: one object per event in the file that SWITCHBACK_EVENTS names (appended;
 * several processes may share it), and as one line at level info through the caller's logger.
 *
 * {"time_ns":…,"pid":…,"event":"failover","connection":"00a1…","end":"receiver","path":1,"port":3,
 *  "incarnation":1,"epoch":2,"count":0,"cause":"…"}      time_ns is CLOCK_MONOTONIC
 *
 * Threads: any. sb_event_log_write costs one write(2); events are rare and never on the data path.
 */
#ifndef SB_STATS_EVENT_LOG_H
#define SB_STATS_EVENT_LOG_H

#include "switchback.h"

#define SB_EVENT_KINDS (SB_EVENT_ERROR + 1)

/* "suspect", "fenced", … ; "unknown" for what is none. */
const char *sb_event_name(enum sb_event_kind kind);

/* *fd: the log, or -1 where SWITCHBACK_EVENTS is not set. -errno: it can't be opened, and one log
 * line has named it. The caller closes it. */
int sb_event_log_open(int *fd);
/* fd -1: the logger only. */
void sb_event_log_write(int fd, const struct sb_event *event);

#endif
