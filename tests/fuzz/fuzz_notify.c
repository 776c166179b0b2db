/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a datagram to the keeper. What is read of one that is accepted fits together, and
 * one that is refused means nothing.
 */
#include "daemon/keeper/notify.h"
#include "proto/base/own.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static struct notification m;
	bool says;
	int r;

	if (size > NOTIFY_TEXT_MAX)
		return 0;
	memcpy(m.text, data, size);
	m.text[size] = '\0';
	m.len = size;
	r = notification_parse(&m);
	says = m.ready || m.reloading || m.stopping || m.status || m.alive || m.hung || m.store ||
	       m.forget || m.interval_us || m.name[0];
	assert(r == 0 || (r == -EBADMSG && !says));
	assert(!memchr(m.text, 0, size) || r < 0);
	assert(strlen(m.name) <= NOTIFY_NAME_MAX && !strpbrk(m.name, ":\n"));
	assert(!m.store || memmem(data, size, "FDSTORE=1", 9));
	assert(memcmp(m.text, data, size) == 0);
	return 0;
}
