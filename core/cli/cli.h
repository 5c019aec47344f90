/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommands of `switchback`. Each gets "switchback NAME" as argv[0] and returns the exit
 * status: 0 all well and verified, 1 data wrong or a fault not survived, 2 usage or environment. An
 * error is one line on standard error that names the thing that is wrong.
 */
#ifndef SB_CLI_CLI_H
#define SB_CLI_CLI_H

enum cli_status { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

int cli_fabric(int argc, char **argv);
int cli_perf(int argc, char **argv);
int cli_devices(int argc, char **argv);
int cli_status_show(int argc, char **argv);
int cli_topo(int argc, char **argv);

#endif
