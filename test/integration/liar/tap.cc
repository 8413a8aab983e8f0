// SPDX-License-Identifier: BSD-3-Clause
//
// tap.cc: stands between the PML and the BTLs of this process (tap.h).
#include "test/integration/liar/tap.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>

#include "common/compat/ompi_includes.h"
#include "common/failover_btl.h"

Tap& Tap::one() {
  static Tap tap;
  return tap;
}

void Tap::note(bool from_peer, uint8_t tag, const void* data, size_t length, const void* more,
               size_t more_length) {
  if (!listening) return;
  Heard h{};
  h.tag = tag;
  h.from_peer = from_peer;
  h.length = static_cast<uint32_t>(length + more_length);
  const size_t first = std::min(length, sizeof h.bytes);
  if (first != 0) std::memcpy(h.bytes, data, first);
  const size_t rest = std::min(more_length, sizeof h.bytes - first);
  if (rest != 0) std::memcpy(h.bytes + first, more, rest);
  if (heard_.size() < kMost)
    heard_.push_back(h);
  else
    heard_[next_++ % kMost] = h;
  ++count;
}

namespace {

// ---- verbs: the contract ----
int find(dl_phdr_info* object, size_t, void* path) {
  if (std::strstr(object->dlpi_name, "/mca_btl_verbs.so") == nullptr) return 0;
  *static_cast<const char**>(path) = object->dlpi_name;
  return 1;
}

const bfo_failover_btl_t* real() {
  static const bfo_failover_btl_t* contract = nullptr;
  if (contract != nullptr) return contract;
  const char* path = nullptr;
  dl_iterate_phdr(find, &path);
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr)
    contract = static_cast<const bfo_failover_btl_t*>(dlsym(library, "mca_btl_verbs_failover"));
  return contract;
}

/// The function of the real contract that `member` points to.
template <auto member>
struct Pass;
template <class Result, class... Args, Result (*bfo_failover_btl_t::*member)(Args...)>
struct Pass<member> {
  static Result call(Args... args) { return (real()->*member)(args...); }
};

bfo_failover_sink_t sink_of_pml;

void message(void* ctx, void* rail, uint32_t epoch, uint8_t tag, const void* data, size_t length) {
  Tap& tap = Tap::one();
  tap.note(true, tag, data, length);
  if (!tap.keeps(tag)) sink_of_pml.message(ctx, rail, epoch, tag, data, length);
}

// The contexts differ from module to module, the functions do not.
int bind_sink(mca_btl_base_module_t* btl, const bfo_failover_sink_t* sink, void* ctx) {
  if (sink == nullptr) return real()->bind(btl, nullptr, ctx);
  sink_of_pml = *sink;
  static bfo_failover_sink_t between;
  between = *sink;
  between.message = message;
  return real()->bind(btl, &between, ctx);
}

int send_bytes(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* ep, uint8_t tag, const void* header,
               size_t header_size, const void* payload, size_t payload_size) {
  Tap::one().note(false, tag, header, header_size, payload, payload_size);
  return real()->send_bytes(btl, ep, tag, header, header_size, payload, payload_size);
}

// The PML also asks where the BTL has not been loaded.
void host_ports(bfo_host_ports_t* out) {
  *out = {};
  if (real() != nullptr) real()->host_ports(out);
}
int peer_ports(opal_proc_t* proc) {
  return real() == nullptr ? -1 : real()->peer_ports(proc);
}

// ---- vader, tcp: active messages ----
mca_btl_active_message_callback_t of_pml[kTagsOfPml];

// What a callback gets differs between releases: tag, message and pointer, or a message that has all three.
template <class Message>
const Message& message_of(const Message* message) {
  return *message;
}
template <class Message>
const Message& message_of(mca_btl_base_tag_t, const Message* message, const void*) {
  return *message;
}
template <class Message>
uint8_t tag_of(const Message* message) {
  return message->tag;
}
template <class Message>
uint8_t tag_of(mca_btl_base_tag_t tag, const Message*, const void*) {
  return tag;
}

template <class... Args>
void active_message(mca_btl_base_module_t* btl, Args... args) {
  Tap& tap = Tap::one();
  const auto& message = message_of(args...);
  const uint8_t tag = tag_of(args...);
  if (message.des_segment_count > 0)
    tap.note(true, tag, message.des_segments[0].seg_addr.pval, message.des_segments[0].seg_len);
  const auto next = of_pml[tag - MCA_BTL_TAG_PML].cbfunc;
  if (!tap.keeps(tag) && next != nullptr) next(btl, args...);
}

// ---- what is sent with descriptors, or at once, by any BTL ----
struct Module {
  mca_btl_base_module_t* btl;
  mca_btl_base_module_send_fn_t send;
  mca_btl_base_module_sendi_fn_t sendi;
};
std::vector<Module> modules;

const Module& of(const mca_btl_base_module_t* btl) {
  return *std::find_if(modules.begin(), modules.end(), [&](const Module& m) { return m.btl == btl; });
}

int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* ep, mca_btl_base_descriptor_t* des,
         mca_btl_base_tag_t tag) {
  const mca_btl_base_segment_t* segments = des->des_segments;
  const bool two = des->des_segment_count > 1;
  Tap::one().note(false, tag, segments[0].seg_addr.pval, segments[0].seg_len,
                  two ? segments[1].seg_addr.pval : nullptr, two ? segments[1].seg_len : 0);
  return of(btl).send(btl, ep, des, tag);
}

int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* ep, opal_convertor_t* convertor, void* header,
          size_t header_size, size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
          mca_btl_base_descriptor_t** des) {
  Tap::one().note(false, tag, header, header_size);
  return of(btl).sendi(btl, ep, convertor, header, header_size, payload_size, order, flags, tag, des);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const bfo_failover_btl_t mca_btl_verbs_failover = {
    .magic = BFO_FAILOVER_MAGIC,
    .version = BFO_FAILOVER_VERSION,
    .size = sizeof(bfo_failover_btl_t),
    .build = "liar",
    .bind = bind_sink,
    .rail_info = Pass<&bfo_failover_btl_t::rail_info>::call,
    .attach = Pass<&bfo_failover_btl_t::attach>::call,
    .connect = Pass<&bfo_failover_btl_t::connect>::call,
    .fence = Pass<&bfo_failover_btl_t::fence>::call,
    .peer_down = Pass<&bfo_failover_btl_t::peer_down>::call,
    .peer_closed = Pass<&bfo_failover_btl_t::peer_closed>::call,
    .send_bytes = send_bytes,
    .outstanding = Pass<&bfo_failover_btl_t::outstanding>::call,
    .accounting = Pass<&bfo_failover_btl_t::accounting>::call,
    .work = Pass<&bfo_failover_btl_t::work>::call,
    .never_up = Pass<&bfo_failover_btl_t::never_up>::call,
    .peer_port = Pass<&bfo_failover_btl_t::peer_port>::call,
    .leave = Pass<&bfo_failover_btl_t::leave>::call,
    .host_ports = host_ports,
    .peer_ports = peer_ports,
};

void Tap::open() {
  for (unsigned i = 0; i < kTagsOfPml; ++i) {
    mca_btl_active_message_callback_t& entry = mca_btl_base_active_message_trigger[MCA_BTL_TAG_PML + i];
    of_pml[i] = entry;
    entry.cbfunc = active_message;
  }
  mca_btl_base_selected_module_t* selected = nullptr;
  OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t) {
    mca_btl_base_module_t* btl = selected->btl_module;
    modules.push_back({btl, btl->btl_send, btl->btl_sendi});
    btl->btl_send = send;
    if (btl->btl_sendi != nullptr) btl->btl_sendi = sendi;
  }
}
