/* SPDX-License-Identifier: MIT
 *
 * NumPy's descr: the Python literal that says what an element is. "'<f4'", or for records a list
 * such as "[('id', '<i8'), ('box', '<f4', (2, 2)), ('', '|V4')]".
 */
#ifndef GPUSHM_CLIENT_CTL_DESCR_H
#define GPUSHM_CLIENT_CTL_DESCR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A place in a text that is read from left to right. */
struct scan {
	const char *p, *end;
	const char *wrong; /* static text: why the last call failed */
};

/* Each skips blanks, then takes what its name says, or fails. */
bool scan_char(struct scan *s, char c); /* false, nothing taken and wrong as it was: another one */
int scan_string(struct scan *s, const char **ret, size_t *ret_len); /* between the quotes, raw */
int scan_int(struct scan *s, int64_t *ret);			    /* 0 or more */
int scan_bool(struct scan *s, bool *ret);
/* "()", "(3,)", "(3, 4)". -ENOTSUP above max. */
int scan_tuple(struct scan *s, int64_t *ret, uint32_t max, uint32_t *ret_n);

/* Takes a descr. *ret_itemsize is its element's size in bytes; *ret_plain: a string alone, not a
 * list. 0; -EINVAL; -ENOTSUP (objects, bit fields); -EOVERFLOW above 4 GiB. */
int scan_descr(struct scan *s, uint64_t *ret_itemsize, bool *ret_plain);

/* Whether the text is one whole descr for elements of that size. */
bool descr_fits(const char *text, size_t len, uint64_t itemsize);

#endif
