/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/device.h"

#include <errno.h>
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
	if (settings->retry_count > 6) {
		settings->retry_count = 6;
	}
	return status;
}
