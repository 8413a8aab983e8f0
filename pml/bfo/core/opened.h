// SPDX-License-Identifier: BSD-3-Clause
//
// opened.h: a message that is matched, as it was decoded: MATCH, RNDV or RGET. Whoever has one knows that its
// header was checked and lies in memory of this process, whatever becomes of the bytes that came, and that
// its type is the tag with which it came. Its payload, that of a MATCH or the first bytes of an RNDV, is
// where it came, or was stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "pml/bfo/core/decode.h"

namespace bfo::core {

class Opened {
 public:
  /// The RNDV or RGET (`type`) at `in`, if it is one. Its header is copied to `room`, which the result refers
  /// to.
  [[gnu::always_inline]] static std::optional<Opened> open(MsgType type, Bytes in, RgetHdr& room) {
    if (type == MsgType::kRget) {
      if (!decode_rget(in, room)) return std::nullopt;
      return Opened(type, &room, {});
    }
    if (type != MsgType::kRndv || !decode(type, in, room.rndv)) return std::nullopt;
    return Opened(type, &room, in.from(sizeof room.rndv));
  }
  /// The MATCH whose header decode_match() has returned, or that this process sends to itself, and which lies
  /// at `header` as long as the result is used.
  static Opened match(const MatchHdr* header, Bytes payload) {
    return Opened(MsgType::kMatch, header, payload);
  }

  bool is_match() const { return type_ == MsgType::kMatch; }
  const MatchHdr& match() const { return *static_cast<const MatchHdr*>(header_); }
  Bytes payload() const { return {payload_, payload_size_}; }
  /// Application bytes of the message.
  uint64_t length() const { return is_match() ? payload_size_ : rndv().length; }

  // ---- RNDV and RGET
  const RndvHdr& rndv() const { return *static_cast<const RndvHdr*>(header_); }
  bool is_rget() const { return type_ == MsgType::kRget; }

  // ---- RGET
  uint64_t address() const { return rget().address; }
  unsigned n_keys() const { return rget().n_keys; }
  const RailKey& key(unsigned i) const { return rget().keys[i]; }

  /// Bytes of memory that stored_at() needs.
  size_t stored_size() const { return header_size() + payload_size_; }
  /// The same message, in memory at `to`. The header of a MATCH is at `match` there, where its owner has it.
  Opened stored_at(void* to, const MatchHdr* match) const {
    const size_t header = header_size();
    auto* const bytes = static_cast<uint8_t*>(to);
    if (header != 0) std::memcpy(bytes, header_, header);
    if (payload_size_ != 0) std::memcpy(bytes + header, payload_, payload_size_);
    return Opened(type_, is_match() ? match : to, {bytes + header, payload_size_});
  }
  /// Where a stored one lies.
  const void* header() const { return header_; }

 private:
  Opened(MsgType type, const void* header, Bytes payload)
      : header_(header),
        payload_(payload.data),
        payload_size_(static_cast<uint32_t>(payload.size)),
        type_(type) {}
  const RgetHdr& rget() const { return *static_cast<const RgetHdr*>(header_); }
  size_t header_size() const { return is_match() ? 0 : is_rget() ? rget_size(n_keys()) : sizeof(RndvHdr); }

  const void* header_;  ///< MatchHdr, RndvHdr, or the part of an RgetHdr that has keys
  const uint8_t* payload_;
  uint32_t payload_size_;
  MsgType type_;
};

}  // namespace bfo::core
