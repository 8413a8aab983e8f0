// SPDX-License-Identifier: BSD-3-Clause
//
// The layout of the shared-memory file that is the fabric: every device, port, queue pair, queue, region and
// process of one emulated cluster. Only offsets and indices, never pointers: each process maps it elsewhere.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "contrib/softhca/fabric/lock.h"
#include "contrib/softhca/fault/gid_list.h"
#include "contrib/softhca/fault/packet.h"

namespace bfo::softhca {

inline constexpr uint64_t kFabricMagic = 0x31614348'74666f53;  // "SoftHCa1"
inline constexpr uint32_t kLayoutVersion = 20;

inline constexpr uint32_t kMaxProcesses = 512;
inline constexpr uint32_t kMaxNodes = 256;
inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxPortsPerDevice = 2;
inline constexpr uint32_t kMaxPorts = kMaxNodes * kMaxDevices * kMaxPortsPerDevice;
/// A queue pair number has 24 bits: the slot, and above it the generation of the slot.
inline constexpr uint32_t kQpSlotBits = 17;
inline constexpr uint32_t kFirstQp = 64;  ///< slots before it are not used: 0 and 1 are special numbers
/// The last slot is not used either: with the last generation its number would be that of multicast.
inline constexpr uint32_t kMaxQps = (1u << kQpSlotBits) - 1;
inline constexpr uint32_t kMaxCqs = 1u << 13;
inline constexpr uint32_t kMaxSrqs = 1u << 11;
inline constexpr uint32_t kMaxMrs = 1u << 18;
inline constexpr uint32_t kMaxContexts = 1u << 11;
inline constexpr uint32_t kMaxLids = 0xc000;
/// 2^kMostLmc LIDs for each of kMaxPorts fit.
inline constexpr uint32_t kMostLmc = 2;
static_assert(((kMaxPorts + 1) << kMostLmc) <= kMaxLids);
inline constexpr uint32_t kPathRefused = 0x100;  ///< FabricHeader::path_level
inline constexpr uint32_t kMaxLateWrites = 64;
inline constexpr uint32_t kMaxMcast = 64;
inline constexpr uint32_t kMaxMcastMembers = 32;
inline constexpr uint32_t kPkeysPerPort = 1;
inline constexpr uint32_t kLeases = 64;  ///< threads of one process that can be inside the engine at once

inline constexpr uint32_t kMaxSge = 32;
inline constexpr uint32_t kMaxInline = 1024;
inline constexpr uint32_t kMaxQpWr = 16384;
inline constexpr uint32_t kMaxCqe = 1u << 20;
inline constexpr uint32_t kMaxRdAtomic = 16;
inline constexpr uint32_t kMaxMessage = 1u << 31;
inline constexpr uint64_t kHeapBytes = uint64_t{16} << 30;

inline constexpr uint32_t kNone = 0xffffffff;
inline constexpr uint32_t kPsnMask = 0xffffff;

/// One thread's licence to touch the memory of another process; revocable by the memory's owner.
struct alignas(64) Lease {
  std::atomic<uint32_t> active;   ///< while the owner may be inside a copy: 1 revocable, 2 firm
  std::atomic<uint32_t> revoked;  ///< set by the memory's owner; iov lengths are zeroed after it
  std::atomic<int32_t> tid;
  std::atomic<uint32_t> target;  ///< process slot whose memory is touched
  uint32_t count;
  iovec iov[kMaxSge + 4];  ///< remote segments; the kernel reads them here at system call time
};

enum class ProcessState : uint32_t { kFree = 0, kLive = 1, kDead = 2 };

struct alignas(64) ProcessEntry {
  std::atomic<ProcessState> state;
  std::atomic<uint32_t> generation;
  std::atomic<int32_t> pid;
  uint32_t node;
  std::atomic<uint64_t> start_time;  ///< of the pid, from /proc/PID/stat: tells it from a later one
  std::atomic<uint32_t> observes;    ///< it has no devices, and does not act on rules: softhcactl
  std::atomic<uint32_t> pending;     ///< own QPs with work that waits for time or for an answer
  std::atomic<uint32_t> qps;         ///< own QPs, or more if it died while it made or destroyed one
  std::atomic<uint64_t> lease_map;   ///< bit per lease in use
  std::atomic<uint64_t> pinned;      ///< bytes of registered memory, whole pages
  std::atomic<uint64_t> room;        ///< bytes of the fabric's file that it has reserved
  std::atomic<uint32_t> objects[kMaxDevices][kObjectKinds];  ///< that it has now
  char command[32];
  Lease leases[kLeases];
};

/// Values of ibv_port_state used: DOWN = 1, ACTIVE = 4.
inline constexpr uint8_t kPortDown = 1;
inline constexpr uint8_t kPortActive = 4;

struct alignas(64) PortEntry {
  std::atomic<uint8_t> state;
  std::atomic<uint16_t> lid;
  std::atomic<uint32_t> segment;  ///< only ports of one segment reach each other
  std::atomic<uint16_t> pkey[kPkeysPerPort];
  std::atomic<uint64_t> gids;  ///< its GID table, by pack() of gid_list.h
  std::atomic<uint64_t> gid_prefix;
  std::atomic<uint64_t> gid_id;      ///< low half of the GID, EUI-64 of the port
  std::atomic<uint64_t> rate;        ///< bytes per second, 0 = unlimited
  std::atomic<uint64_t> latency_ns;  ///< one way
  std::atomic<uint64_t> speed;       ///< that its link reports, by pack() of link_speed.h
  std::atomic<uint64_t> up_at_ns;    ///< a port that is down comes back then; kNever = not by itself
  alignas(64) std::atomic<uint64_t> tx_free_ns;  ///< the wire is busy until then
  std::atomic<uint64_t> rx_free_ns;
  std::atomic<uint64_t> tx_packet_ns;  ///< the same with messages of one packet only
  std::atomic<uint64_t> rx_packet_ns;
  // ---- what a port counts as received while some port has a rate: also of messages that are on their way
  std::atomic<uint64_t> coming_bytes;   ///< that were sent to it
  std::atomic<uint64_t> coming_end_ns;  ///< when the last of them is there
  std::atomic<uint64_t> coming_rate;    ///< bytes per second of these
  std::atomic<uint64_t> messages;       ///< ordinals; counted only while a hook is armed
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> link_downed;
  /// what its packets that were lost are seen by, each once: a timer of a requester here, a NAK that came, a
  /// response that came too early; a request that came too early
  std::atomic<uint64_t> ack_timeouts, sequence_naks, early_responses, early_requests;
  /// totals of queue pairs that are gone; live ones are added when read
  std::atomic<uint64_t> tx_messages, tx_packets, tx_bytes, rx_messages, rx_packets, rx_bytes;
  std::atomic<uint64_t> retries, rnr_retries, errors;
};

struct DeviceEntry {
  std::atomic<uint32_t> fatal;
  std::atomic<uint32_t> limit[kObjectKinds];  ///< objects it has room for, plus 1; 0 = the default
};

/// A pipe that wakes a process: low half of its inode << 32 | descriptor in that process; 0 = none. The inode
/// tells it from what has the descriptor later.
using WakeName = uint64_t;

struct AsyncRecord {
  uint32_t type;    ///< ibv_event_type
  uint32_t object;  ///< QP, CQ or SRQ slot, or the port number
  uint32_t name;    ///< QPN for QPs (guards against reuse of the slot)
};

inline constexpr uint32_t kAsyncRing = 1024;

/// ContextEntry::used. Claimed: taken, and not filled yet; for others than its owner and the reaper it is
/// free.
inline constexpr uint32_t kContextFree = 0, kContextOpen = 1, kContextClaimed = 2;

/// One open device: where its asynchronous events go.
struct alignas(64) ContextEntry {
  std::atomic<uint32_t> used;
  std::atomic<uint32_t> process;
  Lock ring_lock;  ///< guards all below; reports only look
  std::atomic<uint32_t> node, device;
  WakeName wake;  ///< pipe of the owning process
  std::atomic<uint32_t> head, tail;
  AsyncRecord ring[kAsyncRing];
};

struct CqeFlags {
  static constexpr uint8_t kVoid = 1;  ///< purged; poll skips it
  static constexpr uint8_t kImm = 2;
  static constexpr uint8_t kInv = 4;
  static constexpr uint8_t kGrh = 8;
  static constexpr uint8_t kSend = 16;  ///< completes the send queue up to `wqe`
};

/// Payload of a short SEND travels in the completion entry and is copied out by the poller.
inline constexpr uint32_t kCqeStride = 512;
struct CqeEntry {
  std::atomic<uint32_t> seq;  ///< index + 1 of the production this entry holds
  uint8_t status;
  uint8_t opcode;
  uint8_t flags;
  uint8_t sl : 4;
  uint8_t dlid_path_bits : 4;
  uint64_t wr_id;
  uint32_t byte_len;
  uint32_t qpn;
  uint32_t imm;
  uint32_t src_qp;
  uint16_t slid;
  uint16_t pkey_index;
  uint32_t wqe;          ///< send queue index after this one (CqeFlags::kSend)
  uint64_t inline_dst;   ///< where the payload goes
  uint32_t inline_lkey;  ///< region of the inline target
  uint16_t inline_len;
  uint16_t vendor_err;
  uint8_t payload[kCqeStride - 64];  ///< its first 8 bytes share the cache line of the entry
  uint64_t stamp_ns;                 ///< when CqEntry::stamp
};
static_assert(offsetof(CqeEntry, payload) == 56);
static_assert(sizeof(CqeEntry) == kCqeStride);
inline constexpr uint32_t kInlineCqe = sizeof(CqeEntry::payload);

struct alignas(64) CqEntry {
  std::atomic<uint32_t> used;
  uint32_t process;
  uint32_t context;
  uint32_t capacity;
  uint64_t ring;
  uint32_t mask;
  WakeName wake;  ///< of the completion channel
  std::atomic<uint32_t> error;
  uint32_t stamp;  ///< entries carry timestamps
  alignas(64) Lock push_lock;
  std::atomic<uint32_t> tail;
  uint32_t head_seen;                   ///< producers' copy of head
  std::atomic<uint32_t> armed;          ///< 0, 1 = any, 2 = solicited only
  std::atomic<uint32_t> events_raised;  ///< pending for get_cq_event
  alignas(64) std::atomic<uint32_t> head;
  Lock poll_lock;
};

/// One scatter/gather element in shared memory.
struct Sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};

struct RecvWqe {
  uint64_t wr_id;
  uint32_t num_sge;
  uint32_t reserved;
  Sge sge[1];  ///< num_sge of them
};

struct alignas(64) SrqEntry {
  std::atomic<uint32_t> used;
  uint32_t process;
  uint32_t context;
  uint32_t pd;
  uint32_t max_wr, max_sge;
  uint64_t ring;
  uint32_t mask, stride;
  std::atomic<uint32_t> limit;
  std::atomic<uint32_t> error;
  alignas(64) Lock post_lock;
  std::atomic<uint32_t> tail;
  alignas(64) Lock take_lock;
  std::atomic<uint32_t> head;
};

struct MrFlags {
  static constexpr uint32_t kWindow = 1;   ///< a memory window of type 1
  static constexpr uint32_t kWindow2 = 2;  ///< type 2: also bound to a QP
  static constexpr uint32_t kZeroBased = 4;
};

struct MrEntry {
  std::atomic<uint32_t> key;  ///< 0 = free or invalid
  uint32_t generation;
  uint32_t pd;
  uint32_t process;
  uint32_t access;  ///< ibv_access_flags
  uint32_t flags;
  uint64_t addr;  ///< virtual address in the owner
  uint64_t iova;  ///< address by which requests name it
  uint64_t length;
  uint32_t qpn;     ///< type 2 window: the QP it is bound to
  uint32_t parent;  ///< window: key of the region below
  std::atomic<uint32_t> next_free;
  uint32_t pages;  ///< PageRecord of the owner; 0: its pages are not compared
};
static_assert(sizeof(MrEntry) == 64);

enum class WqeStage : uint8_t {
  kPosted = 0,      ///< not transmitted, or to be transmitted again
  kFlying = 1,      ///< on the wire, arrives at arrive_at
  kLost = 2,        ///< never arrives; only the timer helps
  kExecuted = 3,    ///< arrived and executed, the answer was lost
  kAnswered = 4,    ///< arrived and executed, the answer comes at complete_at
  kRefused = 5,     ///< NAK on its way (syndrome in `answer`), comes at complete_at
  kUnanswered = 6,  ///< arrived and executed; a rule lost its answer, and with it those to all that follows
};

/// Wqe::note
inline constexpr uint8_t kNoteDropAck = 1;
inline constexpr uint8_t kNoteDuplicate = 2;
inline constexpr uint8_t kNoteCorrupt = 3;

struct Wqe {
  uint64_t wr_id;
  uint64_t remote_addr;
  uint64_t compare_add;
  uint64_t swap;
  uint64_t arrive_at;
  uint64_t complete_at;
  uint32_t length;
  uint32_t rkey;
  uint32_t imm;
  uint32_t psn;      ///< first PSN
  uint32_t packets;  ///< PSNs used
  uint32_t dst_qpn;
  uint32_t qkey;
  uint32_t held;  ///< 1: a late-write rule holds this message, nothing of it arrives any more
  uint16_t dlid;
  uint8_t opcode;  ///< softhca Opcode; kOpLocal.. for local operations
  uint8_t flags;   ///< ibv_send_flags
  uint8_t num_sge;
  WqeStage stage;
  uint8_t attempt;
  uint8_t answer;  ///< AckSyndrome or injected status
  uint8_t wc_opcode;
  uint8_t sl;
  uint8_t has_grh;
  uint8_t sgid_index;
  uint32_t hop_class;  ///< UD GRH: hop limit << 8 | traffic class
  uint64_t ordinal;
  uint8_t dgid[16];
  uint8_t note;           ///< what a rule wants on arrival: WqeNote
  uint8_t rnr_timer;      ///< of the RNR NAK that answered
  uint8_t src_path_bits;  ///< UD
  uint64_t rule_note;     ///< corrupt: offset << 32 | value
  Sge sge[1];             ///< num_sge of them, or the inline payload
};

inline constexpr uint8_t kOpBindMw = 64;
inline constexpr uint8_t kOpLocalInv = 65;

/// Saved result of an ATOMIC, for its replay.
struct AtomicResult {
  uint32_t psn;
  uint32_t valid;
  uint64_t value;
};

/// What ibv_query_qp and the engine need of the address of the peer.
struct AddressVector {
  uint16_t dlid;
  uint8_t sl;
  uint8_t src_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port_num;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint32_t flow_label;
  uint8_t dgid[16];
};

struct QpAttributes {
  uint32_t qkey, rq_psn, sq_psn, dest_qpn, access;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t path_mtu, path_mig_state, port_num, alt_port_num;
  uint8_t max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, timeout, retry_cnt, rnr_retry, alt_timeout;
  uint8_t sqd_notify;
  AddressVector av, alt_av;
};

/// A receive work request taken from RQ or SRQ whose completion is not written yet.
struct TakenRecv {
  std::atomic<uint32_t> valid;
  uint32_t num_sge;
  uint64_t wr_id;
  Sge sge[kMaxSge];
};

struct alignas(64) QpEntry {
  /// --- written at creation or by modify ---
  std::atomic<uint32_t> qpn;   ///< 0 = free
  std::atomic<uint8_t> state;  ///< ibv_qp_state
  uint8_t type;                ///< ibv_qp_type
  uint8_t sig_all;
  uint8_t node, device;
  uint32_t generation;
  uint32_t process, context, pd;
  uint32_t send_cq, recv_cq, srq;
  uint32_t port_index;  ///< PortEntry of the bound port
  uint32_t mtu;         ///< bytes
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
  QpAttributes attr;
  uint32_t next_free;
  uint64_t sq_ring, rq_ring;
  uint32_t sq_mask, sq_stride, rq_mask, rq_stride;

  /// --- requester: under sq_lock ---
  alignas(64) Lock sq_lock;
  uint32_t sq_tail;                ///< next to post
  uint32_t sq_sent;                ///< next to transmit
  uint32_t sq_arrived;             ///< oldest that has not reached its end, in [sq_done, sq_sent]
  uint32_t sq_done;                ///< oldest not completed
  std::atomic<uint32_t> sq_freed;  ///< slots up to here were given back by polling
  uint32_t next_psn;
  uint8_t retries_left, rnr_left;
  uint8_t drain_raised;
  std::atomic<uint8_t> sq_pending;  ///< counted in ProcessEntry::pending; read without the lock
  uint32_t rd_outstanding;
  uint64_t deadline;    ///< local ACK timeout, kNever = not running
  uint64_t hold_until;  ///< RNR wait
  uint64_t tx_last_arrival;
  uint64_t tx_messages, tx_packets, tx_bytes, retries, rnr_retries, errors;
  uint64_t response_packets_in;  ///< of READ

  /// --- responder: under resp_lock, mostly written by the connected peer ---
  alignas(64) Lock resp_lock;
  uint32_t expected_psn;
  uint32_t msn;
  uint8_t nak_sent;  ///< a NAK was sent, and the request it asked for has not come
  uint8_t comm_est, last_wqe_raised, partial;
  uint64_t rx_messages, rx_packets, rx_bytes;
  uint64_t response_packets_out;  ///< of READ
  std::atomic<uint32_t> rq_head;

  /// --- receive queue producer: owner ---
  alignas(64) Lock post_lock;
  std::atomic<uint32_t> rq_tail;

  alignas(64) TakenRecv taken;
  AtomicResult saved[kMaxRdAtomic];
  uint32_t saved_next;
};

/// A late write: an RDMA write taken off the wire, to be released later.
struct LateWrite {
  std::atomic<uint32_t> used;
  uint32_t src_qpn, dst_qpn;
  uint32_t psn, packets;
  uint32_t rkey, length;
  uint32_t src_port, dst_port;
  uint64_t remote_addr;
  uint64_t data;  ///< heap block
  uint64_t release_at_ns;
  uint64_t rule;
  uint64_t ordinal;
};

/// A process that was stopped by a rule and goes on by itself.
struct Resume {
  std::atomic<uint64_t> at_ns;  ///< 0 = free
  uint32_t process;
};
inline constexpr uint32_t kMaxResumes = 64;

struct McastGroup {
  std::atomic<uint32_t> used;
  uint8_t gid[16];
  uint16_t lid;
  uint32_t count;
  uint32_t qpn[kMaxMcastMembers];
};

/// Bits of FabricHeader::hooks; 0 means the fast path.
inline constexpr uint32_t kHookFaults = 1;
inline constexpr uint32_t kHookTrace = 2;
inline constexpr uint32_t kHookShaping = 4;  ///< some port has a rate or a latency
inline constexpr uint32_t kHookTimed = 8;    ///< timed rules, ports that come back, held writes

inline constexpr uint32_t kHeapClasses = 48;

struct HeapState {
  Lock lock;
  uint64_t bump;
  uint64_t free[kHeapClasses];  ///< singly linked, through the first word of each block
};

}  // namespace bfo::softhca
