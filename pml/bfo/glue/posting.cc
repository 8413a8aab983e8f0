// SPDX-License-Identifier: BSD-3-Clause
//
// posting.cc: how messages, writes and reads are handed to a BTL, and how their ends come back.
#include "pml/bfo/glue/btl_port.h"

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/descriptors.h"
#include "pml/bfo/glue/device.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/request.h"
#include "pml/bfo/xfer/contract.h"

namespace bfo::glue {
namespace {

static_assert(BFO_RC_DELIVERED == OPAL_SUCCESS);
static_assert(BFO_RC_UNKNOWN == OPAL_ERROR);
static_assert(BFO_RC_NEVER_SENT == OPAL_ERR_UNREACH);

// A BTL without the contract does not report how a fragment ended. A send that returned 1 has read the buffer
// and is complete. FRAGs are called back all the same, because the pipeline depth limits them. So are stored
// messages, because later messages on another rail wait for some of them (order.h).
uint32_t flags_of(const RailHandle& rail, const FragRecord& frag) {
  const xfer::FragKind kind = frag.xfer.kind;
  const bool brief =
      kind == xfer::FragKind::kMatch || kind == xfer::FragKind::kOpen || kind == xfer::FragKind::kControl;
  return rail.failover == nullptr && brief ? kQuiet : kDesFlags;
}

void send_done(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, mca_btl_base_descriptor_t* des, int status) {
  FragRecord* frag = static_cast<FragRecord*>(des->des_cbdata);
  if (status == OPAL_SUCCESS) [[likely]]
    note_carried(frag->xfer.rail->handle);
  frag->module->engine().on_done(frag, xfer::fate_of(status));
}

}  // namespace

void rdma_done(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void*, mca_btl_base_registration_handle_t*,
               void*, void* cbdata, int status) {
  FragRecord* frag = static_cast<FragRecord*>(cbdata);
  if (status == OPAL_SUCCESS) [[likely]] {
    note_carried(frag->xfer.rail->handle);
    if (frag->module->port().ends_while_posted(frag)) return;
  }
  frag->module->engine().on_done(frag, xfer::fate_of(status));
}

Post BtlPort::posted(const RailHandle& rail, mca_btl_base_descriptor_t* des, uint8_t tag, uint32_t flags) {
  const int rc = rail.btl->btl_send(rail.btl, rail.ep, des, tag);
  // 1 = already complete; the callback comes (or came) all the same if it was asked for. BUSY = queued.
  if (rc == 1 && flags == kQuiet) {
    note_carried(const_cast<RailHandle&>(rail));
    return Post::kCompleted;
  }
  if (rc >= 0 || rc == OPAL_ERR_RESOURCE_BUSY) [[likely]]
    return Post::kAccepted;
  rail.btl->btl_free(rail.btl, des);
  return post_of(rc);
}

Post BtlPort::send(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, SendRequest& req,
                   uint64_t offset, size_t& length, FragRecord& frag) {
  mca_btl_base_descriptor_t* des = nullptr;
  const uint32_t flags = flags_of(rail, frag);
  if (length > 0) {
    opal_convertor_t* conv = &req.base.req_base.req_convertor;
    if (opal_convertor_need_buffers(conv) != 0 || is_staged(req))
      return send_gathered(rail, tag, hdr, hdr_size, req, offset, length, frag);
    size_t position = offset;
    opal_convertor_set_position(conv, &position);
    des = rail.btl->btl_prepare_src(rail.btl, rail.ep, conv, MCA_BTL_NO_ORDER, hdr_size, &length, flags);
  } else {
    des = rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, hdr_size, flags);
  }
  if (des == nullptr) [[unlikely]]
    return Post::kNoResource;
  memcpy(des->des_segments[0].seg_addr.pval, hdr, hdr_size);
  des->des_cbfunc = send_done;
  des->des_cbdata = &frag;
  return posted(rail, des, tag, flags);
}

// The convertor would have to be repositioned for every fragment that was refused or is sent again. That is
// slow, and wrong inside an element: see layout.h.
Post BtlPort::send_gathered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                            SendRequest& req, uint64_t offset, size_t length, FragRecord& frag) {
  const uint32_t flags = flags_of(rail, frag);
  mca_btl_base_descriptor_t* des =
      rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, hdr_size + length, flags);
  if (des == nullptr) [[unlikely]]
    return Post::kNoResource;
  uint8_t* to = static_cast<uint8_t*>(des->des_segments[0].seg_addr.pval);
  memcpy(to, hdr, hdr_size);
  des->des_cbfunc = send_done;
  des->des_cbdata = &frag;
  const Layout layout(req.base.req_base.req_convertor, is_staged(req));
  if (req.trail == nullptr && offset != 0 && !layout.one_block()) req.trail = make_trail(layout);
  Cursor cursor;
  if (req.trail != nullptr)
    cursor = req.trail->at(offset);
  else
    cursor.skip(layout, offset);
  if (!cursor.gather(layout, to + hdr_size, length)) [[unlikely]] {
    rail.btl->btl_free(rail.btl, des);
    if (is_staged(req) && cursor.ok()) device_unreadable(length);
    return Post::kNoResource;
  }
  const Post post = posted(rail, des, tag, flags);
  if (req.trail != nullptr && taken(post)) req.trail->keep(offset, cursor, true);
  return post;
}

Post BtlPort::send_bytes(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                         const void* bytes, size_t length, FragRecord& frag) {
  const uint32_t flags = flags_of(rail, frag);
  mca_btl_base_descriptor_t* des =
      rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, hdr_size + length, flags);
  if (des == nullptr) [[unlikely]]
    return Post::kNoResource;
  uint8_t* to = static_cast<uint8_t*>(des->des_segments[0].seg_addr.pval);
  memcpy(to, hdr, hdr_size);
  if (length > 0) memcpy(to + hdr_size, bytes, length);
  des->des_cbfunc = send_done;
  des->des_cbdata = &frag;
  return posted(rail, des, tag, flags);
}

Post BtlPort::put(const RailHandle& rail, SendRequest& req, uint64_t offset, size_t length,
                  uint64_t remote_address, const xfer::HandleBytes& handle, FragRecord& frag) {
  mca_btl_base_registration_handle_t* local = nullptr;
  if (!reachable(rail, req.xfer.rndv->reg, length, rail.btl->btl_put_local_registration_threshold, local))
    return Post::kUnreachable;
  memcpy(frag.remote_handle, handle.bytes, sizeof(frag.remote_handle));
  const int rc =
      rail.btl->btl_put(rail.btl, rail.ep, static_cast<uint8_t*>(contiguous(req)) + offset, remote_address,
                        local, reinterpret_cast<mca_btl_base_registration_handle_t*>(frag.remote_handle),
                        length, 0, MCA_BTL_NO_ORDER, rdma_done, nullptr, &frag);
  if (rc == 1) return Post::kCompleted;
  return rc == OPAL_SUCCESS ? Post::kAccepted : post_of(rc);
}

}  // namespace bfo::glue
