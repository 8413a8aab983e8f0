// SPDX-License-Identifier: BSD-3-Clause
//
// device.cc: see device.h.
#include "btl/verbs/engine/device/device.h"

#include <cerrno>
#include <cstdio>

namespace bfo::engine {

bool Device::open(const VerbsApi& api, ibv_device* device, int access) {
  api_ = &api;
  snprintf(name_, sizeof name_, "%s", api.get_device_name(device));
  context_ = api.open_device(device);
  if (context_ == nullptr) return false;
  const int rc = api.query_device(context_, &attr_);
  if (rc == 0) pd_ = api.alloc_pd(context_);
  if (pd_ == nullptr) {
    const int saved = rc != 0 ? rc : errno;
    close();
    errno = saved;
    return false;
  }
  access_ = access;
  arena_.open(api, pd_, access);
  return true;
}

bool Device::reads() const {
  constexpr uint32_t kNoVendor = 0xffffff;  // 0 in old kernels
  return attr_.max_qp_rd_atom > 0 && attr_.vendor_id != 0 && attr_.vendor_id != kNoVendor;
}

bool Device::close() {
  if (leave_open_) {
    pd_ = nullptr;
    context_ = nullptr;
    return false;
  }
  bool clean = true;
  if (pd_ != nullptr) {
    clean = arena_.close();
    clean = api_->dealloc_pd(pd_) == 0 && clean;
    pd_ = nullptr;
  }
  if (context_ != nullptr) clean = api_->close_device(context_) == 0 && clean;
  context_ = nullptr;
  return clean;
}

}  // namespace bfo::engine
