// SPDX-License-Identifier: BSD-3-Clause
//
// Devices: listing, opening, and what they say about themselves.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "contrib/softhca/abi/verb_faults.h"
#include "contrib/softhca/abi/objects.h"
#include "contrib/softhca/fabric/gids.h"
#include "contrib/softhca/fabric/tables.h"
#include "contrib/softhca/fault/link_speed.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kVendorId = 0x5348;
constexpr uint32_t kVendorPartId = 1;
constexpr int kCompVectors = 4;
constexpr uint64_t kPageSizes = 0xfffffffffffff000u;

uint32_t device_index(const ibv_device* device) {
  return static_cast<uint32_t>(device - Process::instance().device(0));
}

uint64_t node_guid(uint32_t node, uint32_t device) {
  return 0x0250'42ff'fe00'0000u | node << 12 | device << 4;
}

void fill_device_attr(const Context& context, ibv_device_attr& attr) {
  std::memset(&attr, 0, sizeof(attr));
  const FabricHeader& h = fabric().header();
  auto room_for = [&](ObjectKind kind) {
    return static_cast<int>(object_limit(fabric(), fabric().node(), context.device, kind));
  };
  std::strcpy(attr.fw_ver, "1.0.0");
  attr.node_guid = __builtin_bswap64(node_guid(fabric().node(), context.device));
  attr.sys_image_guid = attr.node_guid;
  attr.max_mr_size = ~uint64_t{0};
  attr.page_size_cap = kPageSizes;
  attr.vendor_id = kVendorId;
  attr.vendor_part_id = kVendorPartId;
  attr.max_qp = room_for(ObjectKind::kQp);
  attr.max_qp_wr = kMaxQpWr;
  attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
                          IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_CURR_QP_STATE_MOD |
                          IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_CHANGE_PHY_PORT | IBV_DEVICE_BAD_PKEY_CNTR |
                          IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                          IBV_DEVICE_MEM_MGT_EXTENSIONS;
  attr.max_sge = kMaxSge;
  attr.max_sge_rd = kMaxSge;
  attr.max_cq = room_for(ObjectKind::kCq);
  attr.max_cqe = kMaxCqe;
  attr.max_mr = room_for(ObjectKind::kMr);
  attr.max_pd = room_for(ObjectKind::kPd);
  attr.max_qp_rd_atom = kMaxRdAtomic;
  attr.max_res_rd_atom = static_cast<int>(kMaxRdAtomic * 1024);
  attr.max_qp_init_rd_atom = kMaxRdAtomic;
  attr.atomic_cap = IBV_ATOMIC_HCA;
  attr.max_mw = kMaxMrs - 1;
  attr.max_mcast_grp = kMaxMcast;
  attr.max_mcast_qp_attach = kMaxMcastMembers;
  attr.max_total_mcast_qp_attach = kMaxMcast * kMaxMcastMembers;
  attr.max_ah = room_for(ObjectKind::kAh);
  attr.max_srq = room_for(ObjectKind::kSrq);
  attr.max_srq_wr = kMaxQpWr;
  attr.max_srq_sge = kMaxSge;
  attr.max_pkeys = kPkeysPerPort;
  attr.local_ca_ack_delay = 0;
  attr.phys_port_cnt = static_cast<uint8_t>(h.ports);
}

PortEntry& port_of(const Context& context, uint8_t port) {
  return fabric().header().ports_table[port_index(fabric().node(), context.device, port)];
}

GidList table_of(const Context& context, uint32_t port) {
  return gids_of(fabric().header(), port_index(fabric().node(), context.device, port));
}

bool port_exists(uint8_t port) {
  return port >= 1 && port <= fabric().header().ports;
}

/// Fields up to `flags` are common to every version of the struct.
void fill_port_attr(const Context& context, uint8_t number, ibv_port_attr& attr) {
  std::memset(&attr, 0, sizeof(attr));
  PortEntry& port = port_of(context, number);
  bool up = port.state.load() == kPortActive;
  attr.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = IBV_MTU_4096;
  const FabricHeader& h = fabric().header();
  attr.gid_tbl_len = static_cast<int>(table_of(context, number).count);
  attr.port_cap_flags = IBV_PORT_TRAP_SUP | IBV_PORT_CM_SUP | IBV_PORT_SYS_IMAGE_GUID_SUP;
  attr.max_msg_sz = 1u << 30;
  attr.pkey_tbl_len = kPkeysPerPort;
  const bool ethernet = is_ethernet(h);
  attr.lid = ethernet ? 0 : port.lid.load();
  attr.sm_lid = ethernet ? 0 : manager_lid(h);
  attr.lmc = static_cast<uint8_t>(h.lmc);
  attr.max_vl_num = 4;
  attr.subnet_timeout = 18;
  const LinkSpeed speed = unpack_link_speed(port.speed.load());
  attr.active_width = speed.width;
  attr.active_speed = static_cast<uint8_t>(std::min(speed.lane, kMostSpeedOf8Bits));
  attr.phys_state = up ? 5 : 3;
  attr.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
}

void fill_gid(const Context& context, uint32_t port, uint32_t index, ibv_gid& gid) {
  make_gid(fabric().header(), port_index(fabric().node(), context.device, port), index, gid.raw);
}

void fill_context(Context& context, ibv_device* device) {
  verbs_context& v = context.verbs;
  v.query_port = op_query_port;
  v.query_device_ex = op_query_device_ex;
  v.query_rt_values = op_query_rt_values;
  v.create_cq_ex = op_create_cq_ex;
  v.create_qp_ex = op_create_qp_ex;
  v.create_srq_ex = op_create_srq_ex;
  v.alloc_parent_domain = op_alloc_parent_domain;
  v.alloc_td = op_alloc_td;
  v.dealloc_td = op_dealloc_td;
  v.advise_mr = op_advise_mr;
  v.sz = sizeof(verbs_context);
  ibv_context& c = v.context;
  c.device = device;
  c.ops.alloc_mw = op_alloc_mw;
  c.ops.bind_mw = op_bind_mw;
  c.ops.dealloc_mw = op_dealloc_mw;
  c.ops.poll_cq = op_poll_cq;
  c.ops.req_notify_cq = op_req_notify_cq;
  c.ops.post_srq_recv = op_post_srq_recv;
  c.ops.post_send = op_post_send;
  c.ops.post_recv = op_post_recv;
  c.num_comp_vectors = kCompVectors;
  c.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&c.mutex, nullptr);
}

}  // namespace

int op_query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t bytes) {
  if (int why = verb_fault(ControlVerb::kQueryPort, context, at_port(port))) return why;
  if (!port_exists(port)) return EINVAL;
  // Programs built with a newer header than this library have active_speed_ex at the end.
  constexpr size_t kSpeedEx = 52;
  ibv_port_attr known;
  fill_port_attr(*of(context), port, known);
  const uint32_t lane = unpack_link_speed(port_of(*of(context), port).speed.load()).lane;
  uint8_t full[kSpeedEx + sizeof(lane)];
  static_assert(sizeof(known) >= kSpeedEx);
  std::memcpy(full, &known, kSpeedEx);
  std::memcpy(full + kSpeedEx, &lane, sizeof(lane));
  std::memcpy(attr, full, std::min(bytes, sizeof(full)));
  return 0;
}

int op_query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                       size_t bytes) {
  if (int why = verb_fault(ControlVerb::kQueryDevice, context)) return why;
  if (bytes < sizeof(ibv_device_attr) || (input != nullptr && input->comp_mask != 0)) return EINVAL;
  ibv_device_attr_ex full;
  std::memset(&full, 0, sizeof(full));
  fill_device_attr(*of(context), full.orig_attr);
  full.completion_timestamp_mask = ~uint64_t{0};
  full.hca_core_clock = 1'000'000;  // kHz: time stamps are nanoseconds
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
  full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
  std::memcpy(attr, &full, bytes < sizeof(full) ? bytes : sizeof(full));
  return 0;
}

int op_query_rt_values(ibv_context* context, ibv_values_ex* values) {
  uint32_t mask = 0;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    uint64_t now = fabric().now();
    values->raw_clock.tv_sec = static_cast<time_t>(now / 1'000'000'000u);
    values->raw_clock.tv_nsec = static_cast<long>(now % 1'000'000'000u);
    mask |= IBV_VALUES_MASK_RAW_CLOCK;
  }
  values->comp_mask = mask;
  return 0;
}

}  // namespace bfo::softhca

using namespace bfo::softhca;

SOFTHCA_EXPORT ibv_device** ibv_get_device_list(int* count) {
  Process& process = Process::instance();
  process.open();
  const uint32_t devices = process.fabric().header().devices;
  if (verb_faults_armed()) {
    VerbCall call;
    call.verb = ControlVerb::kGetDeviceList;
    errno = apply_verb_faults(call);
    if (errno != 0) return nullptr;
  }
  auto** list = static_cast<ibv_device**>(std::calloc(devices + 1, sizeof(ibv_device*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  for (uint32_t i = 0; i < devices; ++i) list[i] = process.device(i);
  if (count != nullptr) *count = static_cast<int>(devices);
  return list;
}

SOFTHCA_EXPORT void ibv_free_device_list(ibv_device** list) {
  std::free(list);
}

SOFTHCA_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

SOFTHCA_EXPORT int ibv_get_device_index(ibv_device* device) {
  return static_cast<int>(device_index(device));
}

SOFTHCA_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  return __builtin_bswap64(node_guid(fabric().node(), device_index(device)));
}

SOFTHCA_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  Process& process = Process::instance();
  process.open();
  if (verb_faults_armed()) {
    VerbCall call;
    call.verb = ControlVerb::kOpenDevice;
    call.device = static_cast<uint16_t>(device_index(device));
    if (int why = apply_verb_faults(call)) {
      errno = why;
      return nullptr;
    }
  }
  // Without it nothing that waits for a time would happen.
  if (!process.start_timer()) return nullptr;
  auto* context = static_cast<Context*>(std::calloc(1, sizeof(Context)));
  int ends[2];
  if (context == nullptr || pipe2(ends, O_CLOEXEC) != 0) {
    const int why = context == nullptr ? ENOMEM : errno;
    std::free(context);
    errno = why;
    return nullptr;
  }
  new (&context->refs) std::atomic<int>(0);
  context->device = static_cast<uint32_t>(device - process.device(0));
  const WakeName wake = fabric().wake_name(ends[0]);
  context->entry = allocate_context(fabric(), fabric().node(), context->device, wake);
  if (context->entry == nullptr) {
    close(ends[0]);
    close(ends[1]);
    fabric().forget_wake(wake);
    std::free(context);
    errno = ENOMEM;
    return nullptr;
  }
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  fill_context(*context, device);
  context->verbs.context.async_fd = ends[0];
  context->verbs.context.cmd_fd = ends[0];
  context->wake_fd = ends[1];
  return &context->verbs.context;
}

SOFTHCA_EXPORT int ibv_close_device(ibv_context* base) {
  if (verb_fails(ControlVerb::kCloseDevice, base)) return -1;
  Context* context = of(base);
  const WakeName wake = context->entry->wake;
  free_context(fabric(), *context->entry);
  close(base->async_fd);
  close(context->wake_fd);
  fabric().forget_wake(wake);
  std::free(context);
  return 0;
}

SOFTHCA_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  if (int why = verb_fault(ControlVerb::kQueryDevice, context)) return why;
  fill_device_attr(*of(context), *attr);
  return 0;
}

SOFTHCA_EXPORT int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  // Older programs have a struct that ends after link_layer and flags.
  constexpr size_t kCommon = offsetof(ibv_port_attr, port_cap_flags2);
  return op_query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), kCommon);
}

/// Of rdma-core 62: the bandwidth of the port in 100 Mbit/s, whatever its lanes are.
SOFTHCA_EXPORT int ibv_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  if (port > UINT8_MAX || !port_exists(static_cast<uint8_t>(port))) return EINVAL;
  const auto number = static_cast<uint8_t>(port);
  if (int why = verb_fault(ControlVerb::kQueryPortSpeed, context, at_port(number))) return why;
  const uint32_t effective = unpack_link_speed(port_of(*of(context), number).speed.load()).effective;
  if (effective == 0) return EOPNOTSUPP;
  *speed = effective;
  return 0;
}

SOFTHCA_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  if (verb_fails(ControlVerb::kQueryGid, context, at_port(port))) return -1;
  if (!port_exists(port) || index < 0 || index >= static_cast<int>(table_of(*of(context), port).count)) {
    errno = EINVAL;
    return -1;
  }
  fill_gid(*of(context), port, static_cast<uint32_t>(index), *gid);
  return 0;
}

SOFTHCA_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index, unsigned* type) {
  if (!port_exists(port) || index >= table_of(*of(context), port).count) {
    errno = EINVAL;
    return -1;
  }
  *type = is_version_2(table_of(*of(context), port).kind[index]) ? 1 : 0;  // 0: InfiniBand and RoCE v1
  return 0;
}

static int gid_entry(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                     size_t bytes) {
  if (port == 0 || port > fabric().header().ports || index >= kMaxGids) return EINVAL;
  const GidKind kind = table_of(*of(context), port).kind[index];
  if (kind == GidKind::kNone) return ENODATA;
  ibv_gid_entry full;
  std::memset(&full, 0, sizeof(full));
  fill_gid(*of(context), port, index, full.gid);
  full.gid_index = index;
  full.port_num = port;
  if (kind != GidKind::kIb)
    full.ndev_ifindex =
        interface_of_gid(fabric().header(), port_index(fabric().node(), of(context)->device, port), index);
  full.gid_type = kind == GidKind::kIb ? IBV_GID_TYPE_IB
                  : is_version_2(kind) ? IBV_GID_TYPE_ROCE_V2
                                       : IBV_GID_TYPE_ROCE_V1;
  std::memcpy(entry, &full, bytes < sizeof(full) ? bytes : sizeof(full));
  return 0;
}

SOFTHCA_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                     ibv_gid_entry* entry, uint32_t flags, size_t bytes) {
  if (flags != 0) return EOPNOTSUPP;
  if (int why = verb_fault(ControlVerb::kQueryGid, context, at_port(port))) return why;
  return gid_entry(context, port, index, entry, bytes);
}

SOFTHCA_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t count,
                                            uint32_t flags, size_t bytes) {
  if (flags != 0) return -EOPNOTSUPP;
  if (int why = verb_fault(ControlVerb::kQueryGid, context)) return -why;
  size_t filled = 0;
  for (uint32_t port = 1; port <= fabric().header().ports; ++port) {
    for (uint32_t index = 0; index < kMaxGids; ++index) {
      ibv_gid_entry entry;
      if (gid_entry(context, port, index, &entry, sizeof(entry)) != 0) continue;
      if (filled == count) return -EINVAL;
      std::memcpy(reinterpret_cast<char*>(entries) + filled++ * bytes, &entry,
                  std::min(bytes, sizeof(entry)));
    }
  }
  return static_cast<ssize_t>(filled);
}

SOFTHCA_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  if (verb_fails(ControlVerb::kQueryPkey, context, at_port(port))) return -1;
  if (!port_exists(port) || index < 0 || index >= static_cast<int>(kPkeysPerPort)) {
    errno = EINVAL;
    return -1;
  }
  *pkey = __builtin_bswap16(port_of(*of(context), port).pkey[index].load());
  return 0;
}

SOFTHCA_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  for (int index = 0; index < static_cast<int>(kPkeysPerPort); ++index) {
    __be16 found;
    if (ibv_query_pkey(context, port, index, &found) != 0) break;
    if (found == pkey) return index;
  }
  errno = EINVAL;
  return -1;
}
