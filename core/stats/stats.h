/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a context tells the outside: its events (event_log.h) and its counters (counters.h). Neither
 * may ever hurt the application: a file that can't be made is a log line, not an error.
 *
 * Threads: any, except that a connection must not be destroyed before it was removed here.
 */
#ifndef SB_STATS_STATS_H
#define SB_STATS_STATS_H

#include "switchback.h"

#define SB_STATS_PERIOD_MS 200 /* counters are this old at most */

struct sb_stats;

/* The context's ports must be known already. -EINVAL: SWITCHBACK_EVENTS can't be written (a bad
 * value of the environment, named in the log). */
int sb_stats_open(const struct sb_context *context, struct sb_stats **stats);
/* Removes the file. NULL is fine. */
void sb_stats_close(struct sb_stats *stats);

void sb_stats_connection_add(struct sb_stats *stats, const struct sb_connection *connection);
void sb_stats_connection_remove(struct sb_stats *stats, const struct sb_connection *connection);

void sb_stats_event(struct sb_stats *stats, const struct sb_event *event);

/* Publishes the counters if SB_STATS_PERIOD_MS has passed; called by the monitor about that often.
 */
void sb_stats_tick(struct sb_stats *stats, uint64_t now_ns);

#endif
