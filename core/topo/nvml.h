/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU facts from NVIDIA's management library, loaded at run time where there is one.
 * Threads: one at a time per handle.
 */
#ifndef SB_TOPO_NVML_H
#define SB_TOPO_NVML_H

struct sb_nvml;

enum sb_nvml_remote { SB_NVML_REMOTE_GPU, SB_NVML_REMOTE_CPU, SB_NVML_REMOTE_SWITCH };

struct sb_nvml_link {
	char target[24]; /* bus id of the other end, or "fffffff:ffff:ff" */
	enum sb_nvml_remote remote;
	int count; /* links that lead there */
};

struct sb_nvml_gpu {
	int dev; /* index in the library's order */
	char busid[24];
	int sm;              /* compute capability, 90 for 9.0; 0 unknown */
	int link_generation; /* PCIe, as it runs now; 0 unknown */
	int link_width;      /* lanes; 0 unknown */
	struct sb_nvml_link *links;
	int link_count;
	int c2c_count; /* chip-to-chip links to the CPU; 0 none */
	int c2c_mbps;  /* MB/s of each */
};

/* NULL: no library, no driver, or no GPU that may be seen (one line at level info says which). */
struct sb_nvml *sb_nvml_open(void);
void sb_nvml_close(struct sb_nvml *nvml);

/* All GPUs, in the order of the library. Valid until sb_nvml_close(). */
int sb_nvml_gpus(const struct sb_nvml *nvml, const struct sb_nvml_gpu **gpus);

#endif
