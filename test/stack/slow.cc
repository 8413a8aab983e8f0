// SPDX-License-Identifier: BSD-3-Clause
//
// slow.cc: devices whose completions and written bytes are late, and what destroy_qp throws away; see
// device.h.
//
// H1..H23: contrib/doc/hazards.md
#include <algorithm>
#include <cstring>
#include <utility>

#include "test/stack/device.h"

namespace bfo::stack {

// ---- slow devices

/// True: this completion, or one before it in the same queue, is not seen yet.
bool Fabric::held_up(Cq& c, const ibv_wc& wc) {
  if (c.channel != nullptr) return false;
  uint64_t t = time.now();
  if (dice.below(1000) < traits.cqe_late) t += 1 + dice.below(traits.cqe_ns);
  if (!c.coming.empty()) t = std::max(t, c.coming.back().first);
  if (t == time.now()) return false;
  c.coming.emplace_back(t, wc);
  time.at(
      t, [](void* f, uint64_t number, void*) { static_cast<Fabric*>(f)->surface_due(number); }, this,
      c.number);
  return true;
}

void Fabric::surface_due(uint64_t number) {
  for (const auto& cq : cqs) {
    if (cq->number != number) continue;
    for (; !cq->coming.empty() && cq->coming.front().first <= time.now(); cq->coming.pop_front())
      if (!cq->broken) surface(*cq, cq->coming.front().second);
    return;
  }
}

/// The event follows the last completion.
void Fabric::raise_last_receive(Qp& qp) {
  qp.last_receive_raised = true;
  const Cq& cq = *static_cast<Cq*>(qp.init.recv_cq);
  if (cq.coming.empty()) return raise(*qp.device(), IBV_EVENT_QP_LAST_WQE_REACHED, &qp);
  time.at(
      cq.coming.back().first + 1,
      [](void* f, uint64_t a, void*) {
        Fabric& fabric = *static_cast<Fabric*>(f);
        Qp* const q = fabric.find(static_cast<uint32_t>(a));
        if (q != nullptr) fabric.raise(*q->device(), IBV_EVENT_QP_LAST_WQE_REACHED, q);
      },
      this, qp.qp_num);
}

/// True: the bytes of this write, or of one before it, are not in memory yet.
bool Fabric::keep_back(Qp& responder, LateWrite w) {
  if (responder.late.empty() && dice.below(1000) >= traits.write_late) return false;
  responder.late.push_back(std::move(w));
  time.in(
      1 + dice.below(traits.write_ns),
      [](void* f, uint64_t a, void*) {
        Fabric& fabric = *static_cast<Fabric*>(f);
        if (Qp* const q = fabric.find(static_cast<uint32_t>(a)); q != nullptr) fabric.land(*q);
      },
      this, responder.qp_num);
  return true;
}

void Fabric::land(Qp& responder) {
  for (const LateWrite& w : responder.late) {
    const auto length = static_cast<uint32_t>(w.data.size());
    observer.accessed(responder.device()->process, w.remote, length, w.rkey, true);
    std::memcpy(reinterpret_cast<void*>(w.remote), w.data.data(), length);
  }
  responder.late.clear();
}

// ---- what a queue pair takes with it

namespace {
/// Completions in `cq` that the process has not read.
template <class Wanted>
bool any_of(const ibv_cq* cq, const Wanted& wanted) {
  const Cq& c = *static_cast<const Cq*>(cq);
  return std::any_of(c.entries.begin(), c.entries.end(), wanted) ||
         std::any_of(c.coming.begin(), c.coming.end(), [&](const auto& each) { return wanted(each.second); });
}
bool receives(const ibv_wc& wc) {
  return (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
}
}  // namespace

bool Fabric::success_waits(const ibv_qp* qp) const {
  return any_of(qp->send_cq, [qp](const ibv_wc& wc) {
    const bool bare = wc.byte_len == 0;  // a probe or a marker
    return wc.qp_num == qp->qp_num && wc.status == IBV_WC_SUCCESS && !receives(wc) && !bare;
  });
}

/// H3: what the device has acknowledged is delivered before the queue pair is destroyed.
void Fabric::look_for_thrown(const Qp& qp) {
  if (closing || !running || qp.qp_type != IBV_QPT_RC || qp.device()->dead) return;
  const bool thrown = any_of(qp.init.recv_cq, [&qp](const ibv_wc& wc) {
    return wc.qp_num == qp.qp_num && wc.status == IBV_WC_SUCCESS && receives(wc);
  });
  if (thrown) observer.thrown_away(qp, "a message that was acknowledged");
  if (success_waits(&qp)) observer.thrown_away(qp, "the completion of a send that succeeded");
}

}  // namespace bfo::stack
