/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/expat_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "util/log.h"

static struct sb_expat calls;
static bool is_loaded;

static void load_once(void)
{
	const struct {
		void *place;
		const char *name;
	} symbols[] = {
		{&calls.create, "XML_ParserCreate"},
		{&calls.set_user_data, "XML_SetUserData"},
		{&calls.set_element_handler, "XML_SetElementHandler"},
		{&calls.set_entity_handler, "XML_SetEntityDeclHandler"},
		{&calls.parse, "XML_Parse"},
		{&calls.stop, "XML_StopParser"},
		{&calls.line, "XML_GetCurrentLineNumber"},
		{&calls.error_code, "XML_GetErrorCode"},
		{&calls.error_string, "XML_ErrorString"},
		{&calls.free, "XML_ParserFree"},
	};
	void *library = dlopen("libexpat.so.1", RTLD_NOW | RTLD_LOCAL);

	if (library == NULL) {
		sb_error("topology files can't be read: %s", dlerror());
		return;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *symbol = dlsym(library, symbols[i].name);

		if (symbol == NULL) {
			sb_error("topology files can't be read: %s", dlerror());
			dlclose(library);
			return;
		}
		memcpy(symbols[i].place, &symbol, sizeof(symbol));
	}
	is_loaded = true;
}

const struct sb_expat *sb_expat_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load_once);
	return is_loaded ? &calls : NULL;
}
