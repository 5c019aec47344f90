/* SPDX-License-Identifier: Apache-2.0 */
/* Where the simulated fabric's libibverbs lies. */
#ifndef SB_CLI_VERBS_LIBRARY_H
#define SB_CLI_VERBS_LIBRARY_H

/* sim/libibverbs.so.1 beside the executable (a build folder), else in the installed library folder;
 * NULL: neither is there. The caller frees it. */
char *cli_simulated_verbs(void);

#endif
