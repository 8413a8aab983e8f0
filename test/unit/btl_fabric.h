// SPDX-License-Identifier: BSD-3-Clause
//
// btl_fabric.h: the devices of test/stack driven by hand, for tests of the BTL's engine: packets take no
// time, nothing is sent again by itself, and verbs, connections and datagrams do what a test orders.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "btl/verbs/engine/device/verbs_api.h"
#include "btl/verbs/engine/rail/port.h"
#include "test/stack/device.h"

namespace bfo::test {

/// What the devices tell a test: a completion queue that overruns, or a message that is written to memory
/// that is not registered, fails it. Descriptors of devices and channels are as in libibverbs: poll() sees
/// what waits behind them.
class Witness : private stack::Observer {
 protected:
  stack::Timeline timeline_;
  stack::Observer& self() { return *this; }

 private:
  void wake(uint32_t) override {}
  void wake_events(uint32_t, int fd) override;
  void accessed(uint32_t, uint64_t, uint32_t, uint32_t, bool) override {}
  void broken(const char* what) override { ADD_FAILURE() << what; }
  void thrown_away(const stack::Qp&, const char*) override {}
  void blocked(uint32_t, uint64_t) override {}
};

/// One at a time: test_verbs() are those of the current one.
class TestFabric : public Witness, public stack::Fabric {
 public:
  TestFabric();
  ~TestFabric() override;
  static TestFabric*& current();

  stack::Device& add_device(const std::string& name);

  // ---- orders
  std::vector<uint16_t> usual_pkeys = {0xffff};  // of devices that are added
  bool hold = false;                             // work of connections stays in the send queue
  std::set<uint32_t> held;                       // the same for single queue pairs
  int drop_datagrams = 0;                        // this many are lost
  std::set<uint32_t> deaf;                       // .. and all from and to these queue pairs
  bool duplicate_datagrams = false;
  bool lose_marker = false;               // work posted in ERR never completes
  int refuse_post = 0;                    // errno of the next post_send of a connection
  int refuse_secrets = 0;                 // errno when a port draws its nonce and Q_Key
  std::map<std::string, int> refuse;      // errno of control verbs, by name
  std::map<std::string, uint64_t> block;  // nanoseconds that they take
  uint32_t max_inline = 256;
  std::set<ibv_ah*> lost_handles;  // datagrams sent with them arrive nowhere
  std::set<uint16_t> dead_lids;    // nothing arrives there

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
    const stack::Device* device = nullptr;
    int seen = 0;
    int refused = 0;
  };
  std::vector<Refusal> refusals;
  /// A control verb is called on an object of `context`: 0, or the errno it must fail with. The way of
  /// a connection to RTR, and that of any queue pair to ERR, have names of their own, too: "ready_qp",
  /// "stop_qp".
  int order(const char* verb, const ibv_context* context) override;

  /// The next work request of the queue pair is lost and completes with `status`.
  void fail_next(uint32_t qpn, ibv_wc_status status);
  /// The oldest work request that is outstanding fails, as retry exhaustion does; the rest is flushed.
  bool fail(uint32_t qpn, ibv_wc_status status) { return Fabric::fail(find(qpn), status); }
  void raise(stack::Device& device, ibv_event_type type, int port = 1, ibv_qp* qp = nullptr) {
    Fabric::raise(device, type, qp, port);
  }
  /// Executes what can be executed.
  void run();

  // ---- what happened
  std::vector<stack::Qp*> live() const;                         // queue pairs
  std::vector<std::pair<uint32_t, ibv_qp_attr>> modifications;  // qpn, attributes
  std::map<uint32_t, int> accesses;                             // ibv_access_flags, by rkey
  std::vector<std::string> datagrams;                           // as sent
  uint64_t receive_posts = 0;                                   // calls of post_srq_recv
  int signaled = 0;
  int inlined = 0;
  int posted = 0;
  std::set<ibv_ah*> handles;     // that exist
  int ah_calls = 0;              // create_ah, failed ones too
  std::vector<ibv_ah_attr> ahs;  // of all calls
  int wrong_qkeys = 0;           // datagrams dropped because they name another Q_Key than their target's
  int wrong_pkeys = 0;           // .. because their target is in another partition
  bool in_progress = false;      // a progress function runs ..
  int progress_verbs = 0;        // .. and has called so many control verbs that may block

 protected:
  bool may_leave(const stack::Qp& qp, const stack::Qp& peer) const override;
  int copies(const stack::Qp& qp, const ibv_send_wr& wr) override;

 private:
  void drain();
  void ask_administrator(stack::Qp& qp, const std::string& request);
  static int post(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
  static int post_receives(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
};

/// The verbs of the current TestFabric.
const engine::VerbsApi& test_verbs();
/// Virtual time; only tests move it.
uint64_t& test_now();
/// What the process has waited for a processor so far; UINT64_MAX: nobody knows.
uint64_t& test_starved();
/// This time, and a repeatable random source.
const engine::Environment& test_environment();

}  // namespace bfo::test
