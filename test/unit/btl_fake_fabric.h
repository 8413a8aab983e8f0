// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fake_fabric.h: an InfiniBand fabric inside one test process: devices, queue pairs, completion queues
// and events that do exactly what a test orders. It executes work requests at once, in order, unless told to
// hold, fail, lose or refuse them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

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
  uint32_t limit = 0;  // below it SRQ_LIMIT_REACHED is raised, once
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
  uint64_t port_speed = 0;       ///< of ibv_query_port_speed, in 100 Mbit/s; 0: it cannot tell
  uint32_t active_speed_ex = 0;  ///< 0: the library is older
  std::vector<uint16_t> pkeys;   // of all its ports
  std::deque<ibv_async_event> events;
  std::atomic<unsigned> unread = 0;  ///< of these; where there are none the pipe is not read
  int event_pipe[2] = {-1, -1};
};

/// The fabric. One at a time; the verbs table (btl_fake_verbs.h) refers to the current one.
class FakeFabric {
 public:
  FakeFabric() { current() = this; }
  ~FakeFabric();
  static FakeFabric*& current();

  FakeDevice& add_device(const std::string& name, uint8_t ports = 1);

  // ---- orders
  std::vector<uint16_t> usual_pkeys = {0xffff};  // of devices that are added
  bool hold = false;                             // RC work stays in the send queue
  std::set<uint32_t> held;                       // the same for single queue pairs
  int drop_datagrams = 0;                        // this many are lost
  std::set<uint32_t> deaf;                       // .. and all from and to these queue pairs
  bool duplicate_datagrams = false;
  bool refuse_channels = false;    // no completion channel can be made
  bool raise_last_receive = true;  // QP_LAST_WQE_REACHED on the way to ERR
  bool check_keys = false;         // RDMA outside a registered region fails, as every HCA has it
  bool lose_marker = false;        // work posted in ERR never completes
  int refuse_post = 0;             // errno of the next RC post_send
  int refuse_error = 0;            // errno of modify_qp to ERR
  int refuse_destroy = 0;          // errno of destroy_qp
  int refuse_create = 0;           // errno of create_qp
  int refuse_secrets = 0;          // errno when a port draws its nonce and Q_Key
  int wrong_qkeys = 0;             // datagrams dropped because they name another Q_Key than their target's
  int refuse_ah = 0;               // errno of create_ah
  uint64_t block_ah_ns = 0;        // create_ah takes so long
  uint64_t block_ready_ns = 0;     // modify_qp of a connection to RTR takes so long
  uint64_t block_destroy_ns = 0;   // destroy_qp of a connection takes so long
  std::map<std::string, uint64_t> block_ns;  // so long take other control verbs, by name
  uint32_t max_inline = 256;

  /// The subnet administrator at QP 1 of LID kManagerLid.
  static constexpr uint16_t kManagerLid = 99;
  struct Administrator {
    int silent = 0;                // so many requests get no answer
    uint16_t status = 0;           // of all answers
    std::map<int, uint8_t> level;  // service levels by SLID << 16 | DLID; 0 where there is none
    std::function<void(std::string& mad, uint32_t& source_qpn)> spoil;  // changes an answer
    std::vector<std::string> requests;                                  // all of them
  };
  Administrator administrator;

  /// Calls number `first` to `last`, from 1, of a control verb of any device, or of `device` only, fail with
  /// `error`.
  struct Refusal {
    std::string verb;
    int first;
    int last;
    int error;
    const FakeDevice* device = nullptr;
    int seen = 0;
    int refused = 0;
  };
  std::vector<Refusal> refusals;
  /// A control verb is called on an object of `context`: 0, or the errno it must fail with. Failed calls set
  /// errno, too.
  int call(const char* verb, const ibv_context* context);

  bool overrun = false;  // a completion queue overran: never allowed
  bool stray = false;    // a message was written to memory that is not registered: never allowed

  /// The next RC work request of the queue pair completes with `status`; with `delivered` the responder has
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
  uint64_t receive_posts = 0;  ///< calls of post_srq_recv
  std::map<uint32_t, ibv_mr*> mrs;
  std::map<uint32_t, int> accesses;                             // ibv_access_flags, by rkey
  std::vector<std::pair<uint32_t, ibv_qp_attr>> modifications;  // qpn, attributes
  std::vector<std::string> packets;                             // datagrams as sent
  int signaled = 0;
  int inlined = 0;
  int posted = 0;
  std::set<ibv_ah*> handles;       // that exist
  std::set<ibv_ah*> lost_handles;  // datagrams sent with them arrive nowhere
  std::map<ibv_ah*, uint16_t> handle_lids;
  std::set<uint16_t> dead_lids;  // nothing arrives there
  int ah_calls = 0;              // create_ah, failed ones too
  ibv_ah_attr last_ah{};         // of the last call
  std::vector<ibv_ah_attr> ahs;  // of all calls
  int wrong_pkeys = 0;           // datagrams dropped because their target is in another partition
  bool in_progress = false;      // a progress function runs ..
  int progress_verbs = 0;        // .. and has called so many control verbs that may block
  uint32_t last_qpn = 0x10;
  uint32_t last_key = 0x1000;

  FakeQp* find(uint32_t qpn);

  /// Fails the oldest outstanding work request of `qpn` with `status`, as retry exhaustion does; the rest is
  /// flushed.
  bool fail(uint32_t qpn, ibv_wc_status status);
  void raise(FakeDevice& device, ibv_event_type type, int port = 0, ibv_qp* qp = nullptr);

  /// Executes what can be executed.
  void run();
  void deliver_raw(FakeQp& qp, const void* data, size_t length, uint32_t source_qpn = 0);
  void push(ibv_cq* cq, const ibv_wc& wc);
  void complete(FakeQp& qp, const FakeWork& work, ibv_wc_status status);
  void to_error(FakeQp& qp);

 private:
  uint16_t partition_of(const FakeQp& qp) const;
  bool run_one(FakeQp& qp);
  bool may_access(const FakeWork& work) const;
  bool port_up(const FakeQp& qp) const;
  bool path_leads(const FakeQp& qp, const FakeQp& peer) const;
  bool execute(FakeQp& qp, const FakeWork& work);
  bool receive(FakeQp& peer, const FakeWork& work, const char* local);
  int post_datagram(FakeQp& qp, const ibv_send_wr& wr);
  void ask_administrator(FakeQp& qp, const std::string& request);

  // What a context calls without the table.
  static int poll_cq(ibv_cq* cq, int count, ibv_wc* wcs);
  static int req_notify_cq(ibv_cq* cq, int solicited_only);
  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
  static int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
  static int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);

  int next_lid = 0;
};

}  // namespace bfo::test
