/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of settings share: a process of its own with an environment of its own for each.
 */
#ifndef TESTS_NCCL_SETTINGS_H
#define TESTS_NCCL_SETTINGS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fixture.h"

struct machine {
	struct net net;
	void *context;
	enum nccl_result init;
	int devices; /* -1: init failed */
};

typedef void (*check_fn)(struct machine *machine);

/* Loads and initialises the plugin in a new process, whose end is checked too. `environment`:
 * "NAME=VALUE" up to NULL. */
void in_process(check_fn check, const char *const *environment);
#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- checks that several files use ---- */

struct nccl_properties_v12 properties_of(struct machine *machine, int device);
void is_named(struct machine *machine, int device, const char *name);
void both(struct machine *machine); /* sbr0 and sbr1, in this order */
void carries_data(struct machine *machine, int device);

/* settings_data.c */
void test_data_settings(void **state);
void test_ipv6(void **state);
/* settings_pci.c */
int make_machine(void **state);
int remove_machine(void **state);
void test_pci(void **state);
void test_no_pci(void **state);

#endif
