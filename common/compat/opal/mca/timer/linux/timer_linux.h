/* SPDX-License-Identifier: BSD-3-Clause
 *
 * timer_linux.h: stand-in for Open MPI's private Linux timer header, which its installed
 * opal/mca/timer/base/base.h includes and distributions do not ship. The components read
 * CLOCK_MONOTONIC themselves; only the type is needed.
 */
#ifndef BFO_COMPAT_TIMER_LINUX_H
#define BFO_COMPAT_TIMER_LINUX_H

#include "opal_config.h"
#include "opal/sys/timer.h"

#endif /* BFO_COMPAT_TIMER_LINUX_H */
