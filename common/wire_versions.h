// SPDX-License-Identifier: BSD-3-Clause
//
// wire_versions.h: which messages a component sends and understands, how it publishes that, and what is said
// when two processes do not understand each other. No Open MPI here.
//
// Each component publishes one record for each process (the modex): a WireRecord, then entries of one size.
// All that is in a WireRecord stays where it is in every later version; a later one may be longer, and so may
// its entries: a reader takes what it knows. What changes a message so that an older reader would take it for
// another one raises `version`. As long as the older form is still sent to those who know no other,
// `oldest` stays.
#pragma once

#include <cstddef>
#include <cstdint>

// For a test that lets two builds meet which are one change of a header apart.
#ifndef BFO_TEST_WIRE_AHEAD
#define BFO_TEST_WIRE_AHEAD 0
#endif

namespace bfo {

struct WireVersions {
  uint16_t version = 0;  ///< of the messages that are sent
  uint16_t oldest = 0;   ///< version that is understood
};

/// Each side understands what the other one sends.
constexpr bool meet(WireVersions a, WireVersions b) {
  return a.version >= b.oldest && b.version >= a.oldest;
}

/// Host byte order: peers of another architecture are not reached.
struct WireRecord {
  uint32_t magic;
  uint16_t version;
  uint16_t oldest;
  uint16_t header_bytes;  ///< of this struct as its sender has it: the entries begin there
  uint16_t entry_bytes;
  uint16_t entries;
  uint16_t reserved;
  char build[48];  ///< of the sender, NUL terminated
};
static_assert(sizeof(WireRecord) == 64);

enum class RecordState : uint8_t {
  kRead,     ///< it is sound, and the versions meet
  kOther,    ///< it is sound, and the versions do not meet
  kAbsent,   ///< the peer has published none
  kDamaged,  ///< it is not a record of this kind
};

/// A peer's record. `entry` points into the bytes that were read.
struct PeerRecord {
  RecordState state = RecordState::kAbsent;
  WireVersions versions;
  uint16_t entries = 0;
  uint16_t entry_bytes = 0;
  const char* entry = nullptr;
  char build[sizeof(WireRecord::build)] = "";
};

/// The record that publishes `versions` with `entries` entries of `entry_bytes` bytes behind it.
WireRecord make_record(uint32_t magic, WireVersions versions, size_t entries, size_t entry_bytes);
/// Reads the `size` bytes at `data`, nullptr when there are none. `first`: the first version that was
/// published in this form; an older record has its version at the same place, and nothing else is known of
/// it.
PeerRecord read_record(const void* data, size_t size, uint32_t magic, uint16_t first, WireVersions ours);

/// One of the two processes in a sentence.
struct WireSide {
  const char* host;
  uint32_t rank;
};

/// Why `here` cannot speak with `there`, in one line of at most `size` bytes with its newline and NUL. Its
/// length. `component`: such as "PML bfo".
size_t refusal_text(char* out, size_t size, const char* component, const WireSide& here, WireVersions ours,
                    const WireSide& there, const PeerRecord& theirs);

}  // namespace bfo
