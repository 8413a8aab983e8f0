// SPDX-License-Identifier: BSD-3-Clause
//
// report.cc: what is printed and logged: a peer that was declared failed, the record of each failover, and a
// rail that moves too little.
#include "pml/bfo/glue/btl_port.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "pml/bfo/glue/component.h"
#include "pml/bfo/glue/deaths.h"
#include "pml/bfo/glue/module.h"
#include "pml/bfo/glue/help.h"
#include "pml/bfo/glue/other_end.h"

namespace bfo::glue {
namespace {

// The rail of a peer that failed last; nullptr when none ever did.
const Rail* last_lost(const ompi_proc_t* proc) {
  const auto* peer =
      static_cast<const Peer*>(static_cast<const void*>(proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_PML]));
  const Rail* last = nullptr;
  for (unsigned i = 0; peer != nullptr && i < peer->n_rails; ++i) {
    const Rail& rail = peer->rails[i];
    if (rail.event != nullptr && (last == nullptr || rail.event->down_ns > last->event->down_ns))
      last = &rail;
  }
  return last;
}

// Device and port of a rail in words.
void name_rail(const RailHandle& rail, bfo_rail_info_t& info) {
  if (rail.failover != nullptr && rail.failover->rail_info(rail.btl, rail.ep, &info) == OPAL_SUCCESS) return;
  info = {};
  snprintf(info.device, sizeof(info.device), "%s", rail.btl->btl_component->btl_version.mca_component_name);
}

// Without a help file: reading one takes memory, and the process ends when there is none.
void tell_no_memory(int rank, int other, const char* host, uint64_t bytes) {
  char text[640];
  const int n = snprintf(
      text, sizeof(text),
      "pml bfo: out of memory: rank %d has no room to keep a message of %lu bytes from or for rank %d (host "
      "%s).\nRequests to and from that rank end with MPI_ERR_OTHER on both sides; those with other ranks go "
      "on. Post receives\nbefore the messages come, let the sender wait for them (MPI_Ssend), or give the "
      "job "
      "more memory (ulimit -v, the\nmemory limit of its container).\n",
      rank, static_cast<unsigned long>(bytes), other, host != nullptr ? host : "unknown");
  const size_t length = std::min(sizeof(text) - 1, static_cast<size_t>(n));
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, length);
}

// The same for a peer that had reached what one process may make another one keep.
void tell_too_much(int rank, int other, const char* host, const xfer::PeerLoss& loss) {
  char text[640];
  const auto much = static_cast<unsigned long>(loss.bytes);
  const char* const where = host != nullptr ? host : "unknown";
  const char* const end =
      "Requests to and from that rank end with MPI_ERR_OTHER on both sides; those with other ranks go on.";
  int n = 0;
  switch (loss.limit) {
    case xfer::PeerLoss::Limit::kAnswers:
      n = snprintf(text, sizeof(text),
                   "pml bfo: rank %d gave up rank %d (host %s): it takes none of the %lu answers to its "
                   "messages that wait here,\nmore than a correct program can cause.\n%s Look for a program "
                   "or library\non that host that sends messages of its own.\n",
                   rank, other, where, much, end);
      break;
    case xfer::PeerLoss::Limit::kPushedOut:
      n = snprintf(
          text, sizeof(text),
          "pml bfo: rank %d gave up rank %d (host %s): a message of it for a communicator that rank %d "
          "had not made yet\nwas dropped. Such messages over tcp and shared memory, of all ranks "
          "together, had reached %lu MiB.\n%s Raise pml_bfo_unknown_limit, or let\nthe ranks meet "
          "(MPI_Barrier) after they make a communicator.\n",
          rank, other, where, rank, much >> 20, end);
      break;
    case xfer::PeerLoss::Limit::kUnknown:
    case xfer::PeerLoss::Limit::kMemory:
      n = snprintf(text, sizeof(text),
                   "pml bfo: rank %d gave up rank %d (host %s): it sent more than %lu MiB for communicators "
                   "that rank %d has not\nmade yet.\n%s Raise pml_bfo_unknown_limit, or let\nthe ranks meet "
                   "(MPI_Barrier) after they make a communicator.\n",
                   rank, other, where, much >> 20, rank, end);
      break;
  }
  const size_t length = std::min(sizeof(text) - 1, static_cast<size_t>(n));
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, length);
}

}  // namespace

OtherEnd::OtherEnd(const PeerHandle& peer, const RailHandle* rail) {
  host = HostName(peer.proc->super);
  if (rail == nullptr || rail->failover == nullptr ||
      rail->failover->peer_port(rail->btl, rail->ep, device, sizeof(device), &port) != OPAL_SUCCESS)
    device[0] = '\0';
}

void OtherEnd::name(EventNames& names) const {
  names.peer_host = host.text();
  names.peer_device = device;
  names.peer_port = port;
}

void BtlPort::peer_failed(const PeerHandle& peer, const xfer::PeerLoss& loss) {
  if (module_.leaving() || peer.refused || loss.died) return;  // of the last the program is told
  const int rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  const int other = static_cast<int>(peer.proc->super.proc_name.vpid);
  if (loss.limit != xfer::PeerLoss::Limit::kMemory)
    return tell_too_much(rank, other, known_host(peer.proc->super), loss);
  if (loss.outcome == Outcome::kNoMemory && !loss.there)
    return tell_no_memory(rank, other, known_host(peer.proc->super), loss.bytes);
  const HostName name(peer.proc->super);
  const char* const host = name.text();
  bfo_rail_info_t info = {};
  const Rail* rail = last_lost(peer.proc);
  if (rail != nullptr) name_rail(rail->handle, info);
  const char* device = rail != nullptr ? info.device : "none";
  const char* cause = rail != nullptr && rail->event->text[0] != '\0' ? rail->event->text : "unknown";
  if (loss.outcome == Outcome::kNoMemory) {
    show_help("no-memory-there", rank, loss.bytes, other, host);
  } else if (loss.outcome == Outcome::kMessageLost) {
    show_help("message-lost", rank, other, host, device, info.port, cause, lost_error_name(loss.outcome));
  } else {
    show_help("peer-lost", rank, other, host, module_.params().park_timeout, device, info.port, cause,
              lost_error_name(loss.outcome));
  }
}

void BtlPort::emit(const FailoverEvent& event) {
  // Rails and peers of a process that finalizes are no failure.
  if (module_.leaving() || event.cause == BFO_CAUSE_SHUTDOWN) return;
  const xfer::Counters& counters = module_.engine().counters();
  module_.summary().resent(counters.bytes_resent, counters.peers_lost);
  const auto* peer = static_cast<const PeerHandle*>(event.peer);
  const auto* rail = static_cast<const RailHandle*>(event.rail_handle);
  FailoverEvent reported = event;
  if (rail == nullptr && peer != nullptr) {
    // The message about a failed peer names the rail that was lost last.
    if (const Rail* last = last_lost(peer->proc); last != nullptr) {
      rail = &last->handle;
      reported.rail = last->index;
      reported.epoch = last->event->epoch;
      memcpy(reported.text, last->event->text, sizeof(reported.text));
    }
  }
  bfo_rail_info_t info = {};
  EventNames names;
  names.rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  names.peer = peer == nullptr ? -1 : static_cast<int>(peer->proc->super.proc_name.vpid);
  if (rail != nullptr) {
    name_rail(*rail, info);
    names.device = info.device;
    names.port = info.port;
    names.own_port = info.own_port;
  }
  OtherEnd there;
  if (peer != nullptr) {
    there = OtherEnd(*peer, rail);
    there.name(names);
  }
  module_.events().write(reported, names);
  module_.summary().events_lost(module_.events().lost());
  // The side that saw the failure prints the line; the other side was notified by it. Without any rail to go
  // on over both sides do.
  if (strcmp(event.what, "failover") == 0 && (event.cause != BFO_CAUSE_PEER_DOWN || event.rails_left == 0))
    module_.console().tell(event, names, now_ns());
  if (strcmp(event.what, "no_rail") == 0)
    module_.console().tell_no_rail(event, names, module_.params().park_timeout, now_ns());
}

void BtlPort::tell(const DegradedEvent& event) {
  if (module_.leaving()) return;
  const auto* const peer = static_cast<const PeerHandle*>(event.peer);
  const auto* const rail = static_cast<const RailHandle*>(event.rail_handle);
  bfo_rail_info_t info = {};
  name_rail(*rail, info);
  EventNames names;
  names.rank = static_cast<int>(OMPI_PROC_MY_NAME->vpid);
  names.peer = static_cast<int>(peer->proc->super.proc_name.vpid);
  names.device = info.device;
  names.port = info.port;
  names.own_port = info.own_port;
  const OtherEnd there(*peer, rail);
  there.name(names);
  DegradedEvent told = event;
  const xfer::JudgedRails same_port =
      module_.engine().judged_rails([rail](const RailHandle& other) { return other.btl == rail->btl; });
  told.rails_judged = same_port.judged;
  told.rails_low = same_port.low;
  module_.events().write(told, names);
  if (event.degraded) {
    module_.console().tell_degraded(told, names, now_ns());
    module_.summary().degraded(names);
  }
  module_.summary().events_lost(module_.events().lost());
}

}  // namespace bfo::glue
