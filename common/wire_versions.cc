// SPDX-License-Identifier: BSD-3-Clause
//
// wire_versions.cc: see wire_versions.h.
#include "common/wire_versions.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "common/version.h"

namespace bfo {
namespace {

// A peer's text is printed: it ends, and has no byte that moves the cursor.
void copy_printable(char* out, const char* text, size_t size) {
  size_t i = 0;
  for (; i + 1 < size && text[i] != '\0'; ++i) out[i] = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
  out[i] = '\0';
}

// "wire version 3, understands 2 to 3, build 0.1.0"
void describe(char* out, size_t size, WireVersions v, const char* build) {
  if (v.version == v.oldest)
    snprintf(out, size, "wire version %u and no other, build %s", v.version, build);
  else
    snprintf(out, size, "wire versions %u to %u, build %s", v.oldest, v.version, build);
}

}  // namespace

WireRecord make_record(uint32_t magic, WireVersions versions, size_t entries, size_t entry_bytes) {
  WireRecord record{};
  record.magic = magic;
  record.version = versions.version;
  record.oldest = versions.oldest;
  record.header_bytes = sizeof record;
  record.entry_bytes = static_cast<uint16_t>(entry_bytes);
  record.entries = static_cast<uint16_t>(entries);
  snprintf(record.build, sizeof record.build, "%s", kBuild);
  return record;
}

PeerRecord read_record(const void* data, size_t size, uint32_t magic, uint16_t first, WireVersions ours) {
  PeerRecord found;
  if (data == nullptr) return found;
  WireRecord record{};
  memcpy(&record, data, std::min(size, sizeof record));
  found.state = RecordState::kDamaged;
  if (size < offsetof(WireRecord, oldest) || record.magic != magic || record.version == 0) return found;
  if (record.version < first) {
    found.state = RecordState::kOther;
    found.versions = {record.version, record.version};
    return found;
  }
  if (size < sizeof record || record.header_bytes < sizeof record || record.oldest > record.version ||
      size < record.header_bytes + size_t{record.entries} * record.entry_bytes)
    return found;
  found.versions = {record.version, record.oldest};
  copy_printable(found.build, record.build, sizeof found.build);
  found.state = meet(found.versions, ours) ? RecordState::kRead : RecordState::kOther;
  found.entries = record.entries;
  found.entry_bytes = record.entry_bytes;
  found.entry = static_cast<const char*>(data) + record.header_bytes;
  return found;
}

size_t refusal_text(char* out, size_t size, const char* component, const WireSide& here, WireVersions ours,
                    const WireSide& there, const PeerRecord& theirs) {
  char mine[128];
  char other[128];
  describe(mine, sizeof mine, ours, kBuild);
  if (theirs.state == RecordState::kAbsent)
    snprintf(other, sizeof other, "no wire version, an older build");
  else if (theirs.state == RecordState::kDamaged)
    snprintf(other, sizeof other, "a record that cannot be read");
  else
    describe(other, sizeof other, theirs.versions, theirs.build[0] != '\0' ? theirs.build : "older");
  const int n = snprintf(out, size,
                         "bfo: the %s of rank %u on host %s (%s) and that of rank %u on host %s (%s) do not "
                         "understand each other: install one build of openmpi-bfo on both hosts\n",
                         component, here.rank, here.host, mine, there.rank, there.host, other);
  return std::min(size - 1, static_cast<size_t>(std::max(n, 0)));
}

}  // namespace bfo
