// SPDX-License-Identifier: BSD-3-Clause
//
// transfer.cc: the BTL functions that move data. send and sendi are the hot path; fragments come from pools
// (frag_pool.h).
#include <algorithm>

#include "btl/verbs/engine/send/elsewhere.h"
#include "btl/verbs/engine/send/rdma.h"
#include "btl/verbs/engine/send/send.h"
#include "btl/verbs/glue/module.h"
#include "common/copy.h"

namespace bfo::verbs {
namespace {

inline VerbsFrag* pool_get(Module& module, FragPool& pool) {
  const engine::Guard guard(module.pool_lock);
  if (pool.free == nullptr && !pool_grow(module, pool)) return nullptr;
  VerbsFrag* frag = pool.free;
  pool.free = frag->next_free;
  const auto few = [&pool] { return pool.free == nullptr || pool.free->next_free == nullptr; };
  frag->scarce = few() && !(pool_grow(module, pool) && !few());
  return frag;
}

inline void pool_put(Module& module, VerbsFrag* frag) {
  const engine::Guard guard(module.pool_lock);
  frag->next_free = frag->pool->free;
  frag->pool->free = frag;
}

inline VerbsFrag* described(VerbsFrag* frag, size_t size, uint32_t flags) {
  frag->segment.seg_addr.pval = frag->buffer;
  frag->segment.seg_len = size;
  frag->base.des_segments = &frag->segment;
  frag->base.des_segment_count = 1;
  frag->base.des_flags = flags;
  frag->base.des_cbfunc = nullptr;
  frag->base.order = MCA_BTL_NO_ORDER;
  frag->accounted_inline = false;
  return frag;
}

VerbsFrag* frag_for(Module& module, size_t size, uint32_t flags) {
  FragPool* pool = size <= module.eager.buffer_bytes    ? &module.eager
                   : size <= module.middle.buffer_bytes ? &module.middle
                   : size <= module.large.buffer_bytes  ? &module.large
                                                        : nullptr;
  if (pool == nullptr) return nullptr;
  VerbsFrag* frag = pool_get(module, *pool);
  if (frag == nullptr && pool == &module.middle) frag = pool_get(module, module.large);
  return frag == nullptr ? nullptr : described(frag, size, flags);
}

/// A descriptor for libmpi when it tells of dead processes: it does not look whether it has got one. A PML
/// that knows this BTL asks with other flags, and osc rdma does without the priority.
[[gnu::noinline]] VerbsFrag* frag_without_room(Module& module, size_t size, uint32_t flags) {
  constexpr uint32_t kTheirs = MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP;
  if (!module.bound || flags != kTheirs || size > module.spare.buffer_bytes) return nullptr;
  VerbsFrag* const frag = spare_get(module);
  return frag == nullptr ? nullptr : described(frag, size, flags);
}

/// Packs up to *size bytes of the convertor to `to`. False when the convertor fails.
inline bool pack(opal_convertor_t* convertor, char* to, size_t* size) {
  if (*size == 0) return true;
  if (opal_convertor_need_buffers(convertor) == 0 && !on_device(*convertor)) {
    void* from = nullptr;
    const size_t left = convertor->local_size - convertor->bConverted;
    if (*size > left) *size = left;
    opal_convertor_get_current_pointer(convertor, &from);
    memcpy(to, from, *size);
    convertor->bConverted += *size;
    return true;
  }
  iovec iov = {to, *size};
  uint32_t count = 1;
  if (opal_convertor_pack(convertor, &iov, &count, size) < 0) return false;
  return true;
}

int refused(const engine::Endpoint&) {
  return OPAL_ERR_UNREACH;
}

/// Fills a fragment for put or get and hands it to the engine.
int rdma(Module& module, mca_btl_base_endpoint_t* endpoint, engine::Kind kind, void* local_address,
         uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
         mca_btl_base_registration_handle_t* remote_handle, size_t size,
         mca_btl_base_rdma_completion_fn_t done, void* context, void* data) {
  if (size > UINT32_MAX || (local_handle == nullptr && size != 0)) return OPAL_ERR_NOT_AVAILABLE;
  VerbsFrag* frag = pool_get(module, module.rdma);
  if (frag == nullptr) return OPAL_ERR_OUT_OF_RESOURCE;
  frag->local_handle = local_handle;
  frag->rdma_done = done;
  frag->rdma_context = context;
  frag->rdma_data = data;
  engine::Frag& work = frag->engine;
  work.data = local_address;
  work.length = static_cast<uint32_t>(size);
  work.lkey = local_handle == nullptr ? 0 : local_handle->lkey;
  work.remote_address = remote_address;
  work.rkey = remote_handle->rkey;
  const engine::Accepted accepted = kind == engine::Kind::kPut ? engine::put(endpoint->engine, &work)
                                                               : engine::get(endpoint->engine, &work);
  if (accepted != engine::Accepted::kRefused) return OPAL_SUCCESS;
  pool_put(module, frag);
  return refused(endpoint->engine);
}

/// Gives a fragment with its buffer to the engine. `over`: it is complete for the PML; a failure is reported
/// by sendi_failed. False: refused.
bool send_frag(engine::Endpoint& rail, VerbsFrag* frag, mca_btl_base_tag_t tag, bool over) {
  engine::Frag& work = frag->engine;
  work.data = frag->segment.seg_addr.pval;
  work.length = static_cast<uint32_t>(frag->segment.seg_len);
  work.lkey = frag->buffer_lkey;
  work.tag = tag;
  work.kind = over ? engine::Kind::kSendi : engine::Kind::kSend;
  work.signaled = !over || frag->scarce;
  frag->accounted_inline = over;
  return engine::send(rail, &work) != engine::Accepted::kRefused;
}

/// Calls the active-message callback that is registered for the tag.
[[gnu::noinline]] void deliver_active(Module& module, mca_btl_base_endpoint_t* endpoint, uint8_t tag,
                                      char* data, uint32_t length) {
  if (tag >= MCA_BTL_TAG_MAX || mca_btl_base_active_message_trigger[tag].cbfunc == nullptr) {
    ++module.port.accounting().dropped;
    return;
  }
  mca_btl_base_segment_t segment;
  segment.seg_addr.pval = data;
  segment.seg_len = length;
  call_receiver(mca_btl_base_active_message_trigger[tag], module.super, endpoint, tag, segment);
}

/// The descriptor of a send that is complete when it returns.
void ended_in_call(Module& module, mca_btl_base_endpoint_t* peer, VerbsFrag* frag) {
  const uint32_t flags = frag->base.des_flags;
  if ((flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) != 0 && frag->base.des_cbfunc != nullptr)
    frag->base.des_cbfunc(&module.super, peer, &frag->base, OPAL_SUCCESS);
  if ((flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0) pool_put(module, frag);
}

inline VerbsFrag* frag_of(engine::Frag* work) {
  return reinterpret_cast<VerbsFrag*>(reinterpret_cast<char*>(work) - offsetof(VerbsFrag, engine));
}

}  // namespace

mca_btl_base_descriptor_t* alloc(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t*, uint8_t, size_t size,
                                 uint32_t flags) {
  VerbsFrag* frag = frag_for(*module_of(btl), size, flags);
  if (kTellsOfTheDead && frag == nullptr) [[unlikely]]
    frag = frag_without_room(*module_of(btl), size, flags);
  return frag == nullptr ? nullptr : &frag->base;
}

int free_descriptor(mca_btl_base_module_t* btl, mca_btl_base_descriptor_t* descriptor) {
  pool_put(*module_of(btl), reinterpret_cast<VerbsFrag*>(descriptor));
  return OPAL_SUCCESS;
}

mca_btl_base_descriptor_t* prepare_src(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t*,
                                       opal_convertor_t* convertor, uint8_t, size_t reserve, size_t* size,
                                       uint32_t flags) {
  Module& module = *module_of(btl);
  if (reserve > module.super.btl_max_send_size) return nullptr;
  if (*size + reserve > module.super.btl_max_send_size) *size = module.super.btl_max_send_size - reserve;
  VerbsFrag* frag = frag_for(module, *size + reserve, flags);
  if (frag == nullptr) return nullptr;
  if (!pack(convertor, frag->buffer + reserve, size)) {
    pool_put(module, frag);
    return nullptr;
  }
  frag->segment.seg_len = reserve + *size;
  return &frag->base;
}

bool send_copy(engine::Endpoint& rail, uint8_t tag, const void* data, size_t length) {
  Module& module = *static_cast<Module*>(rail.port->host().ctx);
  VerbsFrag* const frag = frag_for(module, length, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
  if (frag == nullptr) return false;
  memcpy(frag->buffer, data, length);
  if (send_frag(rail, frag, tag, false)) return true;
  pool_put(module, frag);
  return false;
}

namespace {

/// Of a message that goes elsewhere (engine/send/elsewhere.h).
[[gnu::noinline]] int send_anyhow(Module& module, mca_btl_base_endpoint_t* endpoint, VerbsFrag* frag,
                                  uint8_t tag) {
  engine::Endpoint& rail = endpoint->engine;
  const void* const data = frag->segment.seg_addr.pval;
  const size_t length = frag->segment.seg_len;
  const engine::GivenMessage message{.asked = engine::rail_state(rail),
                                     .as_it_is = frag->pool != &module.spare,
                                     .behind = waits_for_rail(rail)};
  const engine::Goes goes = engine::send_given(
      message, [&] { return send_frag(rail, frag, tag, false); },
      [&] { return send_elsewhere(rail, tag, data, length); });
  if (goes == engine::Goes::kOverAsked) return OPAL_SUCCESS;
  if (goes == engine::Goes::kWaits && !keep(rail, tag, data, length)) return refused(rail);
  ended_in_call(module, endpoint, frag);
  return 1;
}

}  // namespace

int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, mca_btl_base_descriptor_t* descriptor,
         mca_btl_base_tag_t tag) {
  auto* frag = reinterpret_cast<VerbsFrag*>(descriptor);
  if (goes_elsewhere(tag)) [[unlikely]]
    return send_anyhow(*module_of(btl), endpoint, frag, tag);
  // A spare buffer is not registered: it is for a copy only.
  if (kTellsOfTheDead && frag->pool == &module_of(btl)->spare) [[unlikely]]
    return refused(endpoint->engine);
  // A descriptor that the BTL owns, without a callback, is complete for the PML when it is posted: its
  // completion need not be signaled. Work that is queued for a connection is not complete: the application
  // could leave MPI, and then no progress would make the connection. Nor are the last two fragments of a
  // pool: ob1 asks again for a fragment that was refused only when one completes. Two, because that one is
  // free only after the callback in which ob1 asks.
  const uint32_t flags = descriptor->des_flags;
  const bool over = (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0 &&
                    (flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK) == 0 && !frag->scarce &&
                    engine::leaves_at_once(endpoint->engine);
  if (!send_frag(endpoint->engine, frag, tag, over)) {
    if (is_of_window(tag)) foreign_failed(*module_of(btl), endpoint->engine, tag, nullptr, 0);
    return refused(endpoint->engine);
  }
  return over ? 1 : OPAL_SUCCESS;
}

int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, opal_convertor_t* convertor,
          void* header, size_t header_size, size_t payload_size, uint8_t, uint32_t flags,
          mca_btl_base_tag_t tag, mca_btl_base_descriptor_t** descriptor) {
  Module& module = *module_of(btl);
  engine::Endpoint& rail = endpoint->engine;
  engine::SendRing* ring = nullptr;
  const size_t length = header_size + payload_size;
  char* slot =
      length <= UINT32_MAX ? engine::slot_reserve(rail, static_cast<uint32_t>(length), &ring) : nullptr;
  if (slot != nullptr) [[likely]] {
    memcpy(slot, header, header_size);
    size_t packed = payload_size;
    if (payload_size != 0 && !pack(convertor, slot + header_size, &packed)) {
      engine::slot_cancel(rail);
      if (descriptor != nullptr) *descriptor = nullptr;
      return OPAL_ERROR;
    }
    if (engine::slot_commit(*ring, slot, static_cast<uint32_t>(length), tag)) [[likely]]
      return OPAL_SUCCESS;
    if (descriptor != nullptr) *descriptor = nullptr;
    return refused(rail);
  }
  const bfo_rail_state_t state = engine::rail_state(rail);
  const bool hopeless = state == BFO_RAIL_DOWN || state == BFO_RAIL_UNUSABLE;
  VerbsFrag* frag = hopeless ? nullptr : frag_for(module, length, flags | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
  if (frag == nullptr) {
    if (descriptor != nullptr) *descriptor = nullptr;
    return hopeless ? OPAL_ERR_UNREACH : OPAL_ERR_OUT_OF_RESOURCE;
  }
  if (!frag->scarce && engine::leaves_at_once(rail) && length > rail.ring().slot_bytes) {
    // It is only too long for a slot: sent in the same way, with a buffer of its own. The last ones of a pool
    // are left to the caller, who gets a callback for them (see send()).
    memcpy(frag->buffer, header, header_size);
    size_t packed = payload_size;
    if (pack(convertor, frag->buffer + header_size, &packed)) {
      if (send_frag(rail, frag, tag, true)) return OPAL_SUCCESS;
    }
    pool_put(module, frag);
    if (descriptor != nullptr) *descriptor = nullptr;
    return refused(rail);
  }
  if (descriptor == nullptr) {
    pool_put(module, frag);
  } else {
    frag->base.des_flags = flags;
    *descriptor = &frag->base;
  }
  return OPAL_ERR_RESOURCE_BUSY;
}

namespace {

/// A message that is too long for a slot: sent in the same way, with a buffer of its own.
[[gnu::noinline]] int send_copied(Module& module, engine::Endpoint& rail, uint8_t tag, const void* header,
                                  size_t header_size, const void* payload, size_t payload_size) {
  const bfo_rail_state_t state = engine::rail_state(rail);
  if (state == BFO_RAIL_DOWN || state == BFO_RAIL_UNUSABLE) return OPAL_ERR_UNREACH;
  const size_t length = header_size + payload_size;
  if (!engine::leaves_at_once(rail) || length <= rail.ring().slot_bytes) return OPAL_ERR_RESOURCE_BUSY;
  VerbsFrag* const frag = frag_for(module, length, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
  if (frag == nullptr) return OPAL_ERR_OUT_OF_RESOURCE;
  memcpy(frag->buffer, header, header_size);
  if (payload_size != 0) memcpy(frag->buffer + header_size, payload, payload_size);
  if (send_frag(rail, frag, tag, true)) return OPAL_SUCCESS;
  pool_put(module, frag);
  return refused(rail);
}

}  // namespace

int send_bytes(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, uint8_t tag, const void* header,
               size_t header_size, const void* payload, size_t payload_size) {
  engine::Endpoint& rail = endpoint->engine;
  engine::SendRing* ring = nullptr;
  const size_t length = header_size + payload_size;
  char* slot =
      length <= UINT32_MAX ? engine::slot_reserve(rail, static_cast<uint32_t>(length), &ring) : nullptr;
  if (slot == nullptr) [[unlikely]]
    return send_copied(*module_of(btl), rail, tag, header, header_size, payload, payload_size);
  copy_joined(slot, header, header_size, payload, payload_size);
  return engine::slot_commit(*ring, slot, static_cast<uint32_t>(length), tag) ? OPAL_SUCCESS : refused(rail);
}

int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, size_t size, int, int,
        mca_btl_base_rdma_completion_fn_t done, void* context, void* data) {
  return rdma(*module_of(btl), endpoint, engine::Kind::kPut, local_address, remote_address, local_handle,
              remote_handle, size, done, context, data);
}

int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, size_t size, int, int,
        mca_btl_base_rdma_completion_fn_t done, void* context, void* data) {
  return rdma(*module_of(btl), endpoint, engine::Kind::kGet, local_address, remote_address, local_handle,
              remote_handle, size, done, context, data);
}

void frag_done(void* ctx, engine::Endpoint& endpoint, engine::Frag* work, int status) {
  Module& module = *static_cast<Module*>(ctx);
  VerbsFrag* frag = frag_of(work);
  mca_btl_base_endpoint_t* peer = endpoint_of(endpoint);
  if (work->kind == engine::Kind::kPut || work->kind == engine::Kind::kGet) {
    const VerbsFrag copy = *frag;
    pool_put(module, frag);
    copy.rdma_done(&module.super, peer, work->data, copy.local_handle, copy.rdma_context, copy.rdma_data,
                   status);
    return;
  }
  if (frag->accounted_inline) {
    if (status != BFO_RC_DELIVERED)
      payload_failed(ctx, endpoint, work->tag, work->data, work->length, status);
    pool_put(module, frag);
    return;
  }
  if (kWindowsUseBtls && status != BFO_RC_DELIVERED && !is_of_pml(work->tag)) [[unlikely]]
    if (foreign_failed(module, endpoint, work->tag, work->data, work->length)) status = BFO_RC_DELIVERED;
  // The callback may free or reuse the descriptor when it owns it.
  const bool ours = (frag->base.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0;
  if (frag->base.des_cbfunc != nullptr) frag->base.des_cbfunc(&module.super, peer, &frag->base, status);
  if (ours) pool_put(module, frag);
}

void deliver(void* ctx, engine::Endpoint& endpoint, uint8_t tag, char* data, uint32_t length) {
  Module& module = *static_cast<Module*>(ctx);
  if (module.bound && is_of_pml(tag)) [[likely]]
    return module.sink.message(module.sink_ctx, endpoint.user.load(std::memory_order_acquire), endpoint.epoch,
                               tag, data, length);
  deliver_active(module, endpoint_of(endpoint), tag, data, length);
}

}  // namespace bfo::verbs
