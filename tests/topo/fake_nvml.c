/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 that tells what the file in FAKE_NVML says, one GPU a line:
 *   gpu BUSID SM GENERATION WIDTH [gpu|cpu|switch:BUSID*COUNT]… [c2c:COUNT*MBPS]
 * Calls and results as nvml.h of CUDA 12 has them; result 3 is "not supported".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX      16
#define LINKS_MAX     18
#define NOT_SUPPORTED 3
#define EXPORT        __attribute__((visibility("default")))

struct pci_info {
	char legacy_busid[16];
	unsigned int domain, bus, device, device_id, subsystem_id;
	char busid[32];
};

struct field_value {
	unsigned int field, scope;
	long long timestamp, latency;
	int type, result;
	union {
		double as_double;
		unsigned int as_uint;
		unsigned long long as_ulonglong;
	} value;
};

struct gpu {
	char busid[32];
	int sm;
	unsigned int generation, width;
	struct {
		char busid[32];
		int type;
	} links[LINKS_MAX];
	unsigned int link_count;
	unsigned int c2c_count, c2c_mbps;
};

static struct gpu gpus[GPUS_MAX];
static unsigned int gpu_count;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT const char *nvmlErrorString(int result);
EXPORT int nvmlDeviceGetCount_v2(unsigned int *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device);
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *pci);
EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned int *generation);
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned int *width);
EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned int link, int *active);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned int link,
					       struct pci_info *pci);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned int link, int *type);
EXPORT int nvmlDeviceGetFieldValues(void *device, int count, struct field_value *values);

static void read_word(struct gpu *gpu, const char *word)
{
	unsigned int count;
	unsigned int mbps;
	char kind[16];
	char busid[24];

	if (sscanf(word, "c2c:%u*%u", &count, &mbps) == 2) {
		gpu->c2c_count = count;
		gpu->c2c_mbps = mbps;
	} else if (sscanf(word, "%15[a-z]:%23[^*]*%u", kind, busid, &count) == 3) {
		while (count-- > 0 && gpu->link_count < LINKS_MAX) {
			snprintf(gpu->links[gpu->link_count].busid, sizeof(gpu->busid), "0000%s",
				 busid);
			gpu->links[gpu->link_count++].type = strcmp(kind, "gpu") == 0   ? 0
							     : strcmp(kind, "cpu") == 0 ? 1
											: 2;
		}
	}
}

int nvmlInit_v2(void)
{
	const char *path = getenv("FAKE_NVML");
	FILE *file = path != NULL ? fopen(path, "re") : NULL;
	char line[1024];

	gpu_count = 0;
	memset(gpus, 0, sizeof(gpus));
	if (file == NULL) {
		return 9; /* driver not loaded */
	}
	while (gpu_count < GPUS_MAX && fgets(line, sizeof(line), file) != NULL) {
		struct gpu *gpu = &gpus[gpu_count];
		char *rest = NULL;
		char *word;

		if (sscanf(line, "gpu %31s %d %u %u", gpu->busid, &gpu->sm, &gpu->generation,
			   &gpu->width) != 4) {
			continue;
		}
		for (word = strtok_r(line, " \n", &rest); word != NULL;
		     word = strtok_r(NULL, " \n", &rest)) {
			read_word(gpu, word);
		}
		gpu_count++;
	}
	fclose(file);
	return 0;
}

int nvmlShutdown(void)
{
	return 0;
}

const char *nvmlErrorString(int result)
{
	return result == 9 ? "Driver Not Loaded" : "Error";
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
	*count = gpu_count;
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
	*device = &gpus[index];
	return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *pci)
{
	const struct gpu *gpu = device;
	char busid[40];

	/* Eight digits of domain, capitals: as the real one. */
	snprintf(busid, sizeof(busid), "0000%s", gpu->busid);
	memset(pci, 0, sizeof(*pci));
	for (size_t i = 0; busid[i] != '\0' && i < sizeof(pci->busid) - 1; i++) {
		pci->busid[i] =
			busid[i] >= 'a' && busid[i] <= 'f' ? (char)(busid[i] - 32) : busid[i];
	}
	return 0;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
	const struct gpu *gpu = device;

	*major = gpu->sm / 10;
	*minor = gpu->sm % 10;
	return 0;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned int *generation)
{
	*generation = ((struct gpu *)device)->generation;
	return 0;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned int *width)
{
	*width = ((struct gpu *)device)->width;
	return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned int link, int *active)
{
	*active = link < ((struct gpu *)device)->link_count;
	return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned int link, struct pci_info *pci)
{
	const struct gpu *gpu = device;

	memset(pci, 0, sizeof(*pci));
	memcpy(pci->busid, gpu->links[link].busid, sizeof(pci->busid));
	return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned int link, int *type)
{
	*type = ((struct gpu *)device)->links[link].type;
	return 0;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct field_value *values)
{
	const struct gpu *gpu = device;

	for (int i = 0; i < count; i++) {
		values[i].result = gpu->c2c_count > 0 ? 0 : NOT_SUPPORTED;
		values[i].value.as_uint = values[i].field == 170 ? gpu->c2c_count : gpu->c2c_mbps;
	}
	return 0;
}
