/* SPDX-License-Identifier: MIT
 *
 * Lists and what is shown in another way than a value have no name in JSON: the commands write
 * them.
 */
#include "client/ctl/record_json.h"

#include "client/ctl/output.h"
#include "client/gpushm_query.h"
#include "proto/base/uuid.h"
#include "proto/words.h"

#include <string.h>

#include "records_table.h"

const struct record *const json_holder = &holder_record, *const json_stat = &stat_record,
			   *const json_pool = &pool_record, *const json_status = &status_record,
			   *const json_event = &logged_event_record,
			   *const json_reader = &stream_reader_record,
			   *const json_stream = &stream_info_record;

static bool any(const unsigned char *bytes, size_t n)
{
	while (n > 0 && !bytes[n - 1])
		n--;
	return n > 0;
}

/* Whether the member has a value; one of most types always has. */
static bool has_value(const struct record_field *f, const void *p)
{
	switch (f->type) {
	case RECORD_NAME:
	case RECORD_LABEL:
		return *(const char *)p;
	case RECORD_STRING:
	case RECORD_CODE:
		return **(const char *const *)p;
	case RECORD_ID0:
	case RECORD_TIME:
	case RECORD_PID0:
	case RECORD_STATEN:
	case RECORD_ACCESSN:
	case RECORD_UUID:
		return any(p, f->size);
	case RECORD_ORDINAL:
		return *(const int *)p >= 0;
	case RECORD_UIDN:
		return *(const uid_t *)p != (uid_t)-1;
	case RECORD_LIMIT:
		return *(const uint64_t *)p != GPUSHM_WAIT_FOREVER;
	default:
		return true;
	}
}

/* "uid" with "user", "owner_uid" with "owner", "gid" with "group"; no value: null both. */
static void write_owner(struct json *j, const struct record_field *f, const void *p, bool has)
{
	char key[32];
	const char *end = strstr(f->json, "_uid");

	snprintf(key, sizeof(key), "%.*s", end ? (int)(end - f->json) : 5,
		 end			 ? f->json
		 : f->type == RECORD_GID ? "group"
					 : "user");
	if (!has) {
		json_null(j, f->json);
		json_null(j, key);
		return;
	}
	json_uint(j, f->json, *(const uid_t *)p);
	json_string(j, key,
		    f->type == RECORD_GID ? output_group(*(const gid_t *)p)
					  : output_user(*(const uid_t *)p));
}

static void write_bytes(struct json *j, const struct record_field *f, const unsigned char *p)
{
	char text[4 + UUID_TEXT + 1] = "GPU-";

	if (f->type == RECORD_UUID)
		uuid_format(p, text + 4);
	for (size_t i = 0; f->type == RECORD_HEX16 && i < f->size; i++)
		snprintf(text + 2 * i, 3, "%02x", p[i]);
	json_string(j, f->json, text);
}

/* Numbers of 64 bits, by what they are. */
static void write_u64(struct json *j, const struct record_field *f, uint64_t value)
{
	switch (f->type) {
	case RECORD_ID:
	case RECORD_ID0:
		json_id(j, f->json, value);
		break;
	case RECORD_HEX:
		json_hex(j, f->json, value);
		break;
	case RECORD_TIME:
		json_time(j, f->json, value);
		break;
	case RECORD_NS:
		json_value(j, f->json, "%.6f", (double)value / 1e9);
		break;
	default:
		json_uint(j, f->json, value);
	}
}

static void write_value(struct json *j, const struct record_field *f, const void *p)
{
	switch (f->type) {
	case RECORD_NAME:
	case RECORD_TEXT:
	case RECORD_LABEL:
		json_string(j, f->json, p);
		break;
	case RECORD_STRING:
	case RECORD_CODE:
	case RECORD_TYPE:
		json_string(j, f->json, *(const char *const *)p);
		break;
	case RECORD_UUID:
	case RECORD_HEX16:
		write_bytes(j, f, p);
		break;
	case RECORD_BOOL:
		json_bool(j, f->json, *(const int *)p);
		break;
	case RECORD_MODE:
		json_value(j, f->json, "\"%04o\"", *(const mode_t *)p);
		break;
	case RECORD_INT:
	case RECORD_PID:
	case RECORD_PID0:
	case RECORD_ORDINAL:
		json_int(j, f->json, *(const int *)p);
		break;
	case RECORD_U32:
		json_uint(j, f->json, *(const uint32_t *)p);
		break;
	default:
		if (record_word(f->type, 0))
			json_string(j, f->json, record_word(f->type, *(const unsigned *)p));
		else
			write_u64(j, f, *(const uint64_t *)p);
	}
}

void json_record(struct json *j, const struct record *r, const void *s, bool omit)
{
	for (unsigned i = 0; i < r->n; i++) {
		const struct record_field *f = &r->fields[i];
		const void *p = record_at(s, f->at);
		bool has = record_has(f, s) && has_value(f, p);

		if (!f->json || (omit && !has))
			continue;
		if (f->type == RECORD_UID || f->type == RECORD_UIDN || f->type == RECORD_GID)
			write_owner(j, f, p, has);
		else if (has)
			write_value(j, f, p);
		else
			json_null(j, f->json);
	}
}
