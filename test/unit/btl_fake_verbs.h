// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fake_verbs.h: an InfiniBand fabric inside one test process: devices, queue pairs, completion queues and
// events that do exactly what a test orders. It executes work requests at once, in order, unless told to
// hold, fail, lose or refuse them. Virtual time only.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "btl/verbs/engine/port.h"
#include "btl/verbs/engine/verbs_api.h"

namespace bfo::test {

/// A completion channel: a pipe with one byte per event.
struct FakeChannel : ibv_comp_channel {
  int ends[2] = {-1, -1};
};

struct FakeCq : ibv_cq {
  std::deque<ibv_wc> entries;
  FakeChannel* events = nullptr;
  bool armed = false;
  bool broken = false;
  int polls = 0;
};

struct FakeSrq : ibv_srq {
  std::deque<ibv_recv_wr> wrs;
  std::deque<ibv_sge> sges;
};

struct FakeWork {
  ibv_send_wr wr{};
  ibv_sge sge{};
  std::vector<char> inlined;
};

struct FakeQp : ibv_qp {
  ibv_qp_init_attr init{};
  ibv_qp_attr attr{};
  std::deque<FakeWork> sq;  // posted, not executed
  std::deque<std::pair<uint64_t, ibv_sge>> rq;
  bool last_receive_raised = false;
};

struct FakeDevice : ibv_device {
  std::string fake_name;
  ibv_context context{};
  ibv_device_attr attr{};
  ibv_port_attr ports[3]{};
  std::deque<ibv_async_event> events;
  int event_pipe[2] = {-1, -1};
};

/// The fabric. One at a time; the verbs table below refers to the current one.
class FakeFabric {
 public:
  FakeFabric() { current() = this; }
  ~FakeFabric() {
    for (auto& device : devices) {
      ::close(device->event_pipe[0]);
      ::close(device->event_pipe[1]);
    }
    current() = nullptr;
  }
  static FakeFabric*& current() {
    static FakeFabric* fabric = nullptr;
    return fabric;
  }

  FakeDevice& add_device(const std::string& name, uint8_t ports = 1) {
    auto device = std::make_unique<FakeDevice>();
    device->fake_name = name;
    device->context.device = device.get();
    device->context.ops.poll_cq = poll_cq;
    device->context.ops.post_send = post_send;
    device->context.ops.req_notify_cq = req_notify_cq;
    device->context.ops.post_recv = post_recv;
    device->context.ops.post_srq_recv = post_srq_recv;
    if (pipe2(device->event_pipe, O_NONBLOCK) != 0) abort();
    device->context.async_fd = device->event_pipe[0];
    device->attr.phys_port_cnt = ports;
    device->attr.max_cqe = 4096;
    device->attr.max_srq_wr = 4096;
    device->attr.max_qp_rd_atom = 16;
    device->attr.max_qp_init_rd_atom = 16;
    for (uint8_t port = 1; port <= ports; ++port) {
      device->ports[port].state = IBV_PORT_ACTIVE;
      device->ports[port].lid = static_cast<uint16_t>(++next_lid);
      device->ports[port].link_layer = IBV_LINK_LAYER_INFINIBAND;
      device->ports[port].active_mtu = IBV_MTU_4096;
      device->ports[port].max_msg_sz = 1u << 30;
    }
    devices.push_back(std::move(device));
    return *devices.back();
  }

  // ---- orders
  bool hold = false;        // RC work stays in the send queue
  std::set<uint32_t> held;  // the same for single queue pairs
  int drop_datagrams = 0;   // this many are lost
  bool duplicate_datagrams = false;
  bool refuse_channels = false;    // no completion channel can be made
  bool raise_last_receive = true;  // QP_LAST_WQE_REACHED on the way to ERR
  bool check_keys = false;         // RDMA outside a registered region fails, as every HCA has it
  bool lose_marker = false;        // work posted in ERR never completes
  int refuse_post = 0;             // errno of the next RC post_send
  int refuse_error = 0;            // errno of modify_qp to ERR
  int refuse_destroy = 0;          // errno of destroy_qp
  int refuse_create = 0;           // errno of create_qp
  uint32_t max_inline = 256;
  bool overrun = false;  // a completion queue overran: never allowed

  /// The next `count`th RC work request of `qpn` completes with `status`; with `delivered` the responder has
  /// executed it.
  struct Fault {
    ibv_wc_status status;
    bool delivered;
  };
  std::map<uint32_t, Fault> faults;

  std::vector<std::unique_ptr<FakeDevice>> devices;
  std::vector<std::unique_ptr<FakeQp>> qps;
  std::vector<std::unique_ptr<FakeCq>> cqs;
  std::vector<std::unique_ptr<FakeSrq>> srqs;
  std::map<uint32_t, ibv_mr*> mrs;
  std::vector<std::pair<uint32_t, ibv_qp_attr>> modifications;  // qpn, attributes
  std::vector<std::string> packets;                             // datagrams as sent
  int signaled = 0;
  int inlined = 0;
  int posted = 0;

  FakeQp* find(uint32_t qpn) {
    for (auto& qp : qps) {
      if (qp->qp_num == qpn) return qp.get();
    }
    return nullptr;
  }

  /// Fails the oldest outstanding work request of `qpn` with `status`, as retry exhaustion does; the rest is
  /// flushed.
  bool fail(uint32_t qpn, ibv_wc_status status) {
    FakeQp* qp = find(qpn);
    if (qp == nullptr || qp->sq.empty()) return false;
    complete(*qp, qp->sq.front(), status);
    qp->sq.pop_front();
    to_error(*qp);
    return true;
  }

  void raise(FakeDevice& device, ibv_event_type type, int port = 0, ibv_qp* qp = nullptr) {
    ibv_async_event event{};
    event.event_type = type;
    if (qp != nullptr) {
      event.element.qp = qp;
    } else {
      event.element.port_num = port;
    }
    device.events.push_back(event);
    if (write(device.event_pipe[1], "e", 1) != 1) abort();
  }

  /// Executes what can be executed.
  void run() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t i = 0; i < qps.size(); ++i) progress = run_one(*qps[i]) || progress;
    }
  }

  void deliver_raw(FakeQp& qp, const void* data, size_t length) {
    if (qp.rq.empty()) return;
    auto [wr_id, sge] = qp.rq.front();
    qp.rq.pop_front();
    memcpy(reinterpret_cast<char*>(sge.addr) + 40, data, length);
    ibv_wc wc{};
    wc.wr_id = wr_id;
    wc.qp_num = qp.qp_num;
    wc.byte_len = static_cast<uint32_t>(length + 40);
    push(qp.init.recv_cq, wc);
  }

  void push(ibv_cq* cq, const ibv_wc& wc) {
    auto* fake = static_cast<FakeCq*>(cq);
    fake->entries.push_back(wc);
    if (fake->entries.size() > static_cast<size_t>(fake->cqe)) overrun = true;
    if (fake->events == nullptr || !fake->armed) return;
    fake->armed = false;
    if (write(fake->events->ends[1], "!", 1) != 1) abort();
  }

  void complete(FakeQp& qp, const FakeWork& work, ibv_wc_status status) {
    if (status == IBV_WC_SUCCESS && (work.wr.send_flags & IBV_SEND_SIGNALED) == 0 && !qp.init.sq_sig_all)
      return;
    ibv_wc wc{};
    wc.wr_id = work.wr.wr_id;
    wc.status = status;
    wc.qp_num = qp.qp_num;
    push(qp.init.send_cq, wc);
  }

  void to_error(FakeQp& qp) {
    qp.attr.qp_state = IBV_QPS_ERR;
    while (!qp.sq.empty()) {
      complete(qp, qp.sq.front(), IBV_WC_WR_FLUSH_ERR);
      qp.sq.pop_front();
    }
    if (qp.init.srq != nullptr && raise_last_receive && !qp.last_receive_raised) {
      qp.last_receive_raised = true;
      raise(*static_cast<FakeDevice*>(qp.context->device), IBV_EVENT_QP_LAST_WQE_REACHED, 0, &qp);
    }
  }

 private:
  bool run_one(FakeQp& qp) {
    if (qp.qp_type != IBV_QPT_RC || qp.sq.empty() || hold || held.count(qp.qp_num) != 0) return false;
    if (qp.attr.qp_state != IBV_QPS_RTS) return false;
    FakeWork work = qp.sq.front();
    const auto fault = faults.find(qp.qp_num);
    const bool failing = fault != faults.end();
    Fault what = failing ? fault->second : Fault{IBV_WC_SUCCESS, true};
    const bool refused = check_keys && !may_access(work);
    if (refused) what = Fault{IBV_WC_REM_ACCESS_ERR, false};
    if (what.delivered && !execute(qp, work)) return false;
    qp.sq.pop_front();
    complete(qp, work, what.status);
    if (failing) faults.erase(fault);
    if (failing || refused) to_error(qp);
    return true;
  }

  bool may_access(const FakeWork& work) const {
    if (work.wr.opcode != IBV_WR_RDMA_WRITE && work.wr.opcode != IBV_WR_RDMA_READ) return true;
    if (work.wr.num_sge == 0) return true;
    const auto found = mrs.find(work.wr.wr.rdma.rkey);
    if (found == mrs.end()) return false;
    const auto start = reinterpret_cast<uint64_t>(found->second->addr);
    const uint64_t at = work.wr.wr.rdma.remote_addr;
    return at >= start && at - start <= found->second->length &&
           work.sge.length <= found->second->length - (at - start);
  }

  bool port_up(const FakeQp& qp) const {
    const auto* device = static_cast<const FakeDevice*>(qp.context->device);
    return device->ports[qp.attr.port_num].state == IBV_PORT_ACTIVE;
  }

  bool execute(FakeQp& qp, const FakeWork& work) {
    FakeQp* peer = find(qp.attr.dest_qp_num);
    if (peer == nullptr || !port_up(qp) || !port_up(*peer)) return false;
    if (peer->attr.qp_state != IBV_QPS_RTR && peer->attr.qp_state != IBV_QPS_RTS) return false;
    if (peer->attr.dest_qp_num != qp.qp_num) return false;
    const char* local =
        work.inlined.empty() ? reinterpret_cast<const char*>(work.sge.addr) : work.inlined.data();
    switch (work.wr.opcode) {
      case IBV_WR_RDMA_WRITE:
        if (work.wr.num_sge != 0)
          memcpy(reinterpret_cast<void*>(work.wr.wr.rdma.remote_addr), local, work.sge.length);
        return true;
      case IBV_WR_RDMA_READ:
        memcpy(reinterpret_cast<void*>(work.sge.addr),
               reinterpret_cast<const void*>(work.wr.wr.rdma.remote_addr), work.sge.length);
        return true;
      default:
        return receive(*peer, work, local);
    }
  }

  bool receive(FakeQp& peer, const FakeWork& work, const char* local) {
    auto* srq = static_cast<FakeSrq*>(peer.init.srq);
    if (srq == nullptr || srq->wrs.empty()) return false;  // receiver not ready: for ever
    const ibv_recv_wr wr = srq->wrs.front();
    const ibv_sge sge = srq->sges.front();
    srq->wrs.pop_front();
    srq->sges.pop_front();
    memcpy(reinterpret_cast<void*>(sge.addr), local, work.sge.length);
    ibv_wc wc{};
    wc.wr_id = wr.wr_id;
    wc.qp_num = peer.qp_num;
    wc.byte_len = work.sge.length;
    wc.imm_data = work.wr.imm_data;
    wc.wc_flags = work.wr.opcode == IBV_WR_SEND_WITH_IMM ? unsigned{IBV_WC_WITH_IMM} : 0u;
    push(peer.init.recv_cq, wc);
    return true;
  }

  static int poll_cq(ibv_cq* cq, int count, ibv_wc* wcs) {
    auto* fake = static_cast<FakeCq*>(cq);
    ++fake->polls;
    if (fake->broken) return -1;
    int n = 0;
    for (; n < count && !fake->entries.empty(); ++n) {
      wcs[n] = fake->entries.front();
      fake->entries.pop_front();
    }
    return n;
  }

  static int req_notify_cq(ibv_cq* cq, int) {
    static_cast<FakeCq*>(cq)->armed = true;
    return 0;
  }

  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
    auto* fake = static_cast<FakeQp*>(qp);
    FakeFabric& fabric = *current();
    *bad = wr;
    if (qp->qp_type == IBV_QPT_UD) return fabric.post_datagram(*fake, *wr);
    if (fabric.refuse_post != 0) return std::exchange(fabric.refuse_post, 0);
    if (fake->attr.qp_state != IBV_QPS_RTS && fake->attr.qp_state != IBV_QPS_ERR) return EINVAL;
    if (fake->sq.size() >= fake->init.cap.max_send_wr) return ENOMEM;
    FakeWork work;
    work.wr = *wr;
    if (wr->num_sge != 0) work.sge = *wr->sg_list;
    ++fabric.posted;
    if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) ++fabric.signaled;
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
      ++fabric.inlined;
      const char* from = reinterpret_cast<const char*>(work.sge.addr);
      work.inlined.assign(from, from + work.sge.length);
    }
    if (fake->attr.qp_state == IBV_QPS_ERR) {
      if (!fabric.lose_marker) fabric.complete(*fake, work, IBV_WC_WR_FLUSH_ERR);
      return 0;
    }
    fake->sq.push_back(work);
    fabric.run();
    return 0;
  }

  int post_datagram(FakeQp& qp, const ibv_send_wr& wr) {
    FakeWork work;
    work.wr = wr;
    complete(qp, work, IBV_WC_SUCCESS);
    const auto* data = reinterpret_cast<const char*>(wr.sg_list->addr);
    packets.emplace_back(data, wr.sg_list->length);
    if (drop_datagrams > 0) {
      --drop_datagrams;
      return 0;
    }
    FakeQp* peer = find(wr.wr.ud.remote_qpn);
    if (peer == nullptr || !port_up(qp) || !port_up(*peer)) return 0;
    deliver_raw(*peer, data, wr.sg_list->length);
    if (duplicate_datagrams) deliver_raw(*peer, data, wr.sg_list->length);
    return 0;
  }

  static int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
    static_cast<FakeQp*>(qp)->rq.emplace_back(wr->wr_id, *wr->sg_list);
    return 0;
  }

  static int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr**) {
    auto* fake = static_cast<FakeSrq*>(srq);
    for (; wr != nullptr; wr = wr->next) {
      fake->wrs.push_back(*wr);
      fake->sges.push_back(*wr->sg_list);
    }
    current()->run();
    return 0;
  }

  friend const engine::VerbsApi& fake_verbs();
  int next_lid = 0;
  uint32_t next_qpn = 0x10;
  uint32_t next_key = 0x1000;
};

/// The verbs table of the current FakeFabric.
inline const engine::VerbsApi& fake_verbs() {
  using F = FakeFabric;
  static const engine::VerbsApi api = {
      .get_device_list = nullptr,
      .free_device_list = nullptr,
      .get_device_name = [](ibv_device* d) { return static_cast<FakeDevice*>(d)->fake_name.c_str(); },
      .open_device = [](ibv_device* d) { return &static_cast<FakeDevice*>(d)->context; },
      .close_device = [](ibv_context*) { return 0; },
      .query_device =
          [](ibv_context* c, ibv_device_attr* attr) {
            *attr = static_cast<FakeDevice*>(c->device)->attr;
            return 0;
          },
      .query_port =
          [](ibv_context* c, uint8_t port, ibv_port_attr* attr) {
            *attr = static_cast<FakeDevice*>(c->device)->ports[port];
            return 0;
          },
      .query_gid =
          [](ibv_context*, uint8_t, int, ibv_gid* gid) {
            *gid = ibv_gid{};
            gid->raw[0] = 0xfe;
            return 0;
          },
      .alloc_pd =
          [](ibv_context* c) {
            auto* pd = new ibv_pd{};
            pd->context = c;
            return pd;
          },
      .dealloc_pd =
          [](ibv_pd* pd) {
            delete pd;
            return 0;
          },
      .reg_mr =
          [](ibv_pd* pd, void* address, size_t length, int) {
            auto* mr = new ibv_mr{};
            mr->pd = pd;
            mr->addr = address;
            mr->length = length;
            mr->lkey = mr->rkey = ++F::current()->next_key;
            F::current()->mrs[mr->rkey] = mr;
            return mr;
          },
      .dereg_mr =
          [](ibv_mr* mr) {
            F::current()->mrs.erase(mr->rkey);
            delete mr;
            return 0;
          },
      .create_cq = [](ibv_context* c, int entries) -> ibv_cq* {
        auto cq = std::make_unique<FakeCq>();
        cq->context = c;
        cq->cqe = entries;
        F::current()->cqs.push_back(std::move(cq));
        return F::current()->cqs.back().get();
      },
      .destroy_cq = [](ibv_cq*) { return 0; },
      .create_comp_channel = [](ibv_context* c) -> ibv_comp_channel* {
        if (F::current()->refuse_channels) {
          errno = EMFILE;
          return nullptr;
        }
        auto* channel = new FakeChannel;
        if (pipe2(channel->ends, 0) != 0) abort();
        channel->context = c;
        channel->fd = channel->ends[0];
        return channel;
      },
      .destroy_comp_channel =
          [](ibv_comp_channel* channel) {
            auto* fake = static_cast<FakeChannel*>(channel);
            ::close(fake->ends[0]);
            ::close(fake->ends[1]);
            delete fake;
            return 0;
          },
      .create_event_cq = [](ibv_context* c, int entries, ibv_comp_channel* channel) -> ibv_cq* {
        ibv_cq* cq = fake_verbs().create_cq(c, entries);
        static_cast<FakeCq*>(cq)->events = static_cast<FakeChannel*>(channel);
        return cq;
      },
      .get_cq_event =
          [](ibv_comp_channel* channel) {
            char byte;
            return read(channel->fd, &byte, 1) == 1;
          },
      .ack_cq_events = [](ibv_cq*, unsigned) {},
      .create_srq = [](ibv_pd* pd, ibv_srq_init_attr*) -> ibv_srq* {
        auto srq = std::make_unique<FakeSrq>();
        srq->context = pd->context;
        F::current()->srqs.push_back(std::move(srq));
        return F::current()->srqs.back().get();
      },
      .destroy_srq = [](ibv_srq*) { return 0; },
      .create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) -> ibv_qp* {
        F& fabric = *F::current();
        if (fabric.refuse_create != 0 || init->cap.max_inline_data > fabric.max_inline) {
          errno = fabric.refuse_create != 0 ? fabric.refuse_create : EINVAL;
          return nullptr;
        }
        auto qp = std::make_unique<FakeQp>();
        qp->context = pd->context;
        qp->qp_num = ++fabric.next_qpn;
        qp->qp_type = init->qp_type;
        qp->init = *init;
        fabric.qps.push_back(std::move(qp));
        return fabric.qps.back().get();
      },
      .modify_qp =
          [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
            F& fabric = *F::current();
            auto& fake = *static_cast<FakeQp*>(qp);
            fabric.modifications.emplace_back(qp->qp_num, *attr);
            if (attr->qp_state == IBV_QPS_ERR) {
              if (fabric.refuse_error != 0) return fabric.refuse_error;
              fabric.to_error(fake);
              return 0;
            }
            if (attr->qp_state == IBV_QPS_RTR && (mask & IBV_QP_DEST_QPN) != 0)
              fake.attr.dest_qp_num = attr->dest_qp_num;
            if ((mask & IBV_QP_PORT) != 0) fake.attr.port_num = attr->port_num;
            fake.attr.qp_state = attr->qp_state;
            fabric.run();
            return 0;
          },
      .query_qp =
          [](ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
            *attr = static_cast<FakeQp*>(qp)->attr;
            return 0;
          },
      .destroy_qp =
          [](ibv_qp* qp) {
            F& fabric = *F::current();
            if (fabric.refuse_destroy != 0) return fabric.refuse_destroy;
            for (auto& cq : fabric.cqs) {
              std::erase_if(cq->entries, [qp](const ibv_wc& wc) { return wc.qp_num == qp->qp_num; });
            }
            for (auto& device : fabric.devices) {
              std::erase_if(device->events,
                            [qp](const ibv_async_event& event) { return event.element.qp == qp; });
            }
            std::erase_if(fabric.qps, [qp](const auto& each) { return each.get() == qp; });
            return 0;
          },
      .create_ah = [](ibv_pd*, ibv_ah_attr*) { return new ibv_ah{}; },
      .destroy_ah =
          [](ibv_ah* ah) {
            delete ah;
            return 0;
          },
      .get_async_event =
          [](ibv_context* c, ibv_async_event* event) {
            auto* device = static_cast<FakeDevice*>(c->device);
            char byte;
            if (read(device->event_pipe[0], &byte, 1) != 1 || device->events.empty()) return -1;
            *event = device->events.front();
            device->events.pop_front();
            return 0;
          },
      .ack_async_event = [](ibv_async_event*) {},
  };
  return api;
}

/// Virtual time and a repeatable random source.
inline uint64_t& fake_now() {
  static uint64_t now = 1'000'000'000;
  return now;
}
inline const engine::Environment& fake_environment() {
  static const engine::Environment environment = {
      [] { return fake_now(); },
      [] {
        static uint64_t x = 88172645463325252ull;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        return x;
      },
  };
  return environment;
}

}  // namespace bfo::test
