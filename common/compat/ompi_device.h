// SPDX-License-Identifier: BSD-3-Clause
//
// ompi_device.h: buffers in the memory of a device (GPU), which no load and no store of the processor may
// touch: how each release of Open MPI tells of them. Releases with the accelerator framework find them and
// copy from and to them; builds of 4.1 with CUDA let a convertor find them; others know none. Included by
// ompi_includes.h.
#pragma once

#include "common/compat/ompi_includes.h"

namespace bfo {

#if defined(MCA_ACCELERATOR_NO_DEVICE_ID)

/// Is there a framework by which such buffers are found and copied?
inline constexpr bool kStagesDevices = true;
/// Can such buffers only be found?
inline constexpr bool kRefusesDevices = false;
/// For a convertor: it is known already where its buffer is.
inline constexpr uint32_t kDeviceKnown = CONVERTOR_SKIP_ACCELERATOR_INIT;

/// The component that was chosen for the devices of this process.
inline const char* accelerator_name() {
  return opal_accelerator_base_selected_component.base_version.mca_component_name;
}
/// Is it another one than that for hosts without devices? Valid after opal_init().
inline bool has_accelerator() {
  return strcmp(accelerator_name(), "null") != 0;
}
inline bool on_device(const void* address) {
  int device = MCA_ACCELERATOR_NO_DEVICE_ID;
  uint64_t flags = 0;
  return opal_accelerator.check_addr(address, &device, &flags) > 0;
}
/// Where a convertor was prepared without kDeviceKnown: opal_convertor_need_buffers() does not say it.
inline bool on_device(const opal_convertor_t& conv) {
  return (conv.flags & CONVERTOR_ACCELERATOR) != 0;
}
/// Copies memory of which any part may be a device's. False: the framework could not. `move`: both parts may
/// overlap.
inline bool device_copy(void* to, const void* from, size_t n, bool move = false) {
  const auto copy = move ? opal_accelerator.mem_move : opal_accelerator.mem_copy;
  return copy(MCA_ACCELERATOR_NO_DEVICE_ID, MCA_ACCELERATOR_NO_DEVICE_ID, to, from, n,
              MCA_ACCELERATOR_TRANSFER_UNSPEC) == OPAL_SUCCESS;
}

#else

inline constexpr bool kStagesDevices = false;
inline constexpr bool kRefusesDevices = OPAL_CUDA_SUPPORT != 0;
inline constexpr uint32_t kDeviceKnown = 0;

inline const char* accelerator_name() {
  return kRefusesDevices ? "cuda" : "null";
}
inline bool has_accelerator() {
  return false;
}
/// Only a convertor can be asked, with a buffer of one byte.
inline bool on_device([[maybe_unused]] const void* address) {
#if OPAL_CUDA_SUPPORT
  opal_convertor_t conv;
  OBJ_CONSTRUCT(&conv, opal_convertor_t);
  opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &ompi_mpi_byte.dt.super, 1, address, 0,
                                           &conv);
  const bool device = (conv.flags & CONVERTOR_CUDA) != 0;
  OBJ_DESTRUCT(&conv);
  return device;
#else
  return false;
#endif
}
/// opal_convertor_need_buffers() says it.
inline bool on_device(const opal_convertor_t&) {
  return false;
}
inline bool device_copy(void*, const void*, size_t, bool = false) {
  return false;
}

#endif

/// For a convertor that is not constructed as an object: what it copies with, where it has that.
template <class Convertor>
void copy_as_usual(Convertor& conv) {
  if constexpr (requires { conv.cbmemcpy; })
    conv.cbmemcpy = static_cast<const Convertor&>(*ompi_mpi_local_convertor).cbmemcpy;
}

}  // namespace bfo
