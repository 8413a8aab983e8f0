// SPDX-License-Identifier: BSD-3-Clause
//
// device.h: one opened HCA: context, protection domain, eager memory, event mailbox. Shared by the ports of
// the device.
#pragma once

#include <cstdint>

#include "btl/verbs/engine/device/async.h"
#include "btl/verbs/engine/device/mr.h"
#include "btl/verbs/engine/device/verbs_api.h"

namespace bfo::engine {

/// An opened device. The event thread must be stopped before close().
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { close(); }

  /// Opens `device` and allocates a protection domain. All memory that the device writes data to is
  /// registered with `access` besides what its use needs: optional ibv_access_flags, which a device that does
  /// not know them ignores. False with errno; the object can be reused.
  bool open(const VerbsApi& api, ibv_device* device, int access = 0);
  /// Frees everything. Ports and user registrations must be gone. False when the device refused something (it
  /// is dying).
  bool close();
  /// A control verb does not return: close() must leave the device to the end of the process.
  void leave_open() { leave_open_ = true; }

  const VerbsApi& api() const { return *api_; }
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const ibv_device_attr& attr() const { return attr_; }
  const char* name() const { return name_; }
  /// Whether a READ that completes with success has brought its data. False for Linux soft-RoCE (rdma_rxe),
  /// known by its lack of a manufacturer's number: its completer (6.1, drivers/infiniband/sw/rxe/rxe_comp.c,
  /// state ERROR) takes a response it does not expect for an error of the READ, but reports that READ with
  /// SUCCESS, and flushes what is behind it. A retransmission time shorter than a response is enough. WRITEs
  /// and SENDs cannot come there with the status SUCCESS. False also for a device that takes no READ.
  bool reads() const;
  Arena& arena() { return arena_; }
  EventBox& events() { return events_; }

  /// Registers application memory with ibv_access_flags `access`. nullptr with errno.
  ibv_mr* register_memory(void* base, size_t size, int access) {
    return api_->reg_mr(pd_, base, size, access | access_);
  }
  int deregister_memory(ibv_mr* mr) { return api_->dereg_mr(mr); }

 private:
  const VerbsApi* api_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  int access_ = 0;
  ibv_device_attr attr_{};
  char name_[64] = {};
  bool leave_open_ = false;
  Arena arena_;
  EventBox events_;
};

}  // namespace bfo::engine
