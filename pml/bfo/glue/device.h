// SPDX-License-Identifier: BSD-3-Clause
//
// device.h: messages whose buffer is in the memory of a device (GPU). Each is asked about where its buffer
// enters: a send when it goes without a request, or else when its request is made, a receive when it is
// matched. Its bytes are staged: a Cursor (layout.h) copies them between the buffer and a fragment by Open
// MPI's accelerator framework. No BTL, key or convertor ever gets the address.
#pragma once

#include "pml/bfo/glue/component.h"

namespace bfo::glue {

/// Address of the first byte that is sent or received; the buffer may be MPI_BOTTOM.
inline const void* first_byte(const void* buffer, const opal_datatype_t& type) {
  return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(buffer) +
                                       static_cast<uintptr_t>(type.true_lb));
}

/// Has the message, which is not empty, a buffer that is to be staged? Nobody is asked where Open MPI chose
/// no accelerator.
inline bool is_staged([[maybe_unused]] const void* buffer, [[maybe_unused]] const opal_datatype_t& type) {
  if constexpr (kStagesDevices) {
    if (mca_pml_bfo_component.devices) [[unlikely]]
      return on_device(first_byte(buffer, type));
  }
  return false;
}

/// Says that buffers of a device are not supported. Returns the MPI error of the call.
int refuse_device_buffer();

/// MPI_SUCCESS, or the error of a call whose buffer can neither be read by the processor nor be staged.
inline int check_buffer([[maybe_unused]] const void* buffer, [[maybe_unused]] size_t count,
                        [[maybe_unused]] const ompi_datatype_t& type) {
  if constexpr (kRefusesDevices) {
    if (count != 0 && type.super.size != 0 && on_device(first_byte(buffer, type.super))) [[unlikely]]
      return refuse_device_buffer();
  }
  return MPI_SUCCESS;
}

/// The framework could not read a buffer of which a peer waits for the bytes: ends the job.
[[noreturn]] void device_unreadable(size_t bytes);

}  // namespace bfo::glue
