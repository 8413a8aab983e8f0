// SPDX-License-Identifier: BSD-3-Clause
//
// stock_send.cc: see stock_send.h.
//
// H1..H23: contrib/doc/hazards.md
#include "pml/bfo/glue/stock_send.h"

#include <cstddef>
#include <type_traits>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/descriptors.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/xfer/contract.h"

namespace bfo::glue {
namespace {

// The end of a copy. A failed one still holds header and payload in one piece.
void copy_done(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, mca_btl_base_descriptor_t* des, int status) {
  Module& module = *static_cast<Module*>(des->des_cbdata);
  module.port().stock().copy_ended();
  Rail* const rail = static_cast<Rail*>(des->des_context);
  if (status == OPAL_SUCCESS) [[likely]]
    return note_carried(rail->handle);
  const mca_btl_base_segment_t& whole = des->des_segments[0];
  const uint8_t tag = *static_cast<const uint8_t*>(whole.seg_addr.pval);
  module.engine().on_sendi_failed(rail, tag, whole.seg_addr.pval, whole.seg_len, xfer::fate_of(status));
}

// The engine's record of a rail begins with what the port keeps of it.
Rail* rail_of(const RailHandle& handle) {
  static_assert(std::is_standard_layout_v<Rail> && offsetof(Rail, handle) == 0);
  return reinterpret_cast<Rail*>(const_cast<RailHandle*>(&handle));
}

}  // namespace

StockSend& stock_send() {
  return mca_pml_bfo_component.module->port().stock();
}

// vader has a buffer of 4 KiB for each peer (fast box), which also carries the headers of its fragments.
// Seven messages of 512 bytes fill it. Then it takes neither sendi nor a fragment until the peer reads. So a
// sender that is ahead of its peer puts longer messages into fragments, as ob1 does. A sender that waits for
// answers uses the fast box, which has less latency. No message of more than a quarter of the box goes there.
// A BTL without sendi takes fragments anyway. Where copies do not complete a send, a fragment would keep its
// request until the peer has read it, and sendi does not.
bool StockSend::wants_fragment(const RailHandle& rail, size_t length) {
  if constexpr (!kCopiesComplete) return false;
  if (rail.btl->btl_sendi == nullptr) return length <= kCopyBytes;
  if ((rail.btl->btl_flags & MCA_BTL_FLAGS_SEND_INPLACE) == 0) return false;
  if (length > kMostBoxed) return true;
  const uint32_t sent = unanswered_.load(std::memory_order_relaxed);
  if (sent >= kAhead) return true;
  unanswered_.store(sent + 1, std::memory_order_relaxed);
  return false;
}

// nullptr: too many are under way, there is none, or its message would be complete too early (H20).
inline mca_btl_base_descriptor_t* StockSend::descriptor(const RailHandle& rail, size_t size) {
  if constexpr (!kCopiesComplete) return nullptr;
  if (copies_out_.load(std::memory_order_relaxed) >= kCopies) return nullptr;
  const uint32_t flags = rail.failover == nullptr ? kQuiet : kDesFlags;
  return rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, size, flags);
}

inline bool StockSend::send(const RailHandle& rail, uint8_t tag, mca_btl_base_descriptor_t* des) {
  des->des_cbfunc = copy_done;
  des->des_cbdata = mca_pml_bfo_component.module;
  des->des_context = rail_of(rail);  // it lasts as long as there are callbacks
  count_copies(1);
  const int rc = rail.btl->btl_send(rail.btl, rail.ep, des, tag);
  if (rc == 1 && rail.failover == nullptr) {
    note_carried(const_cast<RailHandle&>(rail));
    copy_ended();
    return true;
  }
  if (rc >= 0 || rc == OPAL_ERR_RESOURCE_BUSY) [[likely]]
    return true;
  copy_ended();
  rail.btl->btl_free(rail.btl, des);
  return false;
}

bool StockSend::send_piece(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                           const void* bytes, size_t length) {
  mca_btl_base_descriptor_t* des = descriptor(rail, hdr_size + length);
  if (des == nullptr) [[unlikely]]
    return false;
  uint8_t* to = static_cast<uint8_t*>(des->des_segments[0].seg_addr.pval);
  memcpy(to, hdr, hdr_size);
  if (length > 0) memcpy(to + hdr_size, bytes, length);
  return send(rail, tag, des);
}

bool StockSend::send_gathered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                              InlineSource source, size_t length) {
  return send_gathered(rail, tag, hdr, hdr_size, Layout(source.datatype->super, source.count, source.buffer),
                       length);
}

bool StockSend::send_gathered(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                              const Layout& layout, size_t length) {
  mca_btl_base_descriptor_t* des = descriptor(rail, hdr_size + length);
  if (des == nullptr) [[unlikely]]
    return false;
  uint8_t* to = static_cast<uint8_t*>(des->des_segments[0].seg_addr.pval);
  memcpy(to, hdr, hdr_size);
  Cursor cursor;
  if (!cursor.gather(layout, to + hdr_size, length)) [[unlikely]] {
    rail.btl->btl_free(rail.btl, des);
    return false;
  }
  return send(rail, tag, des);
}

bool StockSend::send_copy(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                          opal_convertor_t* conv, size_t length) {
  if (length > kCopyBytes) return false;
  mca_btl_base_descriptor_t* des = descriptor(rail, hdr_size + length);
  if (des == nullptr) [[unlikely]]
    return false;
  uint8_t* to = static_cast<uint8_t*>(des->des_segments[0].seg_addr.pval);
  memcpy(to, hdr, hdr_size);
  if (length > 0) {
    size_t position = 0;  // an attempt to send it may have moved it
    opal_convertor_set_position(conv, &position);
    struct iovec iov = {to + hdr_size, length};
    uint32_t count = 1;
    size_t packed = length;
    opal_convertor_pack(conv, &iov, &count, &packed);
  }
  return send(rail, tag, des);
}

}  // namespace bfo::glue
