/* SPDX-License-Identifier: Apache-2.0 */
/* Where the simulated fabric's libibverbs lies. */
#ifndef SB_CLI_VERBS_LIBRARY_H
#define SB_CLI_VERBS_LIBRARY_H

/* sim/libibverbs.so.1 beside the executable (a build folder), else the one that was installed with
 * it. NULL after one line on standard error that begins with `who`. The caller frees it. */
char *cli_simulated_verbs(const char *who);

#endif
