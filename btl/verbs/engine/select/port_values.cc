// SPDX-License-Identifier: BSD-3-Clause
//
// port_values.cc: see port_values.h.
#include "btl/verbs/engine/select/port_values.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bfo::engine {
namespace {

constexpr size_t kEntryBytes = 128;
constexpr unsigned kAnyPort = 0;

struct Entry {
  char device[kEntryBytes] = {};  // empty: all
  unsigned port = kAnyPort;
  unsigned value = 0;
  bool is_auto = false;
};

/// A whole number, all of `text`.
bool number_of(const char* text, unsigned* number) {
  if (*text < '0' || *text > '9') return false;
  char* end = nullptr;
  errno = 0;
  const unsigned long long parsed =
      strtoull(text, &end, strncmp(text, "0x", 2) == 0 || strncmp(text, "0X", 2) == 0 ? 16 : 10);
  if (errno != 0 || *end != '\0' || parsed > UINT32_MAX) return false;
  *number = static_cast<unsigned>(parsed);
  return true;
}

bool parse(char* text, Entry* entry) {
  char* value = text;
  if (char* last = strrchr(text, ':'); last != nullptr) {
    *last = '\0';
    value = last + 1;
    if (char* colon = strchr(text, ':'); colon != nullptr) {
      *colon = '\0';
      if (!number_of(colon + 1, &entry->port) || entry->port == kAnyPort) return false;
    }
    if (*text == '\0') return false;
    snprintf(entry->device, sizeof entry->device, "%s", text);
  }
  entry->is_auto = strcmp(value, "auto") == 0;
  return entry->is_auto || number_of(value, &entry->value);
}

}  // namespace

bool list_entry(const char* list, size_t index, char* entry, size_t size) {
  const char* at = list == nullptr ? "" : list;
  for (; *at != '\0'; at += *at == ',' ? 1 : 0) {
    const size_t length = strcspn(at, ",");
    if (length != 0 && index-- == 0) {
      snprintf(entry, size, "%.*s", static_cast<int>(length), at);
      return true;
    }
    at += length;
  }
  return false;
}

bool check_port_values(const char* list, const ValueRange& range, char* wrong, size_t size) {
  char text[kEntryBytes];
  for (size_t i = 0; list_entry(list, i, text, sizeof text); ++i) {
    snprintf(wrong, size, "%s", text);
    Entry entry;
    if (!parse(text, &entry)) return false;
    if (entry.is_auto ? !range.may_be_auto : entry.value < range.low || entry.value > range.high)
      return false;
  }
  return true;
}

bool find_port_value(const char* list, const char* device, unsigned port, unsigned* value) {
  int best = -1;
  bool found = false;
  char text[kEntryBytes];
  for (size_t i = 0; list_entry(list, i, text, sizeof text); ++i) {
    Entry entry;
    if (!parse(text, &entry)) continue;
    if (*entry.device != '\0' && strcmp(entry.device, device) != 0) continue;
    if (entry.port != kAnyPort && entry.port != port) continue;
    const int specific = (*entry.device != '\0' ? 1 : 0) + (entry.port != kAnyPort ? 1 : 0);
    if (specific < best) continue;
    best = specific;
    found = !entry.is_auto;
    if (found) *value = entry.value;
  }
  return found;
}

bool names_port(const char* list, const char* device, unsigned port) {
  char with_port[kEntryBytes];
  snprintf(with_port, sizeof with_port, "%s:%u", device, port);
  char text[kEntryBytes];
  for (size_t i = 0; list_entry(list, i, text, sizeof text); ++i) {
    if (strcmp(text, device) == 0 || strcmp(text, with_port) == 0) return true;
  }
  return false;
}

}  // namespace bfo::engine
