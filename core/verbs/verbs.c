/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

#define DEFAULT_LIBRARY "libibverbs.so.1"

struct symbol {
	const char *name;
	size_t offset; /* of the pointer in struct sb_verbs */
	bool required;
};

#define SYMBOL_REQUIRED(member, symbol, result, arguments)                                         \
	{#symbol, offsetof(struct sb_verbs, member), true},
#define SYMBOL_OPTIONAL(member, symbol, result, arguments)                                         \
	{#symbol, offsetof(struct sb_verbs, member), false},
static const struct symbol symbols[] = {SB_VERBS_REQUIRED(SYMBOL_REQUIRED)
						SB_VERBS_OPTIONAL(SYMBOL_OPTIONAL)};

/* Old entry points (IBVERBS_1.0) take other structs, so the version is asked for by name; dlsym
 * gives the default version of those that came later. */
static void *find_symbol(void *library, const char *name)
{
	void *found = dlvsym(library, name, "IBVERBS_1.1");

	return found != NULL ? found : dlsym(library, name);
}

int sb_verbs_load(const char *library, struct sb_verbs *verbs)
{
	const char *source = "";
	const char *name = library;

	memset(verbs, 0, sizeof(*verbs));
	if (name == NULL) {
		name = getenv("SWITCHBACK_VERBS");
		source = "SWITCHBACK_VERBS: ";
	}
	if (name == NULL || *name == '\0') {
		name = DEFAULT_LIBRARY;
		source = "";
	}
	verbs->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (verbs->library == NULL) {
		sb_error("%scan't load the verbs library %s: %s", source, name, dlerror());
		return -ENOENT;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		void *found = find_symbol(verbs->library, symbols[i].name);

		if (found == NULL && symbols[i].required) {
			sb_error("%sthe verbs library %s lacks %s", source, name, symbols[i].name);
			dlclose(verbs->library);
			memset(verbs, 0, sizeof(*verbs));
			return -ENOENT;
		}
		memcpy((char *)verbs + symbols[i].offset, &found, sizeof(found));
	}
	return 0;
}

void sb_verbs_unload(struct sb_verbs *verbs)
{
	memset(verbs, 0, sizeof(*verbs));
}

int sb_verbs_query_port(const struct sb_verbs *verbs, struct ibv_context *context, uint8_t port,
			struct ibv_port_attr *attributes)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, query_port);

	memset(attributes, 0, sizeof(*attributes));
	if (extended != NULL) {
		return extended->query_port(context, port, attributes, sizeof(*attributes));
	}
	return verbs->query_port_compat(context, port, (struct _compat_ibv_port_attr *)attributes);
}
