// SPDX-License-Identifier: BSD-3-Clause
//
// class_sizes.h: for common/built_for.h: the release that a component is compiled for, and the classes of
// Open MPI whose objects it reads.
#pragma once

#include <array>

#include "common/built_for.h"
#include "common/compat/ompi_includes.h"

namespace bfo {

// A class of Open MPI, as compiled here and as the library that runs describes it. The description itself has
// been the same since 1.7.
#define BFO_CLASS_SIZE(type)                         \
  ClassSize {                                        \
#type, sizeof(type), OBJ_CLASS(type)->cls_sizeof \
  }

inline std::string built_for() {
  return decimal(OMPI_MAJOR_VERSION) + "." + decimal(OMPI_MINOR_VERSION) + "." +
         decimal(OMPI_RELEASE_VERSION);
}

/// Those of libopen-pal.
inline auto opal_class_sizes() {
  return std::array{BFO_CLASS_SIZE(opal_object_t),
                    BFO_CLASS_SIZE(opal_list_t),
                    BFO_CLASS_SIZE(opal_list_item_t),
                    BFO_CLASS_SIZE(opal_free_list_t),
                    BFO_CLASS_SIZE(opal_free_list_item_t),
                    BFO_CLASS_SIZE(opal_mutex_t),
                    BFO_CLASS_SIZE(opal_convertor_t),
                    BFO_CLASS_SIZE(opal_datatype_t),
                    BFO_CLASS_SIZE(opal_proc_t),
                    BFO_CLASS_SIZE(opal_bitmap_t),
                    BFO_CLASS_SIZE(opal_hash_table_t),
                    BFO_CLASS_SIZE(opal_pointer_array_t),
                    BFO_CLASS_SIZE(mca_btl_base_descriptor_t),
                    BFO_CLASS_SIZE(mca_rcache_base_registration_t)};
}

}  // namespace bfo
