// SPDX-License-Identifier: BSD-3-Clause
//
// The responder: what the receiving HCA does with one request. Executed by the requester's process.
#include "contrib/softhca/engine/responder.h"

#include <infiniband/verbs.h>

#include <cstring>

#include "contrib/softhca/engine/async.h"
#include "contrib/softhca/engine/cq.h"
#include "contrib/softhca/engine/mr.h"
#include "contrib/softhca/engine/packet_loss.h"
#include "contrib/softhca/engine/psn.h"
#include "contrib/softhca/engine/qp.h"
#include "contrib/softhca/engine/receive.h"
#include "contrib/softhca/fabric/copy.h"
#include "contrib/softhca/fabric/gids.h"
#include "contrib/softhca/fabric/tables.h"

namespace bfo::softhca {
namespace {

constexpr uint32_t kGrhBytes = 40;
constexpr uint64_t kWhole = ~uint64_t{0};

bool is_write(uint8_t opcode) {
  return opcode == static_cast<uint8_t>(Opcode::kWrite) || opcode == static_cast<uint8_t>(Opcode::kWriteImm);
}

/// One request being executed; holds the responder's lock.
class Execution {
 public:
  Execution(Fabric& fabric, QpEntry& src, Wqe& wqe, QpEntry& dst, const Sge* local, uint32_t local_count,
            uint64_t cut, Guard& guard, DeferredActions& deferred)
      : fabric_(fabric),
        src_(src),
        wqe_(wqe),
        dst_(dst),
        local_(local),
        local_count_(local_count),
        cut_(cut),
        guard_(guard),
        deferred_(deferred) {}

  Reply run(bool replay) {
    if (is_send(wqe_.opcode)) return replay ? Reply::kAck : send();
    if (is_write(wqe_.opcode)) return replay ? Reply::kAck : write();
    if (wqe_.opcode == static_cast<uint8_t>(Opcode::kRead)) return read();
    return atomic(replay);
  }

 private:
  KeyUser user() const { return {dst_.pd, dst_.process, dst_.qpn.load(std::memory_order_relaxed)}; }

  Reply fail(Reply reply, ibv_event_type event) {
    fail_qp(fabric_, dst_, event, deferred_);
    return reply;
  }
  Reply fail_recv(Reply reply, ibv_wc_status status) {
    complete_recv_error(fabric_, dst_, status, deferred_);
    enter_error(fabric_, dst_, deferred_);
    return reply;
  }

  /// The outcome of a copy as the two sides see it. `Ack` means it went well.
  Reply after(CopyResult result, Reply remote_fault) {
    if (!dst_.resp_lock.commit(fabric_.tag())) {
      guard_.abandon();  // the owner took the queue pair back while we were stopped
      return Reply::kSilent;
    }
    switch (result) {
      case CopyResult::kDone:
        return Reply::kAck;
      case CopyResult::kRemoteFault:
        return remote_fault;
      case CopyResult::kLocalFault:
        return Reply::kLocalFault;
      default:
        return Reply::kSilent;
    }
  }

  void drop_partial();
  bool too_many_reads() const;
  Reply send();
  Reply write();
  Reply read();
  Reply atomic(bool replay);
  bool ud() const { return dst_.type == IBV_QPT_UD; }
  bool gather(uint8_t* out, uint32_t skip) const;
  void fill(CqeEntry& entry, uint8_t opcode, uint32_t bytes);

  Fabric& fabric_;
  QpEntry& src_;
  Wqe& wqe_;
  QpEntry& dst_;
  const Sge* local_;
  uint32_t local_count_;
  uint64_t cut_;
  Guard& guard_;
  DeferredActions& deferred_;
};

void Execution::fill(CqeEntry& entry, uint8_t opcode, uint32_t bytes) {
  const PortEntry& port = fabric_.header().ports_table[src_.port_index];
  entry.status = IBV_WC_SUCCESS;
  entry.opcode = opcode;
  entry.flags = 0;
  if (wqe_.opcode == static_cast<uint8_t>(Opcode::kSendImm) ||
      wqe_.opcode == static_cast<uint8_t>(Opcode::kWriteImm)) {
    entry.flags |= CqeFlags::kImm;
  }
  if (wqe_.opcode == static_cast<uint8_t>(Opcode::kSendInv)) entry.flags |= CqeFlags::kInv;
  if (ud() && wqe_.has_grh != 0) entry.flags |= CqeFlags::kGrh;
  entry.sl = wqe_.sl;
  entry.wr_id = dst_.taken.wr_id;
  entry.byte_len = bytes;
  entry.qpn = dst_.qpn.load(std::memory_order_relaxed);
  entry.imm = wqe_.imm;
  entry.src_qp = src_.qpn.load(std::memory_order_relaxed);
  const FabricHeader& h = fabric_.header();
  const uint8_t source_bits = ud() ? wqe_.src_path_bits : src_.attr.av.src_path_bits;
  entry.slid =
      is_ethernet(h)
          ? uint16_t{0}
          : static_cast<uint16_t>(port.lid.load(std::memory_order_relaxed) | path_bits(h, source_bits));
  entry.dlid_path_bits = path_bits(h, ud() ? wqe_.dlid : src_.attr.av.dlid) & 0xf;
  entry.pkey_index = dst_.attr.pkey_index;
  entry.vendor_err = 0;
}

bool Execution::gather(uint8_t* out, uint32_t skip) const {
  out += skip;
  for (uint32_t i = 0; i < local_count_; ++i) {
    if (local_[i].length == 0) continue;
    std::memcpy(out, reinterpret_cast<const void*>(local_[i].addr), local_[i].length);
    out += local_[i].length;
  }
  return true;
}

/// The global route header as the receiver finds it in front of a UD payload.
void build_grh(Fabric& fabric, const QpEntry& src, const Wqe& wqe, uint8_t* out) {
  std::memset(out, 0, kGrhBytes);
  uint32_t version = 6u << 28 | (wqe.hop_class & 0xff) << 20;
  uint16_t payload = static_cast<uint16_t>(wqe.length + 24);
  out[0] = static_cast<uint8_t>(version >> 24);
  out[1] = static_cast<uint8_t>(version >> 16);
  out[4] = static_cast<uint8_t>(payload >> 8);
  out[5] = static_cast<uint8_t>(payload);
  out[6] = 0x1b;
  out[7] = static_cast<uint8_t>(wqe.hop_class >> 8);
  make_gid(fabric.header(), src.port_index, wqe.sgid_index, out + 8);
  std::memcpy(out + 24, wqe.dgid, 16);
}

Reply Execution::send() {
  drop_partial();
  if (!take_recv(fabric_, dst_, deferred_)) return Reply::kRnr;
  TakenRecv& taken = dst_.taken;
  uint32_t header = ud() ? kGrhBytes : 0;
  uint64_t room = 0;
  for (uint32_t i = 0; i < taken.num_sge; ++i) room += taken.sge[i].length;
  if (room < uint64_t{wqe_.length} + header) {
    if (ud()) return Reply::kSilent;  // the request stays for the next datagram
    return fail_recv(Reply::kInvReq, IBV_WC_LOC_LEN_ERR);
  }
  Sge there[kMaxSge];
  if (!translate_list(fabric_, taken.sge, taken.num_sge, user(), IBV_ACCESS_LOCAL_WRITE, there)) {
    return fail_recv(Reply::kRemOp, IBV_WC_LOC_PROT_ERR);
  }
  uint32_t total = wqe_.length + header;
  bool grh = header != 0 && wqe_.has_grh != 0;
  uint32_t skipped = header != 0 && !grh ? header : 0;  // an absent GRH leaves its room untouched
  bool through_cqe = total - skipped <= kInlineCqe && cut_ == kWhole &&
                     (total == 0 || (taken.num_sge >= 1 && taken.sge[0].length >= total));
  if (!through_cqe) {
    // GRH first, then the payload, as one scatter over the receive segments.
    uint8_t grh_bytes[kGrhBytes] = {};
    Sge from[kMaxSge + 1];
    uint32_t count = 0;
    if (header != 0) {
      if (grh) build_grh(fabric_, src_, wqe_, grh_bytes);
      from[count++] = {reinterpret_cast<uint64_t>(grh_bytes), header, 0};
    }
    for (uint32_t i = 0; i < local_count_; ++i) from[count++] = local_[i];
    CopyResult copied;
    {
      uint64_t length = cut_ < total ? cut_ : total;
      Copy copy(fabric_, dst_.process, there, taken.num_sge, length);
      bool still = translate_list(fabric_, taken.sge, taken.num_sge, user(), IBV_ACCESS_LOCAL_WRITE, there);
      copied = still ? copy.put(from, count) : CopyResult::kRemoteFault;
    }
    Reply reply = after(copied, Reply::kRemOp);
    if (reply == Reply::kRemOp) return fail_recv(Reply::kRemOp, IBV_WC_LOC_PROT_ERR);
    if (reply != Reply::kAck) return reply;
    if (cut_ < total) {
      dst_.partial = 1;
      return Reply::kSilent;
    }
  }
  CqePush push(fabric_, fabric_.header().cqs[dst_.recv_cq], deferred_);
  CqeEntry* entry = push.entry();
  if (entry == nullptr) {
    taken.valid.store(0, std::memory_order_release);
    return Reply::kAck;  // accepted by the transport; the overrun is the receiver's affair
  }
  fill(*entry, IBV_WC_RECV, total);
  if (through_cqe && total > skipped) {
    if (grh) build_grh(fabric_, src_, wqe_, entry->payload);
    gather(entry->payload, grh ? kGrhBytes : 0);
    entry->inline_len = static_cast<uint16_t>(total - skipped);
    entry->inline_dst = there[0].addr + skipped;
    entry->inline_lkey = taken.sge[0].lkey;
  }
  push.commit((wqe_.flags & IBV_SEND_SOLICITED) != 0);
  taken.valid.store(0, std::memory_order_release);
  return Reply::kAck;
}

/// The rest of an earlier UC message was lost: its receive request is used again, but one that came from an
/// SRQ cannot go back there.
void Execution::drop_partial() {
  if (dst_.partial == 0) return;
  dst_.partial = 0;
  if (dst_.type == IBV_QPT_UC && dst_.srq != kNone)
    complete_recv_error(fabric_, dst_, IBV_WC_REM_ABORT_ERR, deferred_);
}

Reply Execution::write() {
  bool imm = wqe_.opcode == static_cast<uint8_t>(Opcode::kWriteImm);
  uint64_t target = 0;
  bool fine = wqe_.length == 0 || ((dst_.attr.access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
                                   translate(fabric_, wqe_.rkey, user(), wqe_.remote_addr, wqe_.length,
                                             IBV_ACCESS_REMOTE_WRITE, target));
  if (imm && !take_recv(fabric_, dst_, deferred_))
    return fine ? Reply::kRnr : fail(Reply::kRemAccess, IBV_EVENT_QP_ACCESS_ERR);
  if (!fine) {
    return imm ? fail_recv(Reply::kRemAccess, IBV_WC_LOC_ACCESS_ERR)
               : fail(Reply::kRemAccess, IBV_EVENT_QP_ACCESS_ERR);
  }
  if (wqe_.length > 0) {
    Sge there{target, wqe_.length, wqe_.rkey};
    CopyResult copied;
    {
      Copy copy(fabric_, dst_.process, &there, 1, cut_ < wqe_.length ? cut_ : wqe_.length);
      bool still = translate(fabric_, wqe_.rkey, user(), wqe_.remote_addr, wqe_.length,
                             IBV_ACCESS_REMOTE_WRITE, target);
      copied = still ? copy.put(local_, local_count_) : CopyResult::kRemoteFault;
    }
    Reply reply = after(copied, Reply::kRemAccess);
    if (reply == Reply::kRemAccess) {
      return imm ? fail_recv(reply, IBV_WC_LOC_ACCESS_ERR) : fail(reply, IBV_EVENT_QP_ACCESS_ERR);
    }
    if (reply != Reply::kAck) return reply;
  }
  if (cut_ < wqe_.length) return Reply::kSilent;
  if (!imm) return Reply::kAck;
  CqePush push(fabric_, fabric_.header().cqs[dst_.recv_cq], deferred_);
  if (CqeEntry* entry = push.entry()) {
    fill(*entry, static_cast<uint8_t>(IBV_WC_RECV_RDMA_WITH_IMM), wqe_.length);
    push.commit((wqe_.flags & IBV_SEND_SOLICITED) != 0);
  }
  dst_.taken.valid.store(0, std::memory_order_release);
  return Reply::kAck;
}

/// More READ and ATOMIC requests than this responder tracks? Those whose answers are still on their way
/// count.
bool Execution::too_many_reads() const {
  const uint32_t limit = dst_.attr.max_dest_rd_atomic;
  if (limit != 0 && limit >= src_.attr.max_rd_atomic) return false;  // the requester holds back by itself
  uint32_t busy = 0;
  for (uint32_t i = src_.sq_done; i != src_.sq_arrived; ++i) {
    const Wqe& other = wqe_at(fabric_, src_, i);
    const bool tracked = other.opcode == static_cast<uint8_t>(Opcode::kRead) ||
                         other.opcode == static_cast<uint8_t>(Opcode::kCmpSwap) ||
                         other.opcode == static_cast<uint8_t>(Opcode::kFetchAdd);
    if (tracked && other.stage == WqeStage::kAnswered && other.complete_at > fabric_.now()) ++busy;
  }
  return busy >= limit;
}

Reply Execution::read() {
  if (too_many_reads()) return fail(Reply::kInvReq, IBV_EVENT_QP_ACCESS_ERR);
  if (wqe_.length == 0) return Reply::kAck;
  uint64_t source = 0;
  if ((dst_.attr.access & IBV_ACCESS_REMOTE_READ) == 0 ||
      !translate(fabric_, wqe_.rkey, user(), wqe_.remote_addr, wqe_.length, IBV_ACCESS_REMOTE_READ, source)) {
    return fail(Reply::kRemAccess, IBV_EVENT_QP_ACCESS_ERR);
  }
  Sge there{source, wqe_.length, wqe_.rkey};
  CopyResult copied;
  {
    Copy copy(fabric_, dst_.process, &there, 1, cut_ < wqe_.length ? cut_ : wqe_.length);
    bool still =
        translate(fabric_, wqe_.rkey, user(), wqe_.remote_addr, wqe_.length, IBV_ACCESS_REMOTE_READ, source);
    copied = still ? copy.get(local_, local_count_) : CopyResult::kRemoteFault;
  }
  Reply reply = after(copied, Reply::kRemAccess);
  if (reply == Reply::kRemAccess) return fail(reply, IBV_EVENT_QP_ACCESS_ERR);
  return reply == Reply::kAck && cut_ < wqe_.length ? Reply::kSilent : reply;
}

Reply Execution::atomic(bool replay) {
  if (too_many_reads()) return fail(Reply::kInvReq, IBV_EVENT_QP_ACCESS_ERR);
  uint64_t old = 0;
  if (replay) {
    bool found = false;
    for (const AtomicResult& result : dst_.saved) {
      if (result.valid != 0 && result.psn == wqe_.psn) old = result.value, found = true;
    }
    if (!found) return Reply::kSilent;
  } else {
    if ((wqe_.remote_addr & 7) != 0) return fail(Reply::kInvReq, IBV_EVENT_QP_ACCESS_ERR);
    uint64_t address = 0;
    if ((dst_.attr.access & IBV_ACCESS_REMOTE_ATOMIC) == 0 ||
        !translate(fabric_, wqe_.rkey, user(), wqe_.remote_addr, 8, IBV_ACCESS_REMOTE_ATOMIC, address)) {
      return fail(Reply::kRemAccess, IBV_EVENT_QP_ACCESS_ERR);
    }
    Guard exclusive(fabric_.header().atomic_lock, fabric_.tag(), fabric_);
    Sge there{address, 8, wqe_.rkey};
    Sge mine{reinterpret_cast<uint64_t>(&old), 8, 0};
    CopyResult copied = Copy(fabric_, dst_.process, &there, 1, 8, true).get(&mine, 1);
    if (copied == CopyResult::kDone) {
      bool add = wqe_.opcode == static_cast<uint8_t>(Opcode::kFetchAdd);
      uint64_t fresh = add ? old + wqe_.compare_add : old == wqe_.compare_add ? wqe_.swap : old;
      mine.addr = reinterpret_cast<uint64_t>(&fresh);
      if (fresh != old) copied = Copy(fabric_, dst_.process, &there, 1, 8, true).put(&mine, 1);
    }
    Reply reply = after(copied, Reply::kRemAccess);
    if (reply == Reply::kRemAccess) return fail(reply, IBV_EVENT_QP_ACCESS_ERR);
    if (reply != Reply::kAck) return reply;
    AtomicResult& slot = dst_.saved[dst_.saved_next++ % kMaxRdAtomic];
    slot = {wqe_.psn, 1, old};
  }
  uint8_t bytes[8];
  std::memcpy(bytes, &old, 8);
  uint32_t placed = 0;
  for (uint32_t i = 0; i < local_count_ && placed < 8; ++i) {
    uint32_t part = local_[i].length < 8 - placed ? local_[i].length : 8 - placed;
    std::memcpy(reinterpret_cast<void*>(local_[i].addr), bytes + placed, part);
    placed += part;
  }
  return Reply::kAck;
}

/// Where the request stands relative to what the responder expects next.
enum class Order { kNext, kReplay, kGap };

Order order_of(const QpEntry& src, const QpEntry& dst, const Wqe& wqe) {
  if (src.type != IBV_QPT_RC) return Order::kNext;
  int32_t distance = psn_distance(wqe.psn, dst.expected_psn);
  return distance == 0 ? Order::kNext : distance < 0 ? Order::kReplay : Order::kGap;
}

bool invalidate_window(Fabric& fabric, QpEntry& dst, uint32_t rkey) {
  if (!key_is_valid(fabric, rkey)) return false;
  MrEntry& mr = fabric.header().mrs[mr_slot(rkey)];
  if ((mr.flags & MrFlags::kWindow2) == 0 || mr.process != dst.process || mr.pd != dst.pd) return false;
  mr.key.store(0);
  return true;
}

}  // namespace

Response respond(Fabric& fabric, QpEntry& src, Wqe& wqe, uint32_t dst_qpn, uint32_t dst_port,
                 const Sge* local, uint32_t local_count, uint64_t cut, DeferredActions& deferred) {
  Response response;
  QpEntry* found = find_qp(fabric, dst_qpn);
  if (found == nullptr || !fabric.alive(found->process)) return response;
  QpEntry& dst = *found;
  Guard guard(dst.resp_lock, fabric.tag(), fabric);
  uint8_t state = dst.state.load(std::memory_order_acquire);
  if (dst.qpn.load(std::memory_order_relaxed) != dst_qpn || !receives(state)) return response;
  if (dst.type != src.type || dst.port_index != dst_port) return response;
  if (src.type == IBV_QPT_UD) {
    uint32_t qkey = (wqe.qkey & 0x80000000u) != 0 ? src.attr.qkey : wqe.qkey;
    if (dst.attr.qkey != qkey) return response;
  } else if (dst.attr.dest_qpn != src.qpn.load(std::memory_order_relaxed)) {
    return response;
  }
  Order order = order_of(src, dst, wqe);
  if (order == Order::kGap) {
    // One NAK per gap: what follows it is dropped until the expected PSN comes. If that is lost again, only
    // the requester's timer helps.
    if (dst.nak_sent == 0) {
      response.reply = Reply::kSeqErr;
      note_loss(fabric, dst_port, LossSign::kEarlyRequest);
    }
    dst.nak_sent = 1;
    return response;
  }
  if (state == IBV_QPS_RTR && dst.comm_est == 0) [[unlikely]] {
    dst.comm_est = 1;
    raise_qp_event(fabric, dst, IBV_EVENT_COMM_EST, deferred);
  }
  Execution execution(fabric, src, wqe, dst, local, local_count, cut, guard, deferred);
  response.replay = order == Order::kReplay;
  response.reply = execution.run(response.replay);
  if (response.reply == Reply::kRnr) {
    response.rnr_timer = dst.attr.min_rnr_timer;
    dst.nak_sent = 1;
  }
  if (response.reply == Reply::kAck && !response.replay) {
    if (wqe.opcode == static_cast<uint8_t>(Opcode::kSendInv)) invalidate_window(fabric, dst, wqe.imm);
    count_received(dst, wqe.psn, wqe.packets, wqe.length, is_read(wqe));
  }
  return response;
}

}  // namespace bfo::softhca
