// SPDX-License-Identifier: BSD-3-Clause
//
// long_path.h: the functions of the glue that every long message calls once: its buffer, registrations and
// READs. They are inline, so that the compiler merges them with the engine's code. Included by hot_path.h
// only.
#pragma once

#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/one_thread.h"

namespace bfo::glue {

inline FragRecord* BtlPort::frag_alloc() {
  FragRecord* frag = reinterpret_cast<FragRecord*>(take_item(frags_));
  if (frag == nullptr) [[unlikely]]
    return nullptr;
  frag->module = &module_;
  return frag;
}

inline void BtlPort::frag_free(FragRecord& frag) {
  give_item(frags_, frag.super);
}

/// With a header only: the convertor is not looked at.
inline bool BtlPort::sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                           SendRequest& req, size_t length) {
  opal_convertor_t* conv = &req.base.req_base.req_convertor;
  if (length > 0 && is_staged(req)) [[unlikely]]
    return send_staged(rail, tag, hdr, hdr_size, Layout(*conv, true), length);
  size_t position = 0;
  if (length > 0) opal_convertor_set_position(conv, &position);
  return sendi_convertor(rail, tag, hdr, hdr_size, conv, length);
}

inline void* BtlPort::contiguous(SendRequest& req) {
  const opal_convertor_t& conv = req.base.req_base.req_convertor;
  if (req.base.req_bytes_packed == 0 || opal_convertor_need_buffers(&conv) != 0) return nullptr;
  if (is_staged(req)) [[unlikely]]
    return nullptr;
  return conv.pBaseBuf + conv.pDesc->true_lb;
}

inline void* BtlPort::contiguous(RecvRequest& req) {
  return req.direct;
}

[[gnu::noinline]] inline void register_one(const RailHandle& rail, void* base, size_t size, uint32_t flags,
                                           Registration& out) {
  mca_btl_base_module_t* btl = rail.btl;
  mca_btl_base_registration_handle_t* handle = nullptr;
  if (out.size != 0 && out.find(btl, handle)) return;
  if (btl->btl_register_mem != nullptr) {
    handle = btl->btl_register_mem(btl, rail.ep, base, size, flags);
    if (handle == nullptr) return;
  }
  out.one[out.size++] = {btl, handle};
}

inline bool BtlPort::register_rails(const Peer* peer, const RailHandle* only, void* base, size_t size,
                                    uint32_t flags, Registration& out) {
  if (peer == nullptr || base == nullptr) return false;
  if (only != nullptr && out.size == 0) [[likely]] {
    mca_btl_base_registration_handle_t* handle = nullptr;
    if (only->btl->btl_register_mem != nullptr) {
      handle = only->btl->btl_register_mem(only->btl, only->ep, base, size, flags);
      if (handle == nullptr) [[unlikely]]
        return false;
    }
    out.one[0] = {only->btl, handle};
    out.size = 1;
    return true;
  }
  if (only != nullptr) {
    register_one(*only, base, size, flags, out);
  } else {
    for (unsigned i = 0; i < peer->n_rails; ++i) {
      const Rail& rail = peer->rails[i];
      if (rail.limits.put_limit != 0 || rail.limits.get_limit != 0)
        register_one(rail.handle, base, size, flags, out);
    }
  }
  return out.size > 0;
}

inline bool BtlPort::register_send(SendRequest& req, size_t size, Registration& out, const RailHandle* only) {
  return register_rails(req.xfer.proc->peer, only, contiguous(req), size, MCA_BTL_REG_FLAG_REMOTE_READ, out);
}

inline bool BtlPort::register_recv(RecvRequest& req, size_t size, Registration& out, const RailHandle* only) {
  return register_rails(req.xfer.proc->peer, only, contiguous(req), size,
                        MCA_BTL_REG_FLAG_LOCAL_WRITE | MCA_BTL_REG_FLAG_REMOTE_WRITE, out);
}

[[gnu::noinline]] inline void deregister_all(Registration& registration) {
  for (unsigned i = 0; i < registration.size; ++i) {
    const Registration::One& one = registration.one[i];
    if (one.handle != nullptr) one.btl->btl_deregister_mem(one.btl, one.handle);
  }
  registration.size = 0;
}

inline void BtlPort::deregister(Registration& registration) {
  if (registration.size != 1) [[unlikely]]
    return deregister_all(registration);
  const Registration::One& one = registration.one[0];
  if (one.handle != nullptr) [[likely]]
    one.btl->btl_deregister_mem(one.btl, one.handle);
  registration.size = 0;
}

inline bool BtlPort::handle(const Registration& registration, const RailHandle& rail,
                            xfer::HandleBytes& out) {
  mca_btl_base_registration_handle_t* local = nullptr;
  if (!registration.find(rail.btl, local)) return false;
  const size_t size = local != nullptr ? rail.btl->btl_registration_handle_size : 0;
  if (size > sizeof(out.bytes)) return false;
  out.size = static_cast<uint8_t>(size);
  memset(out.bytes, 0, sizeof(out.bytes));
  if (size != 0) memcpy(out.bytes, local, size);
  return true;
}

/// The end of a READ or write.
void rdma_done(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* ep, void* address,
               mca_btl_base_registration_handle_t* handle, void* context, void* cbdata, int status);

/// May the BTL move `length` bytes of the local buffer? `local` is its handle, nullptr where it needs none.
inline bool reachable(const RailHandle& rail, const Registration& reg, size_t length, size_t unregistered,
                      mca_btl_base_registration_handle_t*& local) {
  return reg.find(rail.btl, local) || rail.btl->btl_register_mem == nullptr || length <= unregistered;
}

/// What a refusal means.
inline Post post_of(int rc) {
  return rc == OPAL_ERR_OUT_OF_RESOURCE || rc == OPAL_ERR_TEMP_OUT_OF_RESOURCE ? Post::kNoResource
                                                                               : Post::kUnreachable;
}

inline Post BtlPort::get(const RailHandle& rail, RecvRequest& req, uint64_t offset, size_t length,
                         uint64_t remote_address, const xfer::HandleBytes& handle, FragRecord& frag) {
  mca_btl_base_registration_handle_t* local = nullptr;
  if (!reachable(rail, req.xfer.rndv->reg, length, rail.btl->btl_get_local_registration_threshold, local))
    return Post::kUnreachable;
  memcpy(frag.remote_handle, handle.bytes, sizeof(frag.remote_handle));
  reading_.store(&frag, std::memory_order_relaxed);
  const int rc =
      rail.btl->btl_get(rail.btl, rail.ep, static_cast<uint8_t*>(contiguous(req)) + offset, remote_address,
                        local, reinterpret_cast<mca_btl_base_registration_handle_t*>(frag.remote_handle),
                        length, 0, MCA_BTL_NO_ORDER, rdma_done, nullptr, &frag);
  const bool ended = reading_.exchange(nullptr, std::memory_order_acq_rel) == nullptr;
  if (rc == 1 || ended) return Post::kCompleted;
  return rc == OPAL_SUCCESS ? Post::kAccepted : post_of(rc);
}

}  // namespace bfo::glue
