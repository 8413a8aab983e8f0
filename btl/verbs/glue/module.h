// SPDX-License-Identifier: BSD-3-Clause
//
// module.h: one BTL module = one port, its fragments and its peers.
#pragma once

#include "btl/verbs/engine/select/modex.h"
#include "btl/verbs/engine/select/pairing.h"
#include "btl/verbs/engine/rail/port.h"
#include "btl/verbs/engine/select/selection.h"
#include "btl/verbs/glue/component.h"
#include "btl/verbs/glue/frag_pool.h"
#include "btl/verbs/glue/loss_episode.h"
#include "common/failover_btl.h"

/// One peer on one port. The engine's endpoint is the first member: the two convert into each other by cast.
struct mca_btl_base_endpoint_t {
  bfo::engine::Endpoint engine;
};

namespace bfo::verbs {

/// One registration in the cache.
struct Registration {
  mca_rcache_base_registration_t super;
  ibv_mr* mr;
  mca_btl_base_registration_handle_t handle;
};

/// A module. The BTL's public part is the first member.
struct Module {
  mca_btl_base_module_t super;
  engine::Port port;
  engine::PortPlace place;  ///< as it was published
  DeviceSlot* device;
  engine::PortLock pool_lock;
  FragPool eager;
  FragPool middle;  ///< for what is a little longer; made when it is needed
  FragPool large;
  FragPool rdma;
  FragPool spare;  ///< not registered
  mca_btl_base_module_error_cb_fn_t error_cb;
  bfo_failover_sink_t sink;
  void* sink_ctx;
  bool bound;
  bool error_reported;
  bool fixed_rate;  ///< the user has said what its bandwidth is
  bool guess_reported;
  LossEpisode losses[2];      ///< of packets that it sends, and that are sent to it
  uint32_t missing_reported;  ///< one bit per engine::Object of which a sentence was printed
};

inline Module* module_of(mca_btl_base_module_t* btl) {
  return reinterpret_cast<Module*>(btl);
}
/// The process at the other end, looked up by its name: few endpoints ever need it, so none stores it.
inline opal_proc_t* proc_of(const engine::Endpoint& endpoint) {
  const uint64_t name = endpoint.peer.name;
  return opal_proc_for_name({static_cast<uint32_t>(name >> 32), static_cast<uint32_t>(name)});
}
inline mca_btl_base_endpoint_t* endpoint_of(engine::Endpoint& endpoint) {
  return reinterpret_cast<mca_btl_base_endpoint_t*>(&endpoint);
}

/// Makes a module on the port of `device` that `facts` describe from the `defaults`; `may_be_down`: also when
/// the port is not active. nullptr after printing why.
Module* module_open(Component& component, DeviceSlot& device, const engine::PortFacts& facts,
                    const mca_btl_base_module_t& defaults, bool may_be_down);
/// Fills the function table and limits every module starts from.
void module_defaults(mca_btl_base_module_t* defaults);
/// Says once that the port's lanes have a speed or number that nobody knows, if that is so.
void say_guessed_rate(Module& module);

// record.cc
/// Publishes the ports of this process. OPAL_SUCCESS or an OPAL error.
int publish_ports(Component& component);
/// Copies what `proc` has published to `ports`, which has room for kMaxModules. Their number: 0 when it has
/// none, or, after one sentence for each host, when they cannot be spoken with. `there`: it has a record.
int read_ports(const opal_proc_t* proc, engine::ModexPort* ports, bool* there = nullptr);

/// peers.cc
int peer_ports(opal_proc_t* proc);
/// engine::Host::peer_gids.
size_t peer_gids(void* ctx, engine::Endpoint& endpoint, engine::PublishedGid* out);
/// Of bfo_failover_btl_t.
int peer_port(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, char* device, size_t size,
              uint32_t* number);
int add_procs(mca_btl_base_module_t* btl, size_t count, opal_proc_t** procs,
              mca_btl_base_endpoint_t** endpoints, opal_bitmap_t* reachable);
int del_procs(mca_btl_base_module_t* btl, size_t count, opal_proc_t** procs,
              mca_btl_base_endpoint_t** endpoints);
engine::Endpoint* find_peer(void* ctx, uint64_t name);

/// transfer.cc
mca_btl_base_descriptor_t* alloc(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, uint8_t order,
                                 size_t size, uint32_t flags);
int free_descriptor(mca_btl_base_module_t* btl, mca_btl_base_descriptor_t* descriptor);
mca_btl_base_descriptor_t* prepare_src(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
                                       opal_convertor_t* convertor, uint8_t order, size_t reserve,
                                       size_t* size, uint32_t flags);
int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, mca_btl_base_descriptor_t* descriptor,
         mca_btl_base_tag_t tag);
int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, opal_convertor_t* convertor,
          void* header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
          mca_btl_base_tag_t tag, mca_btl_base_descriptor_t** descriptor);
int send_bytes(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, uint8_t tag, const void* header,
               size_t header_size, const void* payload, size_t payload_size);
int put(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t done, void* context, void* data);
int get(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint, void* local_address,
        uint64_t remote_address, mca_btl_base_registration_handle_t* local_handle,
        mca_btl_base_registration_handle_t* remote_handle, size_t size, int flags, int order,
        mca_btl_base_rdma_completion_fn_t done, void* context, void* data);
constexpr bool is_of_pml(uint8_t tag) {
  return tag >= MCA_BTL_TAG_PML && tag < MCA_BTL_TAG_OSC_RDMA;
}
/// Messages of those who tell each other of dead processes, in libmpi itself, which knows one module only.
/// Who gets one twice ignores the second, because the tree that carries them is mended while it is used; but
/// not when the agreement that it belongs to is over for long. So each is signaled: what is known to be
/// delivered does not go again. They keep their order (kept.h).
constexpr bool goes_elsewhere(uint8_t tag) {
  return kTellsOfTheDead && !is_of_pml(tag) && !is_of_window(tag);
}
/// Sends a copy over `rail`, signaled. False: it has no room, or is not up.
bool send_copy(engine::Endpoint& rail, uint8_t tag, const void* data, size_t length);
void frag_done(void* ctx, engine::Endpoint& endpoint, engine::Frag* frag, int status);
void deliver(void* ctx, engine::Endpoint& endpoint, uint8_t tag, char* data, uint32_t length);

/// kept.cc: of messages that go elsewhere.
/// Sends one over another rail that is up. False: there is none, or it has no room.
bool send_elsewhere(const engine::Endpoint& lost, uint8_t tag, const void* data, size_t length);
/// Do others for that peer wait already? Then a further one must, too.
bool waits_for_rail(const engine::Endpoint& rail);
/// Sends it when a rail takes it. False: there is no memory.
bool keep(const engine::Endpoint& lost, uint8_t tag, const void* data, size_t length);
/// Tries those that are kept. Progress function only.
void send_kept(Component& component);

/// memory.cc
void rcache_open(Component& component, DeviceSlot& device);
void rcache_close(DeviceSlot& device);
mca_btl_base_registration_handle_t* register_memory(mca_btl_base_module_t* btl,
                                                    mca_btl_base_endpoint_t* endpoint, void* base,
                                                    size_t size, uint32_t flags);
int deregister_memory(mca_btl_base_module_t* btl, mca_btl_base_registration_handle_t* handle);

/// failover.cc
/// A message that is not the PML's was not delivered, or cannot be sent. True: it goes over another rail, or
/// waits for one. Nobody sends one of osc rdma again, and it waits for ever: the PML hears of it by an error
/// that is not fatal for the BTL.
bool foreign_failed(Module& module, engine::Endpoint& endpoint, uint8_t tag, const void* data, size_t length);
int register_error(mca_btl_base_module_t* btl, mca_btl_base_module_error_cb_fn_t callback);
engine::Host make_host(Module& module);
/// The locked memory this process may have, in bytes; UINT64_MAX without a limit.
uint64_t locked_memory_limit();
/// Prints what is missing for a rail, once per object.
/// What helps when a call of the start failed with `error`, in at most `size` bytes.
void start_remedy(int error, char* text, size_t size);
/// Says that the component is not used because it could not `what`.
void start_failed(const char* what, int error);
void rail_missing(void* ctx, engine::Endpoint& endpoint);
void path_unknown(void* ctx, const engine::PathTrouble& trouble);
void thread_missing(void* ctx, int error);
void payload_failed(void* ctx, engine::Endpoint& endpoint, uint8_t tag, const void* data, uint32_t length,
                    int status);

/// packet_loss.cc: of engine::Host.
engine::LossTurn loss_turn(void* ctx, uint64_t now);
bool loss_goes_on(void* ctx, bool in);
void packet_loss(void* ctx, const engine::PortLoss& loss);

}  // namespace bfo::verbs

extern "C" {
OPAL_DECLSPEC extern const bfo_failover_btl_t mca_btl_verbs_failover;
}
