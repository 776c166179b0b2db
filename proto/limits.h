/* SPDX-License-Identifier: MIT
 *
 * The limits that both sides of the protocol share. gpushm-protocol(7) names them.
 */
#pragma once

#define PROTOCOL_VERSION 1u

#define FRAME_MAX 65536u /* bytes of one datagram */
#define FRAME_FDS_MAX 2u /* memory or pool, table */
/* Bytes that one frame may unpack to. A DESCRIBE of the smallest arrays with a shape needs 13 times
 * its frame. A full frame of scalars needs more and is refused; libgpushm sends at most 1,024
 * arrays in a frame, which need far less. */
#define UNPACK_MAX (16u * FRAME_MAX)

#define BUFFER_NAME_MAX 255u /* bytes, without a NUL */
#define ARRAY_NAME_MAX 255u
#define POOL_NAME_MAX 63u
#define SOFTWARE_MAX 63u
#define DIMENSIONS_MAX 32u
#define DESCR_MAX 4096u		    /* bytes of a record's NumPy descr */
#define ARRAYS_MAX 262144u	    /* in one buffer */
#define ARRAYS_READ_DEFAULT 65536u  /* in a table that a client reads whose HELLO has no number */
#define TABLE_BYTES_MAX (64u << 20) /* of a buffer's table: names, shapes and descrs */
#define ATTR_BYTES_MAX 4096u	    /* keys and values of one buffer */
#define ATTRS_MAX 64u
#define POOLS_MAX 64u	 /* so that HELLO's reply fits a frame */
#define HOLDERS_MAX 64u	 /* listed for one buffer */
#define WATCHED_MAX 256u /* names and buffers in one WATCH */

#define DAEMON_ID_BYTES 16u
#define UUID_BYTES 16u
#define RECORD_BYTES 64u /* CUmemPoolPtrExportData */

/* The alignment of a data pointer in DLPack; gpushm_layout() uses it. */
#define ARRAY_ALIGN 256u

_Static_assert(DESCR_MAX + 1024u < FRAME_MAX, "an array with the longest descr fits a frame");
_Static_assert(BUFFER_NAME_MAX + 2u * ATTR_BYTES_MAX + 1024u < FRAME_MAX, "CREATE fits a frame");
_Static_assert(POOLS_MAX * 896u < FRAME_MAX, "POOLS fits a frame: a pool has at most 896 bytes");
