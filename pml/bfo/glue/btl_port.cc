// SPDX-License-Identifier: BSD-3-Clause
//
// btl_port.cc: posting on BTLs, registration, and the rails' side of the Port.
#include "pml/bfo/glue/btl_port.h"

#include <ctime>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/request.h"
#include "pml/bfo/glue/help.h"

namespace bfo::glue {
namespace {

static_assert(BFO_RC_DELIVERED == OPAL_SUCCESS);
static_assert(BFO_RC_UNKNOWN == OPAL_ERROR);
static_assert(BFO_RC_NEVER_SENT == OPAL_ERR_UNREACH);

// The BTL frees the descriptor after the callback, and always calls back: the engine counts every end.
constexpr uint32_t kDesFlags =
    MCA_BTL_DES_FLAGS_PRIORITY | MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | MCA_BTL_DES_SEND_ALWAYS_CALLBACK;

// Longer messages of a BTL without sendi keep their request and are not copied; neither are more than this
// many at once, so that a slow receiver holds its sender up.
constexpr size_t kCopyBytes = 1024;
constexpr int32_t kCopies = 256;

Fate fate_of(int status) {
  if (OPAL_LIKELY(status == BFO_RC_DELIVERED)) return Fate::kDelivered;
  return status == BFO_RC_NEVER_SENT ? Fate::kNeverSent : Fate::kUnknown;
}

Post post_of(int rc) {
  switch (rc) {
    case OPAL_ERR_OUT_OF_RESOURCE:
    case OPAL_ERR_TEMP_OUT_OF_RESOURCE:
      return Post::kNoResource;
    default:
      return Post::kUnreachable;
  }
}

// Relaxed: read only after the connection has broken.
void note_carried(RailHandle& rail) {
  __atomic_store_n(&rail.carried, true, __ATOMIC_RELAXED);
}

void send_done(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, mca_btl_base_descriptor_t* des, int status) {
  FragRecord* frag = static_cast<FragRecord*>(des->des_cbdata);
  if (OPAL_LIKELY(status == OPAL_SUCCESS)) note_carried(frag->xfer.rail->handle);
  frag->module->engine().on_done(frag, fate_of(status));
}

// The end of a send_copy(). A failed one still holds header and payload in one piece.
void copy_done(mca_btl_base_module_t*, mca_btl_base_endpoint_t* ep, mca_btl_base_descriptor_t* des,
               int status) {
  Module& module = *static_cast<Module*>(des->des_cbdata);
  module.port().copy_ended();
  if (OPAL_LIKELY(status == OPAL_SUCCESS)) return note_carried(*static_cast<RailHandle*>(des->des_context));
  const mca_btl_base_segment_t& whole = des->des_segments[0];
  if (Rail* rail = module.rails().find(ep); rail != nullptr) {
    const uint8_t tag = *static_cast<const uint8_t*>(whole.seg_addr.pval);
    module.engine().on_sendi_failed(rail, tag, whole.seg_addr.pval, whole.seg_len, fate_of(status));
  }
}

void rdma_done(mca_btl_base_module_t*, mca_btl_base_endpoint_t*, void*, mca_btl_base_registration_handle_t*,
               void*, void* cbdata, int status) {
  FragRecord* frag = static_cast<FragRecord*>(cbdata);
  if (OPAL_LIKELY(status == OPAL_SUCCESS)) note_carried(frag->xfer.rail->handle);
  frag->module->engine().on_done(frag, fate_of(status));
}

const mca_btl_base_registration_handle_t* local_handle(const Registration& reg,
                                                       const mca_btl_base_module_t* btl, bool& found) {
  for (unsigned i = 0; i < reg.size; ++i) {
    if (reg.one[i].btl == btl) {
      found = true;
      return reg.one[i].handle;
    }
  }
  found = false;
  return nullptr;
}

void* segment_alloc(void*, size_t* size) {
  return ::malloc(*size);
}
void segment_free(void*, void* segment) {
  ::free(segment);
}

// In front of every block of alloc(): where free() has to bring it back.
struct BlockHeader {
  opal_free_list_item_t* small;  // nullptr: came from the allocator
  uint64_t pad;                  // keeps the payload 16-byte aligned
};

}  // namespace

bool BtlPort::init(const Params& params, bool threads) {
  mca_allocator_base_component_t* component = mca_allocator_component_lookup(params.allocator);
  if (component == nullptr) {
    show_help("no-allocator", params.allocator);
    return false;
  }
  allocator_ = component->allocator_init(threads, segment_alloc, segment_free, nullptr);
  if (allocator_ == nullptr) return false;

  OBJ_CONSTRUCT(&frags_, opal_free_list_t);
  OBJ_CONSTRUCT(&small_, opal_free_list_t);
  ready_ = true;
  int rc = opal_free_list_init(&frags_, sizeof(FragRecord), opal_cache_line_size, OBJ_CLASS(bfo_pml_frag_t),
                               0, opal_cache_line_size, params.free_list_num, params.free_list_max,
                               params.free_list_inc, nullptr, 0, nullptr, nullptr, nullptr);
  if (rc != OPAL_SUCCESS) return false;
  // A short unexpected message is kept with its header in one record; 16 bytes hold a MATCH header.
  small_size_ = sizeof(xfer::Unexpected<BtlPort>) + 16 + static_cast<size_t>(params.unexpected_limit);
  rc = opal_free_list_init(&small_, sizeof(opal_free_list_item_t), opal_cache_line_size,
                           OBJ_CLASS(opal_free_list_item_t), sizeof(BlockHeader) + small_size_, 16,
                           params.free_list_num, -1, params.free_list_inc, nullptr, 0, nullptr, nullptr,
                           nullptr);
  return rc == OPAL_SUCCESS;
}

BtlPort::~BtlPort() {
  if (ready_) {
    OBJ_DESTRUCT(&frags_);
    OBJ_DESTRUCT(&small_);
  }
  if (allocator_ != nullptr) allocator_->alc_finalize(allocator_);
}

FragRecord* BtlPort::frag_alloc() {
  FragRecord* frag = reinterpret_cast<FragRecord*>(opal_free_list_get(&frags_));
  if (OPAL_UNLIKELY(frag == nullptr)) return nullptr;
  frag->module = &module_;
  return frag;
}

void BtlPort::frag_free(FragRecord& frag) {
  opal_free_list_return(&frags_, &frag.super);
}

void* BtlPort::alloc(size_t size) {
  BlockHeader* block = nullptr;
  if (size <= small_size_) {
    if (opal_free_list_item_t* item = opal_free_list_get(&small_); item != nullptr) {
      block = static_cast<BlockHeader*>(item->ptr);
      block->small = item;
    }
  } else {
    block = static_cast<BlockHeader*>(allocator_->alc_alloc(allocator_, sizeof(BlockHeader) + size, 0));
    if (block != nullptr) block->small = nullptr;
  }
  if (OPAL_UNLIKELY(block == nullptr)) {
    opal_output(0, "pml bfo: out of memory for a received message of %lu bytes",
                static_cast<unsigned long>(size));
    abort();
  }
  return block + 1;
}

void BtlPort::free(void* memory) {
  if (memory == nullptr) return;
  BlockHeader* block = static_cast<BlockHeader*>(memory) - 1;
  if (block->small != nullptr) {
    opal_free_list_return(&small_, block->small);
  } else {
    allocator_->alc_free(allocator_, block);
  }
}

// ---- posting

bool BtlPort::sendi(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, SendRequest& req,
                    size_t length) {
  opal_convertor_t* conv = &req.base.req_base.req_convertor;
  size_t position = 0;
  if (length > 0) opal_convertor_set_position(conv, &position);
  return sendi_convertor(rail, tag, hdr, hdr_size, conv, length);
}

bool BtlPort::send_copy(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                        opal_convertor_t* conv, size_t length) {
  BtlPort& port = mca_pml_bfo_component.module->port();
  if (length > kCopyBytes || port.copies_out_.load(std::memory_order_relaxed) >= kCopies) return false;
  mca_btl_base_descriptor_t* des =
      rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, hdr_size + length, kDesFlags);
  if (OPAL_UNLIKELY(des == nullptr)) return false;
  uint8_t* to = static_cast<uint8_t*>(des->des_segments[0].seg_addr.pval);
  memcpy(to, hdr, hdr_size);
  if (length > 0) {
    struct iovec iov = {to + hdr_size, length};
    uint32_t count = 1;
    size_t packed = length;
    opal_convertor_pack(conv, &iov, &count, &packed);
  }
  des->des_cbfunc = copy_done;
  des->des_cbdata = &port.module_;
  des->des_context = const_cast<RailHandle*>(&rail);  // the engine's, as long as there are callbacks
  port.copies_out_.fetch_add(1, std::memory_order_relaxed);
  const int rc = rail.btl->btl_send(rail.btl, rail.ep, des, tag);
  if (OPAL_LIKELY(rc >= 0) || rc == OPAL_ERR_RESOURCE_BUSY) return true;
  port.copy_ended();
  rail.btl->btl_free(rail.btl, des);
  return false;
}

Post BtlPort::posted(const RailHandle& rail, mca_btl_base_descriptor_t* des, uint8_t tag) {
  const int rc = rail.btl->btl_send(rail.btl, rail.ep, des, tag);
  // 1 = already complete; the callback comes (or came) all the same because it was asked for. BUSY = queued.
  if (OPAL_LIKELY(rc >= 0) || rc == OPAL_ERR_RESOURCE_BUSY) return Post::kAccepted;
  rail.btl->btl_free(rail.btl, des);
  return post_of(rc);
}

Post BtlPort::send(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size, SendRequest& req,
                   uint64_t offset, size_t& length, FragRecord& frag) {
  mca_btl_base_descriptor_t* des = nullptr;
  if (length > 0) {
    opal_convertor_t* conv = &req.base.req_base.req_convertor;
    size_t position = offset;
    opal_convertor_set_position(conv, &position);
    des = rail.btl->btl_prepare_src(rail.btl, rail.ep, conv, MCA_BTL_NO_ORDER, hdr_size, &length, kDesFlags);
  } else {
    des = rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, hdr_size, kDesFlags);
  }
  if (OPAL_UNLIKELY(des == nullptr)) return Post::kNoResource;
  memcpy(des->des_segments[0].seg_addr.pval, hdr, hdr_size);
  des->des_cbfunc = send_done;
  des->des_cbdata = &frag;
  return posted(rail, des, tag);
}

Post BtlPort::send_bytes(const RailHandle& rail, uint8_t tag, const void* hdr, size_t hdr_size,
                         const void* bytes, size_t length, FragRecord& frag) {
  mca_btl_base_descriptor_t* des =
      rail.btl->btl_alloc(rail.btl, rail.ep, MCA_BTL_NO_ORDER, hdr_size + length, kDesFlags);
  if (OPAL_UNLIKELY(des == nullptr)) return Post::kNoResource;
  uint8_t* to = static_cast<uint8_t*>(des->des_segments[0].seg_addr.pval);
  memcpy(to, hdr, hdr_size);
  if (length > 0) memcpy(to + hdr_size, bytes, length);
  des->des_cbfunc = send_done;
  des->des_cbdata = &frag;
  return posted(rail, des, tag);
}

Post BtlPort::put(const RailHandle& rail, SendRequest& req, uint64_t offset, size_t length,
                  uint64_t remote_address, const xfer::HandleBytes& handle, FragRecord& frag) {
  bool registered = false;
  auto* local =
      const_cast<mca_btl_base_registration_handle_t*>(local_handle(req.xfer.reg, rail.btl, registered));
  if (!registered && rail.btl->btl_register_mem != nullptr &&
      length > rail.btl->btl_put_local_registration_threshold) {
    return Post::kUnreachable;
  }
  memcpy(frag.remote_handle, handle.bytes, sizeof(frag.remote_handle));
  const int rc =
      rail.btl->btl_put(rail.btl, rail.ep, static_cast<uint8_t*>(contiguous(req)) + offset, remote_address,
                        local, reinterpret_cast<mca_btl_base_registration_handle_t*>(frag.remote_handle),
                        length, 0, MCA_BTL_NO_ORDER, rdma_done, nullptr, &frag);
  if (rc == 1) return Post::kCompleted;
  return rc == OPAL_SUCCESS ? Post::kAccepted : post_of(rc);
}

Post BtlPort::get(const RailHandle& rail, RecvRequest& req, uint64_t offset, size_t length,
                  uint64_t remote_address, const xfer::HandleBytes& handle, FragRecord& frag) {
  bool registered = false;
  auto* local =
      const_cast<mca_btl_base_registration_handle_t*>(local_handle(req.xfer.reg, rail.btl, registered));
  if (!registered && rail.btl->btl_register_mem != nullptr &&
      length > rail.btl->btl_get_local_registration_threshold) {
    return Post::kUnreachable;
  }
  memcpy(frag.remote_handle, handle.bytes, sizeof(frag.remote_handle));
  const int rc =
      rail.btl->btl_get(rail.btl, rail.ep, static_cast<uint8_t*>(contiguous(req)) + offset, remote_address,
                        local, reinterpret_cast<mca_btl_base_registration_handle_t*>(frag.remote_handle),
                        length, 0, MCA_BTL_NO_ORDER, rdma_done, nullptr, &frag);
  if (rc == 1) return Post::kCompleted;
  return rc == OPAL_SUCCESS ? Post::kAccepted : post_of(rc);
}

// ---- registration

namespace {

void* contiguous_base(opal_convertor_t* conv) {
  if (opal_convertor_need_buffers(conv) != 0) return nullptr;
  size_t position = 0;
  void* base = nullptr;
  opal_convertor_set_position(conv, &position);
  opal_convertor_get_current_pointer(conv, &base);
  return base;
}

}  // namespace

void* BtlPort::contiguous(SendRequest& req) {
  return req.base.req_bytes_packed == 0 ? nullptr : contiguous_base(&req.base.req_base.req_convertor);
}

void* BtlPort::contiguous(RecvRequest& req) {
  return req.direct;
}

void BtlPort::unpack_scattered(RecvRequest& req, uint64_t offset, const void* bytes, size_t length) {
  opal_convertor_t* conv = &req.base.req_base.req_convertor;
  struct iovec iov = {const_cast<void*>(bytes), length};
  uint32_t count = 1;
  size_t stored = length;
  size_t position = offset;
  opal_convertor_set_position(conv, &position);
  opal_convertor_unpack(conv, &iov, &count, &stored);
}

bool BtlPort::register_all(const Peer* peer, void* base, size_t size, uint32_t flags, Registration& out) {
  if (peer == nullptr || base == nullptr) return false;
  out.size = 0;
  for (unsigned i = 0; i < peer->n_rails; ++i) {
    const Rail& rail = peer->rails[i];
    if (rail.limits.put_limit == 0 && rail.limits.get_limit == 0) continue;
    mca_btl_base_module_t* btl = rail.handle.btl;
    mca_btl_base_registration_handle_t* handle = nullptr;
    if (btl->btl_register_mem != nullptr) {
      handle = btl->btl_register_mem(btl, rail.handle.ep, base, size, flags);
      if (handle == nullptr) continue;
    }
    out.one[out.size++] = {btl, handle};
  }
  return out.size > 0;
}

bool BtlPort::register_send(SendRequest& req, size_t size, Registration& out) {
  return register_all(req.xfer.proc->peer, contiguous(req), size, MCA_BTL_REG_FLAG_REMOTE_READ, out);
}

bool BtlPort::register_recv(RecvRequest& req, size_t size, Registration& out) {
  return register_all(req.xfer.proc->peer, contiguous(req), size,
                      MCA_BTL_REG_FLAG_LOCAL_WRITE | MCA_BTL_REG_FLAG_REMOTE_WRITE, out);
}

void BtlPort::deregister(Registration& registration) {
  for (unsigned i = 0; i < registration.size; ++i) {
    const Registration::One& one = registration.one[i];
    if (one.handle != nullptr) one.btl->btl_deregister_mem(one.btl, one.handle);
  }
  registration.size = 0;
}

bool BtlPort::handle(const Registration& registration, const RailHandle& rail, xfer::HandleBytes& out) {
  bool found = false;
  const mca_btl_base_registration_handle_t* local = local_handle(registration, rail.btl, found);
  if (!found) return false;
  out = {};
  if (local == nullptr) return true;
  const size_t size = rail.btl->btl_registration_handle_size;
  if (size > sizeof(out.bytes)) return false;
  memcpy(out.bytes, local, size);
  out.size = static_cast<uint8_t>(size);
  return true;
}

// ---- MPI

void BtlPort::complete_send(SendRequest& req, Outcome outcome) {
  send_request_done(req, outcome == Outcome::kOk ? MPI_SUCCESS : MPI_ERR_OTHER);
}

void* BtlPort::resolve(const CommHandle& comm, int32_t rank) {
  return module_.peer(ompi_comm_peer_lookup(comm.comm, rank));
}

namespace {

// The rail of a peer that failed last; nullptr when none ever did.
const Rail* last_lost(const ompi_proc_t* proc) {
  const auto* peer =
      static_cast<const Peer*>(static_cast<const void*>(proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML]));
  const Rail* last = nullptr;
  for (unsigned i = 0; peer != nullptr && i < peer->n_rails; ++i) {
    const Rail& rail = peer->rails[i];
    if (rail.event.down_ns != 0 && (last == nullptr || rail.event.down_ns > last->event.down_ns))
      last = &rail;
  }
  return last;
}

// Device and port of a rail in words.
void name_rail(const RailHandle& rail, bfo_rail_info_t& info) {
  if (rail.failover != nullptr && rail.failover->rail_info(rail.btl, rail.ep, &info) == OPAL_SUCCESS) return;
  info = {};
  snprintf(info.device, sizeof(info.device), "%s", rail.btl->btl_component->btl_version.mca_component_name);
}

}  // namespace

void BtlPort::peer_failed(const PeerHandle& peer, Outcome outcome) {
  if (module_.leaving()) return;
  const char* host = opal_get_proc_hostname(&peer.proc->super);
  const int rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  const int other = static_cast<int>(peer.proc->super.proc_name.vpid);
  bfo_rail_info_t info = {};
  const Rail* rail = last_lost(peer.proc);
  if (rail != nullptr) name_rail(rail->handle, info);
  const char* device = rail != nullptr ? info.device : "none";
  const char* cause = rail != nullptr && rail->event.text[0] != '\0' ? rail->event.text : "unknown";
  if (outcome == Outcome::kMessageLost) {
    show_help("message-lost", rank, other, host, device, info.port, cause);
  } else {
    show_help("peer-lost", rank, other, host, module_.params().park_timeout, device, info.port, cause);
  }
}

// ---- rails

void BtlPort::fence(const RailHandle& rail, uint32_t epoch) {
  rail.failover->fence(rail.btl, rail.ep, epoch);
}

void BtlPort::connect(const RailHandle& rail) {
  rail.failover->connect(rail.btl, rail.ep);
}

void BtlPort::peer_down(const RailHandle& rail, const RailName& name, int32_t cause) {
  const bfo_rail_name_t wire = {name.conn, name.epoch, 0};
  if (rail.failover == nullptr) return;  // forged: nobody says that of a rail without epochs
  rail.failover->peer_down(rail.btl, rail.ep, &wire, cause);
}

void BtlPort::peer_closed(const RailHandle& rail, const RailName& name, uint64_t delivered) {
  const bfo_rail_name_t wire = {name.conn, name.epoch, 0};
  if (rail.failover == nullptr) return;
  rail.failover->peer_closed(rail.btl, rail.ep, &wire, delivered);
}

// ---- clock and log

uint64_t BtlPort::now_ns() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void BtlPort::emit(const FailoverEvent& event) {
  // Rails and peers that go away in order are no failure.
  if (module_.leaving() || event.cause == BFO_CAUSE_SHUTDOWN) return;
  const auto* peer = static_cast<const PeerHandle*>(event.peer);
  const auto* rail = static_cast<const RailHandle*>(event.rail_handle);
  FailoverEvent told = event;
  if (rail == nullptr && peer != nullptr) {
    // The end of a peer is told with the rail that went last.
    if (const Rail* last = last_lost(peer->proc); last != nullptr) {
      rail = &last->handle;
      told.rail = last->index;
      told.epoch = last->event.epoch;
      memcpy(told.text, last->event.text, sizeof(told.text));
    }
  }
  bfo_rail_info_t info = {};
  EventNames names;
  names.rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  names.peer = peer == nullptr ? -1 : static_cast<int>(peer->proc->super.proc_name.vpid);
  if (rail != nullptr) {
    name_rail(*rail, info);
    names.device = info.device;
    names.port = info.port;
  }
  module_.events().write(told, names);
  // The side that saw the failure tells the user; the other one heard it from there.
  if (strcmp(event.what, "failover") == 0 && event.cause != BFO_CAUSE_PEER_DOWN) {
    module_.console().tell(event, names, now_ns());
  }
}

}  // namespace bfo::glue
