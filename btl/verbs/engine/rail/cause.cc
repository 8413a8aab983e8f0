// SPDX-License-Identifier: BSD-3-Clause
//
// cause.cc: see cause.h.
#include "btl/verbs/engine/rail/cause.h"

#include <array>
#include <cerrno>
#include <cstdio>

#include "btl/verbs/engine/device/async.h"
#include "btl/verbs/engine/device/cq.h"

namespace bfo::engine {
namespace {

constexpr std::array<const char*, 7> kQpStates = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static_assert(IBV_QPS_ERR == kQpStates.size() - 1);

constexpr std::array<const char*, 6> kPortStates = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
static_assert(IBV_PORT_ACTIVE_DEFER == kPortStates.size() - 1);

template <size_t N>
const char* name(const std::array<const char*, N>& names, int error, unsigned value) {
  return error == 0 && value < N ? names[value] : "unknown";
}

const char* probe_text(int32_t code) {
  if (code == kCodeAskedByPeer)
    return "the peer's work stands still and it is answered over other rails only";
  return code == 0 ? "its work stands still and the peer answers over other rails only"
                   : "the path probe failed and the peer answers over other rails only";
}

const char* handshake_text(int32_t code) {
  if (code == ENETDOWN) return "its port was not active at one end when that process started";
  if (code == EINPROGRESS)
    return "late: not up within btl_verbs_connect_timeout, what waited for it goes over another rail";
  return code == ETIMEDOUT ? "no sign of life from the peer: its process or the path is dead"
                           : "the connection handshake failed";
}

}  // namespace

Finding find_cause(const VerbsApi& api, ibv_qp* qp, ibv_context* context, uint8_t port) {
  Finding finding;
  finding.asked = true;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  finding.qp_error = api.query_qp(qp, &attr, IBV_QP_STATE, &init);
  finding.qp = attr.qp_state;
  ibv_port_attr port_attr{};
  finding.port_error = api.query_port(context, port, &port_attr);
  finding.port = port_attr.state;
  return finding;
}

const char* cause_text(bfo_rail_cause_t cause, int32_t code) {
  switch (cause) {
    case BFO_CAUSE_NONE:
      return "";
    case BFO_CAUSE_WC_ERROR:
      return status_name(code);
    case BFO_CAUSE_ASYNC_EVENT:
      return event_name(code);
    case BFO_CAUSE_PEER_DOWN:
      return "the peer reported the rail down";
    case BFO_CAUSE_PROBE_FAILED:
      return probe_text(code);
    case BFO_CAUSE_FENCE:
      return "fenced";
    case BFO_CAUSE_HANDSHAKE:
      return handshake_text(code);
    case BFO_CAUSE_POST_FAILED:
      return "ibv_post_send failed";
    case BFO_CAUSE_SHUTDOWN:
      return "the peer is leaving";
    case BFO_CAUSE_RESOURCE:
      return "a resource is missing";
    case BFO_CAUSE_GIVEN_BACK:
      return "its queue pairs were given back for a peer without any rail";
  }
  return "unknown";
}

void flush_text(const Finding& finding, char* text, size_t size) {
  if (!finding.asked) {
    snprintf(text, size, "work was flushed, and nothing has said why");
    return;
  }
  const char* port = name(kPortStates, finding.port_error, finding.port);
  if (finding.port_error == 0 && finding.port != IBV_PORT_ACTIVE) {
    snprintf(text, size, "its port is not active (%s), and its work was flushed", port);
    return;
  }
  snprintf(text, size, "work was flushed, and nothing says why: queue pair in %s, port %s",
           name(kQpStates, finding.qp_error, finding.qp), port);
}

}  // namespace bfo::engine
