/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "util/log.h"
#include "util/param.h"

static int read_int(const char *name, int low, int high, int *value)
{
	int64_t read = *value;
	int status = sb_param_int(name, low, high, &read);

	*value = (int)read;
	return status;
}

static int read_family(int *family)
{
	const char *text = getenv("NCCL_IB_ADDR_FAMILY");

	if (text == NULL || *text == '\0') {
		return 0;
	}
	if (strcmp(text, "AF_INET") == 0) {
		*family = AF_INET;
	} else if (strcmp(text, "AF_INET6") == 0) {
		*family = AF_INET6;
	} else {
		sb_error("NCCL_IB_ADDR_FAMILY=%s is neither AF_INET nor AF_INET6", text);
		return -EINVAL;
	}
	return 0;
}

/* "10.1.0.0/16" or "fd00::/8". NCCL goes on without a range that it can't read; so do we. */
static void read_range(struct sb_verbs_settings *settings)
{
	const char *text = getenv("NCCL_IB_ADDR_RANGE");
	char address[INET6_ADDRSTRLEN], rest;
	uint8_t range[16] = {[10] = 0xff, [11] = 0xff};
	int bits = -1, family, most;

	if (text == NULL || *text == '\0') {
		return;
	}
	if (sscanf(text, "%45[^/]/%d%c", address, &bits, &rest) != 2) {
		bits = -1;
	}
	family = bits >= 0 && strchr(address, ':') != NULL ? AF_INET6 : AF_INET;
	most = family == AF_INET ? 32 : 128;
	if (bits < 0 || bits > most ||
	    inet_pton(family, address, range + (family == AF_INET ? 12 : 0)) != 1 ||
	    (settings->address_family != 0 && settings->address_family != family)) {
		sb_warn("NCCL_IB_ADDR_RANGE=%s is no ADDRESS/BITS%s; going on without it", text,
			settings->address_family != 0 ? " of NCCL_IB_ADDR_FAMILY" : "");
		return;
	}
	memcpy(settings->range, range, sizeof(range));
	settings->range_bits = bits + 128 - most;
}

int sb_verbs_settings_read(struct sb_verbs_settings *settings)
{
	int status = 0;

	*settings = (struct sb_verbs_settings){
		.gid_index = -1,
		.roce_version = 2,
		.timeout = 18,
		.retry_count = 7,
		.service_level = -1,
		.traffic_class = -1,
		.pci_order = 1,
	};
	struct {
		const char *name;
		int low, high;
		int *value;
	} integers[] = {
		{"NCCL_IB_GID_INDEX", -1, 65535, &settings->gid_index},
		{"NCCL_IB_ROCE_VERSION_NUM", 1, 2, &settings->roce_version},
		/* 0 would mean to wait for ever */
		{"NCCL_IB_TIMEOUT", 1, 31, &settings->timeout},
		{"NCCL_IB_RETRY_CNT", 0, 7, &settings->retry_count},
		{"NCCL_IB_SL", -1, 15, &settings->service_level},
		{"NCCL_IB_TC", -1, 255, &settings->traffic_class},
		{"NCCL_IB_PKEY", 0, 65535, &settings->pkey_index},
		{"NCCL_IB_DEVICE_PCI_ORDER", 0, 1, &settings->pci_order},
		{"NCCL_IB_PCI_RELAXED_ORDERING", 0, 2, &settings->relaxed_ordering},
	};

	for (size_t i = 0; i < sizeof(integers) / sizeof(*integers); i++) {
		if (read_int(integers[i].name, integers[i].low, integers[i].high,
			     integers[i].value) != 0) {
			status = -EINVAL;
		}
	}
	if (read_family(&settings->address_family) != 0) {
		status = -EINVAL;
	}
	read_range(settings);
	if (settings->retry_count > 6) {
		settings->retry_count = 6;
	}
	return status;
}
