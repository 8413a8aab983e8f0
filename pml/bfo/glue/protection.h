// SPDX-License-Identifier: BSD-3-Clause
//
// protection.h: can this job survive the loss of a rail? The rule, and the sentence when it cannot. Pure
// functions; no Open MPI here.
//
// Who selected bfo wants to survive. So a job that cannot says so, once per host, with what is missing and
// the remedy; silence means that it can. A process judges its own host when it starts, and a peer when it
// meets it: nobody reads the records of all processes. What a peer lacks at its own host is told there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bfo::glue {

/// What became of the BTL verbs in this process.
enum class Btl : uint8_t {
  kThere,         ///< it speaks the contract, with or without ports
  kLeftOut,       ///< by the parameter btl
  kNotLoaded,     ///< there is no such component
  kOtherVersion,  ///< it speaks another version of the contract
  kNoFlag,        ///< a parameter takes the flag of the contract away
};

/// The rails of this process.
struct OwnRails {
  Btl btl = Btl::kThere;
  unsigned up = 0;
  unsigned expected = 0;  ///< ports that are used, or would be if they were up
  unsigned modules = 0;   ///< of the BTL, with the contract or without
  /// The BTL's words, and values for the sentence.
  const char* missing = "";
  const char* remedy = "";
  const char* btl_list = "";  ///< the parameter btl
  bool by_name = false;       ///< the list leaves verbs out by name ("^verbs")
  unsigned our_version = 0;   ///< of the contract
  unsigned btl_version = 0;
};

/// What the job's messages take.
struct JobShape {
  bool several_hosts = false;
  bool memory = false;  ///< processes of one host reach each other through shared memory
  bool asked = false;   ///< btl names verbs
};

/// True when the process's own host has something to say. `min_rails`: so many rails survive what they are to
/// survive; 0: nothing is said. A job on one host that needs no rails says nothing.
bool lacks_rails(unsigned min_rails, const OwnRails& own, const JobShape& shape);

/// The sentence about it, without a newline.
void tell_own(unsigned min_rails, const OwnRails& own, const char* host, char* text, size_t size);

/// What a process sees of a peer that it has just met.
struct PeerRails {
  unsigned rails = 0;   ///< with the contract
  unsigned others = 0;  ///< ways to it without the contract, self and shared memory left out
  bool same_host = false;
  unsigned own_up = 0;  ///< ports of this process
  int published = 0;    ///< ports of the peer; 0: none, -1: in a form that cannot be read
};

enum class PeerGap : uint8_t {
  kNone,
  kOwn,         ///< this host lacks rails
  kMixed,       ///< messages also go over a BTL that survives nothing
  kOtherBuild,  ///< the peer's ports cannot be read
  kNoMeeting,   ///< both have enough ports, but too few of them are in a common network
};
PeerGap judge_peer(unsigned min_rails, const PeerRails& peer);

/// The sentence about kMixed, kOtherBuild and kNoMeeting. `other`: the host of the peer; `btl`: the BTL of
/// kMixed.
void tell_peer(PeerGap gap, const PeerRails& peer, const char* host, const char* other, const char* btl,
               char* text, size_t size);

/// The sentence about windows of one-sided communication that use a rail.
void tell_windows(const char* host, char* text, size_t size);
/// The sentence when a message of one was lost on the way to host `other`.
void tell_lost_window(const char* host, const char* other, char* text, size_t size);

}  // namespace bfo::glue
