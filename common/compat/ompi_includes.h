// SPDX-License-Identifier: BSD-3-Clause
//
// ompi_includes.h: the one place where Open MPI's internal headers enter C++.
//
// Every file of the components that needs Open MPI includes this header and no Open MPI header directly. It
//   - pulls in the C++ and system headers Open MPI's own would otherwise drag into the extern "C" block,
//   - wraps all of Open MPI in one extern "C" block (several of its headers lack BEGIN_C_DECLS and would come
//     out mangled),
//   - makes those of 4.1, 5.0 and 6.0 compile: each oddity is looked for, none is derived from a version.
// What differs in meaning has one name in ompi_release.h, that of devices in ompi_device.h; both come with
// this header. Headers that distributions leave out of their development package are rewritten in
// common/compat, which must stand on the include path *behind* Open MPI's own directories.
//
// Include path (all as -isystem, so that warnings in foreign headers stay silent):
//   <libdir>/openmpi/include/openmpi, <libdir>/openmpi/include, <top>/common/compat
// Flags: -DHAVE_CONFIG_H -mcx16 (x86-64) -pthread. Never define OPAL_ENABLE_DEBUG or OMPI_WANT_PERUSE: they
// change the layout of structs that libmpi was built with.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <event.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <hwloc.h>

// mpi.h would otherwise include the C++ bindings from inside extern "C".
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1

// Arrays of counts and displacements, whose inline functions are C only: they convert from void*. The
// components use none, but declarations name their types.
#if __has_include("opal/util/count_disp_array.h")
#define OPAL_UTIL_COUNT_DISP_ARRAY_H
#define OMPI_UTIL_COUNT_DISP_ARRAY_H
typedef intptr_t opal_count_array_t;
typedef intptr_t opal_disp_array_t;
typedef opal_count_array_t ompi_count_array_t;
typedef opal_disp_array_t ompi_disp_array_t;
#endif
#if !defined(_Static_assert)
#define _Static_assert static_assert
#endif

extern "C" {

#include "ompi_config.h"

#include "opal/class/opal_hash_table.h"

#if __has_include("opal/util/event.h")
#include "opal/util/event.h"
#if defined(BFO_OPAL_EVENT_H_UNBALANCED)
}  // it opens extern "C" twice and closes it once; configure detects it
#endif
#else
#include "opal/mca/event/event.h"
#endif

// request.h uses this macro with pointers to void where the functions below it are declared for other types.
#if __has_include("opal/mca/threads/thread_usage.h")
#include "opal/mca/threads/thread_usage.h"
#undef OPAL_THREAD_COMPARE_EXCHANGE_STRONG_PTR
#define OPAL_THREAD_COMPARE_EXCHANGE_STRONG_PTR(x, y, z) \
  opal_thread_compare_exchange_strong_ptr((opal_atomic_intptr_t*)(x), (intptr_t*)(y), (intptr_t)(z))
#else
#include "opal/threads/thread_usage.h"
#undef OPAL_THREAD_COMPARE_EXCHANGE_STRONG_PTR
#define OPAL_THREAD_COMPARE_EXCHANGE_STRONG_PTR(x, y, z) \
  opal_thread_compare_exchange_strong_ptr((volatile intptr_t*)(x), (void**)(y), (void*)(z))
#endif

// Some communicator.h pass void* where void** is declared.
#define opal_hash_table_get_value_ptr(t, k, s, v) (opal_hash_table_get_value_ptr)((t), (k), (s), (void**)(v))
#include "ompi/communicator/communicator.h"
#undef opal_hash_table_get_value_ptr

// opal: what both components use
#include "opal/align.h"
#include "opal/class/opal_bitmap.h"
#include "opal/class/opal_free_list.h"
#include "opal/class/opal_list.h"
#include "opal/class/opal_object.h"
#include "opal/constants.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/datatype/opal_datatype.h"
#include "opal/datatype/opal_datatype_internal.h"
#include "opal/mca/base/base.h"
#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#if __has_include("opal/mca/accelerator/base/base.h")
#include "opal/mca/accelerator/accelerator.h"
#include "opal/mca/accelerator/base/base.h"
#endif
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/base/btl_base_error.h"
#include "opal/mca/btl/btl.h"
#include "opal/mca/hwloc/base/base.h"
#include "opal/mca/mpool/base/base.h"
#include "opal/mca/mpool/mpool.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/mca/rcache/rcache.h"
#include "opal/memoryhooks/memory.h"
#if __has_include("opal/mca/pmix/pmix-internal.h")
#include "opal/mca/pmix/pmix-internal.h"
#else
#include "opal/mca/pmix/pmix.h"
#endif
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_params.h"
#include "opal/runtime/opal_progress.h"
#include "opal/runtime/opal_progress_threads.h"
#include "opal/util/argv.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"

// ompi: what the PML uses
#include "opal/mca/allocator/base/base.h"
#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/errhandler/errhandler.h"
#include "ompi/group/group.h"
#include "ompi/mca/bml/base/base.h"
#include "ompi/mca/bml/bml.h"
#include "ompi/mca/pml/base/base.h"
#include "ompi/mca/pml/base/pml_base_bsend.h"
#include "ompi/mca/pml/base/pml_base_recvreq.h"
#include "ompi/mca/pml/base/pml_base_sendreq.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/mca/pml/pml_constants.h"
#if __has_include("ompi/mca/rte/rte.h")
#include "ompi/mca/rte/rte.h"
#else
#include "ompi/runtime/ompi_rte.h"
#endif
#include "ompi/message/message.h"
#include "ompi/runtime/mpiruntime.h"
#include "ompi/runtime/params.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"

}  // extern "C"

#include "common/compat/ompi_device.h"
#include "common/compat/ompi_release.h"
