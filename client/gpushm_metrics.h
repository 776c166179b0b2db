/* SPDX-License-Identifier: MIT
 *
 * What the daemon counts, for programs that watch it. gpushmctl metrics and gpushm-exporter(8) show
 * it as text. Errors, ownership and threads are as gpushm.h says.
 */
#ifndef GPUSHM_METRICS_H
#define GPUSHM_METRICS_H

#include <gpushm_records.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What the daemon counts beside gpushm_status(). Free *ret with gpushm_free(). Asks the daemon;
 * does not start the driver. */
int gpushm_metrics(struct gpushm *c, struct gpushm_metrics **ret);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
