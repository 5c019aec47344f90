/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expat, loaded when the first topology file is read: the plugin lives in containers that may not
 * have it, and needs it only where somebody injects a file.
 */
#ifndef SB_TOPO_EXPAT_CALLS_H
#define SB_TOPO_EXPAT_CALLS_H

#include <expat.h>

struct sb_expat {
	XML_Parser (*create)(const XML_Char *encoding);
	void (*set_user_data)(XML_Parser parser, void *data);
	void (*set_element_handler)(XML_Parser parser, XML_StartElementHandler start,
				    XML_EndElementHandler end);
	void (*set_entity_handler)(XML_Parser parser, XML_EntityDeclHandler handler);
	enum XML_Status (*parse)(XML_Parser parser, const char *text, int bytes, int is_final);
	enum XML_Status (*stop)(XML_Parser parser, XML_Bool resumable);
	XML_Size (*line)(XML_Parser parser);
	enum XML_Error (*error_code)(XML_Parser parser);
	const XML_LChar *(*error_string)(enum XML_Error code);
	void (*free)(XML_Parser parser);
};

/* NULL after a log line: there is no libexpat.so.1. Any thread; loaded once, never unloaded. */
const struct sb_expat *sb_expat_load(void);

#endif
