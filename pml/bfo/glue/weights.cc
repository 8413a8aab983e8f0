// SPDX-License-Identifier: BSD-3-Clause
//
// weights.cc: see weights.h.
#include "pml/bfo/glue/weights.h"

#include <algorithm>
#include <cstring>

#include "common/shown_text.h"

namespace bfo::glue {
namespace {

// Digits alone, from 1 to `most`. 0: it is none.
uint32_t number(const std::string& text, uint32_t most) {
  uint64_t n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return 0;
    n = n * 10 + static_cast<uint64_t>(c - '0');
    if (n > most) return 0;
  }
  return static_cast<uint32_t>(n);
}

}  // namespace

bool GivenWeights::parse(const char* text, std::string* why) {
  const std::string value = text == nullptr ? "" : text;
  list_.clear();
  kind_ = value == "nominal" ? xfer::Weights::kNominal : xfer::Weights::kMeasured;
  if (value == "nominal" || value == "measured") return true;
  kind_ = xfer::Weights::kGiven;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    if (!add(value.substr(begin, end - begin), why)) return false;
    begin = end + 1;
  }
  return true;
}

bool GivenWeights::add(const std::string& item, std::string* why) {
  const size_t equals = item.find('=');
  const std::string name = item.substr(0, equals);
  const size_t colon = name.rfind(':');
  One one;
  one.device = name.substr(0, colon);
  if (one.device.empty() || equals == std::string::npos) {
    *why = "\"" + shown(item) + "\" in it is not of the form device:port=weight";
    return false;
  }
  if (colon != std::string::npos && (one.port = number(name.substr(colon + 1), 255)) == 0) {
    *why = "\"" + shown(name) + "\" in it does not end with the number of a port, from 1 to 255";
    return false;
  }
  if ((one.weight = number(item.substr(equals + 1), kMost)) == 0) {
    *why = "\"" + shown(item) + "\" in it has no weight from 1 to " + std::to_string(kMost) +
           " (btl_verbs_if_exclude leaves a port out)";
    return false;
  }
  for (const One& other : list_) {
    if (other.device != one.device || other.port != one.port) continue;
    *why = "it names " + shown(name) + " twice";
    return false;
  }
  list_.push_back(one);
  return true;
}

uint32_t GivenWeights::of(const char* device, unsigned port) const {
  uint32_t weight = 0;
  for (const One& one : list_) {
    if (one.device != device) continue;
    if (one.port == port && port != 0) return one.weight;
    if (one.port == 0) weight = one.weight;
  }
  return weight;
}

}  // namespace bfo::glue
