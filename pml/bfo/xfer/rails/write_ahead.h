// SPDX-License-Identifier: BSD-3-Clause
//
// write_ahead.h: how many bytes of writes one rail of a peer has under way while rails are uneven. FIN, and
// PUTs for what is written the other way, come behind what was posted before them: what is not posted yet
// delays nothing. The rail must not run empty either until this process looks again: what looks find ended
// says how much that takes. Used under the engine's lock. Needs no memory, cannot fail.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bfo::xfer {

class WriteAhead {
 public:
  /// Bytes that the fastest rail may always have under way; a slower one in proportion.
  static constexpr uint64_t kAlways = 256 * 1024;

  bool empty() const { return out_ == 0; }
  /// Does a write of `bytes` wait for those under way, of a rail that may always have `always`?
  /// Or for another one that waits: a longer one would never have its turn else.
  bool full(uint64_t bytes, uint64_t always) const {
    return out_ != 0 && (behind_ || out_ + bytes > std::max(always, 2 * std::max(found_, finds_)));
  }
  void posted(uint64_t bytes) { out_ += bytes; }
  /// It was not posted after all, or has ended inside the call.
  void dropped(uint64_t bytes) { out_ -= std::min(out_, bytes); }
  /// A write has ended, well or not, and look number `look` has found that.
  void ended(uint64_t bytes, uint32_t look) {
    dropped(bytes);
    if (look != look_) {
      found_ = std::max(finds_, found_ - found_ / kForgets);
      finds_ = 0;
      look_ = look;
    }
    finds_ += bytes;
  }
  /// A write waits: the end of one that is under way says when to go on.
  void held() { held_ = true; }
  /// Those that come later wait behind it until then.
  void waits() { held_ = behind_ = true; }
  /// May writes that wait be posted now? They say so again if they may not.
  bool take_held() {
    const bool was = held_;
    held_ = behind_ = false;
    return was;
  }

 private:
  static constexpr uint64_t kForgets = 8;  ///< what one look has found counts for some more

  uint64_t out_ = 0;
  uint64_t found_ = 0;  ///< bytes that looks found ended, as a rule
  uint64_t finds_ = 0;  ///< those that the last one found
  uint32_t look_ = 0;
  bool held_ = false;
  bool behind_ = false;  ///< a write waits that was looked at since the last end
};

}  // namespace bfo::xfer
