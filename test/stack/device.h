// SPDX-License-Identifier: BSD-3-Clause
//
// device.h: devices with one port each and the fabric between them, in virtual time, behind the verbs that
// the BTL engine uses (VerbsApi and ibv_context::ops).
//
// Reliable connections are go-back-N: each packet is a whole work request with a sequence number; it is lost
// when the path is down as it arrives, taken when it is the expected one, acknowledged again when it is
// older. The requester sends again after its timeout, retry_cnt times. What has left stays in the fabric and
// arrives also when its queue pair has gone to ERR or was destroyed since: only the responder's own queue
// pair keeps it out. Data is read from memory as a packet leaves, each time anew, and a READ's data lands as
// its response arrives.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "btl/verbs/engine/device/verbs_api.h"
#include "test/sim/prng.h"
#include "test/stack/rates.h"
#include "test/stack/timeline.h"

namespace bfo::stack {

struct Device;
class Fabric;

struct Channel : ibv_comp_channel {
  uint32_t events = 0;
};
struct Cq : ibv_cq {
  std::deque<ibv_wc> entries;
  std::deque<std::pair<uint64_t, ibv_wc>> coming;  // see FabricTraits::cqe_late, with their time
  uint64_t number = 0;                             // never used again
  Channel* channel = nullptr;
  bool broken = false;  // it overran
  bool armed = false;
  int polls = 0;
};
struct Srq : ibv_srq {
  std::deque<std::pair<uint64_t, ibv_sge>> buffers;
  uint32_t limit = 0;
};
struct Wqe {
  uint64_t wr_id = 0;
  ibv_wr_opcode opcode{};
  unsigned flags = 0;
  uint32_t imm = 0;
  uint64_t local = 0;
  uint32_t length = 0;
  uint64_t remote = 0;
  uint32_t rkey = 0;
  std::string inlined;
};
/// A write that was acknowledged, and is not in memory yet.
struct LateWrite {
  uint64_t remote;
  uint32_t rkey;
  std::string data;
};
struct Qp : ibv_qp {
  ibv_qp_init_attr init{};
  ibv_qp_attr attr{};
  std::deque<Wqe> sq;  // not acknowledged; the first one has number `acked`
  std::deque<std::pair<uint64_t, ibv_sge>> rq;
  uint64_t acked = 0;
  uint64_t sent = 0;                        // the next to leave
  uint64_t expected = 0;                    // as responder
  uint64_t lane_ns = 0;                     // packets arrive in the order they left ..
  uint64_t answers_ns = 0;                  // .. and answers, too
  uint64_t fresh = 0;                       // the next to leave for the first time
  uint64_t lost_from = ~uint64_t{0};        // from this number on, requests are lost ..
  uint64_t unanswered_from = ~uint64_t{0};  // .. or their answers
  uint64_t rnr_until = 0;
  uint32_t retries = 0;
  uint32_t timer = 0;      // the one that counts
  uint64_t due_ns = 0;     // with rates: when it ends ..
  bool timer_set = false;  // .. and one is on its way
  bool last_receive_raised = false;
  uint64_t moved_ns = 0;       // with rates: when something of it came in last
  uint64_t asked_again = 0;    // with rates, as responder: 1 + the number that it asked for again last
  std::deque<LateWrite> late;  // as responder
  Device* device() const;
};
struct Ah : ibv_ah {
  ibv_ah_attr attr{};
};
struct Device : ibv_device {
  Fabric* fabric = nullptr;
  uint32_t process = 0;
  uint32_t rail = 0;
  std::string device_name;
  ibv_context context{};
  std::deque<ibv_async_event> events;
  uint32_t index = 0;
  ibv_device_attr attr{};
  ibv_port_attr port{};
  std::vector<uint16_t> pkeys = {0xffff};
  uint64_t port_speed = 0;       // of ibv_query_port_speed, in 100 Mbit/s; 0: it cannot tell
  uint32_t active_speed_ex = 0;  // 0: the library is older
  bool dead = false;
  uint64_t silent_until = 0;
  uint64_t received = 0;      // bytes that came in at the port, with rates
  engine::LossCounts losses;  // that the port has counted; nothing is known at first
  uint64_t dies_at_call = 0;  // the verb that kills it, counted from the start; 0: none
  uint64_t calls = 0;         // .. that many so far, counted if there is one
  bool up() const { return port.state == IBV_PORT_ACTIVE; }
};
inline Device* Qp::device() const {
  return static_cast<Device*>(context->device);
}

/// What happens to one packet, the `n`-th of a class that leaves `from` for `to` for the first time.
struct PacketFault {
  enum class What : uint8_t {
    kLost,        // it and all behind it on its connection are lost: the requester retries in vain
    kUnanswered,  // they are executed, but no answer comes back
    kErrorNow,    // it is lost, and its requester hears of an error at once
    kErrorDone,   // it is executed, and its requester hears of an error
    kHeld,        // it and all behind it stay in the fabric for `ns`
    kUnread,      // it is executed and answered, and the completion queues of `to` overrun before it is read
  };
  What what = What::kLost;
  const Device* from = nullptr;
  const Device* to = nullptr;
  uint32_t packets = 0;  // class: the tag of a message (its MsgType), or one of these
  uint32_t n = 1;
  uint64_t ns = 0;
  uint32_t qpn = 0;  // any work request of this queue pair, instead of the class
  ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;
  static constexpr uint32_t kAny = 0;
  static constexpr uint32_t kWrite = 1;
  static constexpr uint32_t kRead = 2;
  static constexpr uint32_t kRestart = 3;  // any message of a restart
  static constexpr uint32_t kData = 4;     // FRAG, write or READ
};

/// What the fabric tells the world.
class Observer {
 public:
  virtual ~Observer() = default;
  /// A completion for the progress function of `process`.
  virtual void wake(uint32_t process) = 0;
  /// Something for its event thread, behind the descriptor of a device or of a channel.
  virtual void wake_events(uint32_t process, int fd) = 0;
  /// A peer's access to memory of `process` under a key, or (key 0) the data of its own READ.
  virtual void accessed(uint32_t process, uint64_t address, uint32_t length, uint32_t key, bool write) = 0;
  virtual void broken(const char* what) = 0;
  /// destroy_qp threw something away that the process should have read before.
  virtual void thrown_away(const Qp& qp, const char* what) = 0;
  /// The process waits `ns` in a verb that was called from its progress function.
  virtual void blocked(uint32_t process, uint64_t ns) = 0;
};

/// How the fabric behaves. Percentages and virtual nanoseconds.
struct FabricTraits {
  uint64_t latency_ns = 1500;
  uint64_t jitter_ns = 500;
  unsigned datagram_loss = 0;
  unsigned datagram_twice = 0;
  unsigned datagram_late = 0;
  unsigned types_lost = 0;       // datagrams of these types, one bit each (enum PacketType), are always lost
  bool never_healed = false;     // also after the last fault
  uint64_t late_ns = 1;          // at most, for those
  uint64_t packet_ns = 1;        // a packet may linger so long in the fabric ..
  unsigned packet_late = 0;      // .. this often, per mille
  unsigned err_lands = 0;        // data still reaches memory through a queue pair in ERR, per mille
  unsigned no_last_receive = 0;  // QP_LAST_WQE_REACHED is never raised
  unsigned ah_fails = 0;
  unsigned cqe_late = 0;     // a completion, and all behind it, is seen late, per mille ..
  uint64_t cqe_ns = 1;       // .. at most by so much
  unsigned write_late = 0;   // written bytes are in memory after the acknowledgement, per mille: at the ..
  uint64_t write_ns = 1;     // .. latest by so much, and before a later message of the same connection
  bool no_fence = false;     // a queue pair that was destroyed still takes what is written through it
  bool fence_fails = false;  // a dead device refuses to destroy queue pairs
  unsigned verb_fails = 0;   // a verb that makes something fails, with any errno, per mille
  unsigned verb_blocks = 0;  // a verb that the progress function calls takes long, per mille
  uint64_t verb_ns = 1;
  bool no_bytes = false;     // only headers travel, payload takes its time
  bool one_queue = false;    // with rates: all connections of a port share one
  bool no_counters = false;  // of what ports receive
  bool no_timers = false;    // what is not answered is sent again by send_again() only
};

class Fabric : private WireUser {
 public:
  Fabric(Timeline& time, Observer& observer, const FabricTraits& traits, uint64_t seed);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric() override;

  Device* add_device(uint32_t process, uint32_t rail);
  Device* device(uint32_t process, uint32_t rail) const;

  // ---- faults
  void set_port(Device& d, bool up);
  void silence(Device& d, uint64_t ns) { d.silent_until = time.now() + ns; }
  void one_way(const Device& from, const Device& to, uint64_t ns);
  /// A connection from one to the other that has work under way fails with `status`. False: there is none.
  bool fail(const Device& from, const Device& to, ibv_wc_status status);
  /// The oldest work of a queue pair that is connected fails, and the rest is flushed. False: it has none.
  bool fail(Qp* qp, ibv_wc_status status);
  void kill(Device& d);
  /// The completion queues of the device overrun: what they held and what is to come is lost.
  void overrun(Device& d);
  void expect(const PacketFault& f) { packet_faults_.push_back(f); }
  void forget_packet_faults() { packet_faults_.clear(); }
  /// Control verbs that make something fail with `error` at the devices of `process` until then.
  void refuse(uint32_t process, uint64_t until, int error);

  // ---- rates (rates.h)
  void set_rate(const Device& d, const Course& out, const Course& in);
  uint64_t bytes_out(const Device& d) const;
  uint64_t bytes_in(const Device& d) const;

  // ---- for the verbs
  void called(const ibv_context* context);
  int refused(const ibv_context* context);
  /// Called in every control verb but those of queries of a device: 0, or the errno with which it fails.
  virtual int order(const char* verb, const ibv_context* context);
  void slow_verb(const ibv_context* context);
  /// Does a completion of a success of `qp` wait in its send queue's completion queue?
  bool success_waits(const ibv_qp* qp) const;
  int post_send(Qp& qp, const ibv_send_wr& wr);
  /// All that is not answered leaves again.
  void send_again(Qp& qp);
  void push(ibv_cq* cq, const ibv_wc& wc);
  void raise(Device& d, ibv_event_type type, ibv_qp* qp = nullptr, int port = 1);
  void to_error(Qp& qp);
  void destroy(Qp& qp);
  Qp* find(uint32_t number) const;
  const ibv_mr* memory(uint32_t key) const;
  /// Puts a datagram into a receive of `qp`, if one is posted.
  void receive_datagram(Qp& qp, const void* data, size_t length, uint32_t source_qpn = 0);

  Timeline& time;
  Observer& observer;
  FabricTraits traits;
  sim::Prng dice;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<Qp>> qps;  // by number
  std::vector<std::unique_ptr<Cq>> cqs;
  std::vector<std::unique_ptr<Srq>> srqs;
  std::vector<std::unique_ptr<ibv_mr>> mrs;  // by key
  uint32_t keys_live = 0;
  uint32_t handles_live = 0;
  bool running = false;  // everything is open: verbs may fail
  bool closing = false;  // the run is over
  uint64_t packets = 0;
  uint64_t lost = 0;
  uint64_t cqs_made = 0;
  uint64_t faults_hit = 0;   // of packet faults, those that happened
  uint64_t late_landed = 0;  // executed for a requester that was in ERR or gone
  static constexpr uint32_t kFirstQp = 16;
  static constexpr uint32_t kFirstKey = 0x100;

 protected:
  /// May what `qp` has to send leave for `peer` now? It is asked for each work request.
  virtual bool may_leave(const Qp& qp, const Qp& peer) const;
  /// How many copies of a datagram leave.
  virtual int copies(const Qp& qp, const ibv_send_wr& wr);

 private:
  struct Packet;
  Packet* make_packet();
  void free_packet(Packet* p);
  bool path(const Device& from, const Device& to) const;
  uint64_t journey(size_t bytes);
  void transmit(Qp& qp);
  const PacketFault* hit(const Qp& qp, const Wqe& w, const Device* to);
  bool suffer(Qp& qp, uint64_t number, const PacketFault& f);
  void fail_soon(uint32_t number, uint64_t ns, ibv_wc_status status);
  void start_timer(Qp& qp);
  void start_timer_lazily(Qp& qp, uint64_t due_ns);
  void arrive(Packet* p);
  void answer(Packet* p, ibv_wc_status status, bool rnr);
  void acknowledged(Packet* p);
  void wait_for_receiver(Qp& qp);
  void advance(Qp& qp, Packet& p);
  void timeout(uint32_t number, uint32_t timer);
  bool execute(Qp& responder, Packet& p, ibv_wc_status* status);
  void read_again(const Packet& p);
  bool lands_in_error(const Qp* qp, const Packet& p);
  bool allowed(const Qp& qp, const Packet& p) const;
  void complete(Qp& qp, const Wqe& w, ibv_wc_status status);
  void surface(Cq& cq, const ibv_wc& wc);
  bool held_up(Cq& cq, const ibv_wc& wc);
  void surface_due(uint64_t number);
  void raise_last_receive(Qp& qp);
  bool keep_back(Qp& responder, LateWrite w);
  void land(Qp& responder);
  void look_for_thrown(const Qp& qp);
  void datagram(Qp& qp, const ibv_send_wr& wr);
  void datagram_arrives(Packet* p);

  bool carry(Packet* p, bool answers);
  bool leaves(void* packet, uint32_t flow) override;
  void arrived(void* packet, uint32_t flow) override;
  void dropped(void* packet) override;
  void moved(uint32_t flow, size_t from, size_t to, uint64_t bytes) override;
  bool under_way(const Qp& qp) const;
  bool goes_back(const Packet& p);
  void unsend(const Qp& qp);
  void out_of_order(Qp& responder, const Packet& p);
  size_t bytes_of(const Wqe& w) const;
  void move_bytes(void* to, const void* from, size_t n) const;

  struct OneWay {
    const Device* from;
    const Device* to;
    uint64_t until;
  };
  struct Refusal {
    uint32_t process;
    uint64_t until;
    int error;
  };
  std::vector<OneWay> one_way_;
  std::vector<Refusal> refusals_;
  std::vector<PacketFault> packet_faults_;
  std::vector<std::unique_ptr<Packet>> all_packets_;
  std::vector<Packet*> free_packets_;
  Wires wires_;
};

/// The verbs of the fabric that a device belongs to.
const engine::VerbsApi& verbs();
/// The same of devices that count what their ports receive: without rates, what a test says.
const engine::VerbsApi& counting_verbs();
/// Fills the data path verbs of a context.
void set_data_path(ibv_context& context);

}  // namespace bfo::stack
