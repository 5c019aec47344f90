/* SPDX-License-Identifier: Apache-2.0 */
/* A fabric's state in this process's memory only, for worlds: the same faults in the same words. */
#ifndef SIM_FAULT_LOCAL_H
#define SIM_FAULT_LOCAL_H

#include "state.h"

/* NULL without memory. Addresses are 127.0.HOST+1.RAIL+1. Ended by fabric_local_free(). */
struct fabric *fabric_local_create(uint32_t hosts, uint32_t rails);
void fabric_local_free(struct fabric *fabric);

#endif
