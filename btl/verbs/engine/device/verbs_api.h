// SPDX-License-Identifier: BSD-3-Clause
//
// verbs_api.h: the table of control verbs the engine calls.
//
// Everything that is not on the data path goes through this table, so that tests can hand in a device of
// their own. The data path verbs (post_send, post_srq_recv, poll_cq) are reached through ibv_context::ops as
// libibverbs does: a fake device fills those in itself.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "btl/verbs/engine/device/loss_counters.h"

namespace bfo::engine {

/// `bytes`, whole pages, of zeroed memory that will be registered; nullptr when the system has none.
void* map_pages(size_t bytes);
/// Gives all of them back. Only the first `used` bytes have been written.
void unmap_pages(void* pages, size_t bytes, size_t used);

/// Control verbs with the meaning, return values and errno conventions of libibverbs(7). Ownership of
/// returned objects is the caller's. The event thread calls get_async_event, ack_async_event, get_cq_event,
/// ack_cq_events and, for its own objects (heartbeat.h), create_ah, destroy_ah and modify_qp; everything else
/// is called by the progress thread.
struct VerbsApi {
  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  const char* (*get_device_name)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_device)(ibv_context* context, ibv_device_attr* attr);
  int (*query_port)(ibv_context* context, uint8_t port, ibv_port_attr* attr);
  /// Of rdma-core 62: the bandwidth of the port in 100 Mbit/s. EOPNOTSUPP: the library, the kernel or the
  /// device cannot tell. nullptr: as that.
  int (*query_port_speed)(ibv_context* context, uint32_t port, uint64_t* speed);
  /// ibv_port_attr::active_speed_ex, which older headers do not have; 0: not known. nullptr: as that.
  uint32_t (*active_speed_ex)(ibv_context* context, uint8_t port);
  /// Bytes that have come in at the port, also of messages that have not ended, as far as its counters tell:
  /// they may count less, never more. EOPNOTSUPP: the device has none. nullptr: as that. A control thread.
  int (*port_received)(ibv_context* context, uint8_t port, uint64_t* bytes) = nullptr;
  /// What the port has counted of lost packets; `files` remembers where. EOPNOTSUPP: the library does not
  /// read files. nullptr: as that. A control thread.
  int (*port_losses)(ibv_context* context, uint8_t port, LossCounters* files, LossCounts* counts) = nullptr;
  int (*query_gid)(ibv_context* context, uint8_t port, int index, ibv_gid* gid);
  int (*query_pkey)(ibv_context* context, uint8_t port, int index, uint16_t* pkey);  ///< as it is on the wire
  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* pd);
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, size_t length, int access);
  int (*dereg_mr)(ibv_mr* mr);
  ibv_cq* (*create_cq)(ibv_context* context, int entries);
  int (*destroy_cq)(ibv_cq* cq);
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  /// A completion queue that raises events on `channel`.
  ibv_cq* (*create_event_cq)(ibv_context* context, int entries, ibv_comp_channel* channel);
  /// Takes one waiting event of a channel whose descriptor is non-blocking; false when there is none.
  bool (*get_cq_event)(ibv_comp_channel* channel);
  void (*ack_cq_events)(ibv_cq* cq, unsigned count);
  ibv_srq* (*create_srq)(ibv_pd* pd, ibv_srq_init_attr* attr);
  int (*modify_srq)(ibv_srq* srq, ibv_srq_attr* attr, int mask);
  int (*destroy_srq)(ibv_srq* srq);
  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attr);
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask);  ///< errno, like the other int functions
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init);
  int (*destroy_qp)(ibv_qp* qp);
  ibv_ah* (*create_ah)(ibv_pd* pd, ibv_ah_attr* attr);
  int (*destroy_ah)(ibv_ah* ah);
  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);
  // The memory that the engine registers for itself. Who makes thousands of ports keeps it.
  void* (*map_pages)(size_t bytes) = engine::map_pages;
  void (*unmap_pages)(void* pages, size_t bytes, size_t used) = engine::unmap_pages;
};

/// The table of the libibverbs this process is linked with. Constant, never freed, any thread.
const VerbsApi& system_verbs();

}  // namespace bfo::engine
