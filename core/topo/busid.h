/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI bus ids ("0000:d3:00.0", domains of up to eight digits) and paths of PCI devices in sysfs
 * (…/pci0000:d0/0000:d0:01.0/0000:d1:00.0). Text only, nothing is read. Threads: any.
 */
#ifndef SB_TOPO_BUSID_H
#define SB_TOPO_BUSID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is the text of this length, as a whole, a bus id? */
bool sb_busid_valid(const char *text, size_t length);

/* All hexadecimal digits as one number: "0000:d3:00.0" is 0xd3000. The function is the last digit.
 * Returns false where the text is no bus id. */
bool sb_busid_parse(const char *text, int64_t *id);

/* The reverse, at least four digits of domain; `text` has room for 24 bytes. */
void sb_busid_format(int64_t id, char *text, size_t bytes);

enum sb_pci_relation { SB_PCI_SAME_SWITCH, SB_PCI_SAME_ROOT, SB_PCI_UNRELATED };

/* How two devices meet. *hops: elements of both paths beyond the common part. */
enum sb_pci_relation sb_pci_path_relation(const char *a, const char *b, int *hops);

/* Two functions of one device (or the same function)? */
bool sb_pci_path_same_device(const char *a, const char *b);

#endif
