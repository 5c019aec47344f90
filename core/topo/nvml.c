/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few calls that are needed, declared here so that nothing of NVIDIA's is needed to build.
 * Layout of nvmlPciInfo_t and nvmlFieldValue_t and the field numbers: nvml.h of CUDA 12.
 */
#include "topo/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

#define NVSWITCH_TARGET "fffffff:ffff:ff"

#define FIELD_C2C_LINK_COUNT  170
#define FIELD_C2C_LINK_MAX_BW 172

#define REMOTE_GPU 0
#define REMOTE_CPU 1 /* IBM's NPU: NVLink to a POWER CPU */

typedef void *nvml_device;

struct pci_info {
	char legacy_busid[16];
	unsigned int domain, bus, device, device_id, subsystem_id;
	char busid[32];
};

struct field_value {
	unsigned int field;
	unsigned int scope;
	long long timestamp;
	long long latency;
	int type;
	int result;
	union {
		double as_double;
		unsigned int as_uint;
		unsigned long as_ulong;
		unsigned long long as_ulonglong;
	} value;
};

struct calls {
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error_string)(int);
	int (*count)(unsigned int *);
	int (*by_index)(unsigned int, nvml_device *);
	int (*pci)(nvml_device, struct pci_info *);
	int (*capability)(nvml_device, int *, int *);
	int (*generation)(nvml_device, unsigned int *);
	int (*width)(nvml_device, unsigned int *);
	int (*link_state)(nvml_device, unsigned int, int *);
	int (*link_remote)(nvml_device, unsigned int, struct pci_info *);
	int (*link_type)(nvml_device, unsigned int, int *); /* may be missing */
	int (*fields)(nvml_device, int, struct field_value *);
};

struct sb_nvml {
	void *library;
	struct calls calls;
	struct sb_nvml_gpu *gpus;
	int count;
};

static bool load_calls(void *library, struct calls *calls)
{
	const struct {
		void *place;
		const char *name;
		bool optional;
	} symbols[] = {
		{&calls->init, "nvmlInit_v2", false},
		{&calls->shutdown, "nvmlShutdown", false},
		{&calls->error_string, "nvmlErrorString", false},
		{&calls->count, "nvmlDeviceGetCount_v2", false},
		{&calls->by_index, "nvmlDeviceGetHandleByIndex_v2", false},
		{&calls->pci, "nvmlDeviceGetPciInfo_v3", false},
		{&calls->capability, "nvmlDeviceGetCudaComputeCapability", false},
		{&calls->generation, "nvmlDeviceGetCurrPcieLinkGeneration", false},
		{&calls->width, "nvmlDeviceGetCurrPcieLinkWidth", false},
		{&calls->link_state, "nvmlDeviceGetNvLinkState", false},
		{&calls->link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", false},
		{&calls->link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", true},
		{&calls->fields, "nvmlDeviceGetFieldValues", true},
	};

	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *symbol = dlsym(library, symbols[i].name);

		if (symbol == NULL && !symbols[i].optional) {
			sb_info("NVML has no %s, so nothing is asked of it", symbols[i].name);
			return false;
		}
		memcpy(symbols[i].place, &symbol, sizeof(symbol));
	}
	return true;
}

/* NVML writes eight digits of domain, sysfs four. */
static void shorten_busid(const char *long_form, char *busid, size_t bytes)
{
	if (strlen(long_form) > 12 && strncmp(long_form, "0000", 4) == 0) {
		long_form += 4;
	}
	snprintf(busid, bytes, "%.23s", long_form);
	for (char *c = busid; *c != '\0'; c++) {
		*c = (char)tolower((unsigned char)*c);
	}
}

/* Links probed, by compute capability. */
static unsigned int link_limit(int sm)
{
	if (sm < 60) {
		return 0;
	}
	if (sm < 70) {
		return 4;
	}
	if (sm < 80) {
		return 6;
	}
	return sm < 90 ? 12 : 18;
}

static int count_link(struct sb_nvml_gpu *gpu, const char *target, enum sb_nvml_remote remote)
{
	struct sb_nvml_link *grown;

	for (int i = 0; i < gpu->link_count; i++) {
		if (strcmp(gpu->links[i].target, target) == 0) {
			gpu->links[i].count++;
			return 0;
		}
	}
	grown = realloc(gpu->links, ((size_t)gpu->link_count + 1) * sizeof(*grown));
	if (grown == NULL) {
		return -1;
	}
	gpu->links = grown;
	grown += gpu->link_count++;
	*grown = (struct sb_nvml_link){.remote = remote, .count = 1};
	snprintf(grown->target, sizeof(grown->target), "%s", target);
	return 0;
}

/* Without the call that tells it, a target that is no GPU of this host is taken for a switch. */
static enum sb_nvml_remote remote_kind(const struct sb_nvml *nvml, nvml_device device,
				       unsigned int link, const char *target)
{
	int type;

	if (nvml->calls.link_type != NULL && nvml->calls.link_type(device, link, &type) == 0) {
		if (type == REMOTE_GPU) {
			return SB_NVML_REMOTE_GPU;
		}
		return type == REMOTE_CPU ? SB_NVML_REMOTE_CPU : SB_NVML_REMOTE_SWITCH;
	}
	for (int i = 0; i < nvml->count; i++) {
		if (strcmp(nvml->gpus[i].busid, target) == 0) {
			return SB_NVML_REMOTE_GPU;
		}
	}
	return SB_NVML_REMOTE_SWITCH;
}

static void read_links(const struct sb_nvml *nvml, nvml_device device, struct sb_nvml_gpu *gpu)
{
	for (unsigned int link = 0; link < link_limit(gpu->sm); link++) {
		struct pci_info remote = {{0}, 0, 0, 0, 0, 0, {0}};
		char target[24];
		int active = 0;

		if (nvml->calls.link_state(device, link, &active) != 0 || !active) {
			continue;
		}
		if (nvml->calls.link_remote(device, link, &remote) != 0) {
			continue;
		}
		remote.busid[sizeof(remote.busid) - 1] = '\0';
		shorten_busid(remote.busid, target, sizeof(target));
		if (strncmp(target, "fffffff", 7) == 0 || strncmp(target, "ffff:", 5) == 0) {
			snprintf(target, sizeof(target), "%s", NVSWITCH_TARGET);
		}
		if (count_link(gpu, target, remote_kind(nvml, device, link, target)) != 0) {
			return;
		}
	}
}

static void read_c2c(const struct sb_nvml *nvml, nvml_device device, struct sb_nvml_gpu *gpu)
{
	struct field_value values[] = {{.field = FIELD_C2C_LINK_COUNT},
				       {.field = FIELD_C2C_LINK_MAX_BW}};

	if (nvml->calls.fields == NULL || nvml->calls.fields(device, 2, values) != 0 ||
	    values[0].result != 0 || values[1].result != 0) {
		return;
	}
	gpu->c2c_count = (int)values[0].value.as_uint;
	gpu->c2c_mbps = (int)values[1].value.as_uint;
}

static void read_gpu(const struct sb_nvml *nvml, nvml_device device, struct sb_nvml_gpu *gpu)
{
	unsigned int number;
	int major;
	int minor;

	if (nvml->calls.capability(device, &major, &minor) == 0) {
		gpu->sm = 10 * major + minor;
	}
	if (nvml->calls.generation(device, &number) == 0) {
		gpu->link_generation = (int)number;
	}
	if (nvml->calls.width(device, &number) == 0) {
		gpu->link_width = (int)number;
	}
	read_links(nvml, device, gpu);
	read_c2c(nvml, device, gpu);
}

static bool read_all(struct sb_nvml *nvml)
{
	unsigned int count = 0;
	nvml_device device;
	int result = nvml->calls.count(&count);

	if (result != 0 || count == 0) {
		sb_info("NVML sees no GPU: %s", nvml->calls.error_string(result));
		return false;
	}
	nvml->gpus = calloc(count, sizeof(*nvml->gpus));
	if (nvml->gpus == NULL) {
		return false;
	}
	/* Bus ids first: links are told apart by them. */
	for (unsigned int i = 0; i < count; i++) {
		struct pci_info pci;

		nvml->gpus[i].dev = (int)i;
		if (nvml->calls.by_index(i, &device) == 0 && nvml->calls.pci(device, &pci) == 0) {
			pci.busid[sizeof(pci.busid) - 1] = '\0';
			shorten_busid(pci.busid, nvml->gpus[i].busid, sizeof(nvml->gpus[i].busid));
		}
	}
	nvml->count = (int)count;
	for (unsigned int i = 0; i < count; i++) {
		if (nvml->calls.by_index(i, &device) == 0) {
			read_gpu(nvml, device, &nvml->gpus[i]);
		}
	}
	return true;
}

struct sb_nvml *sb_nvml_open(void)
{
	struct sb_nvml *nvml = calloc(1, sizeof(*nvml));
	int result;

	if (nvml == NULL) {
		return NULL;
	}
	nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (nvml->library == NULL) {
		sb_info("no NVML here: %s", dlerror());
		free(nvml);
		return NULL;
	}
	if (!load_calls(nvml->library, &nvml->calls)) {
		dlclose(nvml->library);
		free(nvml);
		return NULL;
	}
	result = nvml->calls.init();
	if (result != 0) {
		sb_info("NVML doesn't start: %s", nvml->calls.error_string(result));
		dlclose(nvml->library);
		free(nvml);
		return NULL;
	}
	if (!read_all(nvml)) {
		sb_nvml_close(nvml);
		return NULL;
	}
	return nvml;
}

void sb_nvml_close(struct sb_nvml *nvml)
{
	if (nvml == NULL) {
		return;
	}
	for (int i = 0; i < nvml->count; i++) {
		free(nvml->gpus[i].links);
	}
	free(nvml->gpus);
	nvml->calls.shutdown();
	dlclose(nvml->library);
	free(nvml);
}

int sb_nvml_gpus(const struct sb_nvml *nvml, const struct sb_nvml_gpu **gpus)
{
	*gpus = nvml->gpus;
	return nvml->count;
}
