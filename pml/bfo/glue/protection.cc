// SPDX-License-Identifier: BSD-3-Clause
//
// protection.cc: see protection.h.
#include "pml/bfo/glue/protection.h"

#include <cstdio>
#include <cstring>

namespace bfo::glue {
namespace {

constexpr char kNotProtected[] = "the job does not survive the loss of a rail";
constexpr char kSilence[] = " (pml_bfo_min_rails 0 silences this)";

// What is missing, and what helps, for a BTL that has no rails to offer.
void tell_btl(const OwnRails& own, char* text, size_t size) {
  switch (own.btl) {
    case Btl::kLeftOut:
      snprintf(text, size, "the parameter btl (\"%.200s%s\") leaves out verbs. %s", own.btl_list,
               strlen(own.btl_list) > 200 ? ".." : "",
               own.by_name ? "Take verbs out of that list" : "Add verbs to that list, or give none");
      return;
    case Btl::kNotLoaded:
      snprintf(text, size,
               "the BTL verbs is not loaded. Install mca_btl_verbs.so beside mca_pml_bfo.so, or name its "
               "folder in "
               "mca_base_component_path");
      return;
    case Btl::kOtherVersion:
      snprintf(
          text, size,
          "mca_pml_bfo.so and mca_btl_verbs.so are of two builds (versions %u and %u of their contract). "
          "Install both from one build",
          own.our_version, own.btl_version);
      return;
    case Btl::kNoFlag:
      snprintf(
          text, size,
          "btl_verbs_flags takes the flag MCA_BTL_FLAGS_FAILOVER_SUPPORT away. Leave that parameter out");
      return;
    case Btl::kThere:
      snprintf(text, size, "%s. %s", own.missing, own.remedy);
      return;
  }
}

}  // namespace

bool lacks_rails(unsigned min_rails, const OwnRails& own, const JobShape& shape) {
  if (min_rails == 0 || (own.btl == Btl::kThere && own.up >= min_rails)) return false;
  if (shape.several_hosts) return true;
  return !shape.memory && (own.modules != 0 || shape.asked);
}

void tell_own(unsigned min_rails, const OwnRails& own, const char* host, char* text, size_t size) {
  char why[640];
  tell_btl(own, why, sizeof(why));
  const unsigned up = own.btl == Btl::kThere ? own.up : 0;
  char wish[64] = "";
  if (up >= 2) snprintf(wish, sizeof(wish), ", pml_bfo_min_rails asks for %u", min_rails);
  char rails[64] = "no rail is up";
  if (up != 0 && up < own.expected)
    snprintf(rails, sizeof(rails), "%u of %u rails %s up", up, own.expected, up == 1 ? "is" : "are");
  else if (up != 0)
    snprintf(rails, sizeof(rails), "there %s %u rail%s", up == 1 ? "is" : "are", up, up == 1 ? "" : "s");
  else if (own.expected != 0)
    snprintf(rails, sizeof(rails), "none of %u rails is up", own.expected);
  if (up >= 2)
    snprintf(text, size, "bfo: host %s: %s%s: %s%s", host, rails, wish, why, kSilence);
  else
    snprintf(text, size, "bfo: host %s: %s, %s: %s%s", host, kNotProtected, rails, why, kSilence);
}

PeerGap judge_peer(unsigned min_rails, const PeerRails& peer) {
  if (min_rails == 0 || (peer.same_host && peer.rails == 0)) return PeerGap::kNone;
  if (peer.rails != 0 && peer.others != 0) return PeerGap::kMixed;
  if (peer.rails >= min_rails) return PeerGap::kNone;
  if (peer.own_up < min_rails) return PeerGap::kOwn;
  if (peer.published < 0) return PeerGap::kOtherBuild;
  return peer.published >= static_cast<int>(min_rails) ? PeerGap::kNoMeeting : PeerGap::kNone;
}

void tell_peer(PeerGap gap, const PeerRails& peer, const char* host, const char* other, const char* btl,
               char* text, size_t size) {
  char why[320] = "";
  switch (gap) {
    case PeerGap::kMixed:
      snprintf(why, sizeof(why),
               "messages to it also go over the BTL %s, which loses them with a rail. Leave it out (--mca "
               "btl ^%s)",
               btl, btl);
      break;
    case PeerGap::kOtherBuild:
      snprintf(why, sizeof(why),
               "its mca_btl_verbs.so is of another build. Install the same components on all hosts");
      break;
    case PeerGap::kNoMeeting:
      snprintf(why, sizeof(why),
               "of the ports of both, only %u meet in a common network. Give the ports of each rail "
               "addresses of one "
               "subnet, and each rail one of its own",
               peer.rails);
      break;
    case PeerGap::kNone:
    case PeerGap::kOwn:
      break;
  }
  snprintf(text, size, "bfo: host %s: %s to host %s: %s%s", host, kNotProtected, other, why, kSilence);
}

void tell_windows(const char* host, char* text, size_t size) {
  snprintf(
      text, size,
      "bfo: host %s: one-sided communication (MPI_Win_create, ...) by osc rdma uses one rail, without this "
      "PML, and the job ends when that rail is lost; messages survive it. To have windows refused instead, "
      "leave osc rdma out (--mca osc ^rdma)%s",
      host, kSilence);
}

void tell_lost_window(const char* host, const char* other, char* text, size_t size) {
  snprintf(
      text, size,
      "bfo: host %s: one-sided communication by osc rdma has lost a message to host %s with its rail, and "
      "does not send it again: the job ends",
      host, other);
}

}  // namespace bfo::glue
