/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of this folder share: a simulated fabric of their own, connected pairs of
 * comms, and data that can be recognised. All waits have a deadline; what fails prints a line and
 * ends the process (nobody waits for a test that is stuck).
 */
#ifndef TESTS_NCCL_FIXTURE_H
#define TESTS_NCCL_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "fabric.h"
#include "net.h"

#define CHECK(condition, ...)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__);                 \
		}                                                                                  \
	} while (0)
_Noreturn void check_failed(const char *file, int line, const char *condition, const char *format,
			    ...) __attribute__((format(printf, 4, 5)));

double seconds_now(void);

/* Makes a fabric of this process's own name and puts it into the environment, with this build's
 * libibverbs and only loopback for control sockets. Removed at exit of this process. */
void fixture_fabric(const char *verbs_library, uint32_t hosts, uint32_t rails);
const char *fixture_fabric_name(void);
void fixture_fault(const char *ports, const char *how, const char *way);
void fixture_restore(const char *ports);

/* Gives sbr0, sbr1, … the PCI addresses, NULL at the end of the list, in a sysfs of this process's
 * own; removed at its exit or by the call. Without it they have none, like all that is simulated.
 */
void fixture_pci(const char *const *addresses);
void fixture_pci_remove(void);

struct ends {
	void *send, *recv;
	void *listener; /* NULL: closed */
};
/* Both ends in this process. */
void ends_open(const struct net *net, void *context, int device, struct ends *ends);
void ends_close(const struct net *net, struct ends *ends);

/* The byte at `offset` of message `number`. */
uint8_t pattern_byte(uint64_t number, size_t offset);
void pattern_fill(void *data, size_t bytes, uint64_t number);
/* Offset of the first byte that is wrong, or `bytes`. */
size_t pattern_check(const void *data, size_t bytes, uint64_t number);

/* Until done or the deadline of ten seconds; `bytes` as in test. */
void finish(const struct net *net, void *request, int *bytes);

#endif
