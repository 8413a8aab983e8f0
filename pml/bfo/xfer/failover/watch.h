// SPDX-License-Identifier: BSD-3-Clause
//
// watch.h: does something wait for a peer that would not notice the death of its process? Then keep_alive()
// sends one message to it over each of its rails (keepalive.h). Used under the engine's lock. Needs no
// memory, cannot fail.
#pragma once

#include <cstdint>

namespace bfo::xfer {

class Watch {
 public:
  /// A probe for a message of the peer found nothing: at least one more keep_alive() has to send to it.
  void set_probed() { probed_ = true; }
  void forget_probe() { probed_ = false; }
  bool probed() const { return probed_; }

  /// A wildcard waits for it. `send`: the next keep_alive() sends to it for that.
  void set_watched(bool send) {
    watched_ = true;
    if (send) send_next_ = true;
  }
  /// A wildcard waits for it, or did when Wildcards::watch_all() last looked.
  bool watched() const { return watched_; }
  void forget_wildcards() { watched_ = false; }

  /// keep_alive() is there, and `awaited` whether a request waits. True: something waits for the peer.
  bool take_due(bool awaited) {
    const bool due = send_next_ || probed_ || awaited;
    send_next_ = probed_ = false;
    return due;
  }

 private:
  bool probed_ = false;  ///< since the last keep_alive(), or since no rail is up
  bool send_next_ = false;
  bool watched_ = false;
};

}  // namespace bfo::xfer
