/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the part of /sys and /proc that a machine would have, in a new temporary folder, from a
 * short description. One line each, "#" begins a comment, values have no spaces except in "…":
 *
 *   host NAME                            proc/sys/kernel/hostname and boot_id
 *   cpu x86 VENDOR FAMILY MODEL | cpu arm | cpu power
 *   numa N MAP                           NUMA node with its CPU map
 *   dev PATH [FILE=VALUE]…               PCI device at devices/PATH; what is above it is made too
 *                                        physfn=BUSID makes the link of a virtual function
 *   ib NAME BUSID [guid=G] [port=N:RATE:STATE:LAYER]…
 *                                        RDMA device; BUSID "-": without PCI device
 *   net NAME BUSID                       network interface
 *   rxe NAME NETDEV                      RDMA device on top of it
 *   file PATH TEXT | link PATH TARGET | fifo PATH | folder PATH
 *                                        anything else below sys/, to make it odd
 */
#ifndef TESTS_TOPO_MACHINE_H
#define TESTS_TOPO_MACHINE_H

/* The folder, which has sys/ and proc/; removed and freed by machine_remove(). A bad description
 * or a full disk ends the program. */
char *machine_create(const char *description);
void machine_remove(char *folder);

#endif
