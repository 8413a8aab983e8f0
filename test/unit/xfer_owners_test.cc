// SPDX-License-Identifier: BSD-3-Clause
//
// xfer_owners_test.cc: the lowest owner of pml/bfo/xfer, Base, made alone. Each owner has a file like this
// one (xfer_owner_*_test.cc) that includes its header and no other owner's: what it calls is there, or it
// does not compile.
#include "pml/bfo/xfer/base/base.h"

#include <gtest/gtest.h>

#include "test/unit/alone_port.h"

template struct bfo::xfer::Base<bfo::test::AlonePort>;

namespace bfo::test {
namespace {

TEST(OwnersAlone, Base_KeepsWhoWaitsAndWhatIsOver) {
  Ground g;
  EXPECT_TRUE(g.base.agenda.empty());
  g.base.activate(g.peer);
  EXPECT_TRUE(g.peer.active);
  EXPECT_FALSE(g.base.agenda.empty());
  g.base.agenda.deactivate(g.peer);
  AlonePort::SendRequest r;
  g.base.finish_send(r, Outcome::kPeerLost);
  EXPECT_EQ(r.xfer.outcome, Outcome::kPeerLost);
  auto completed = g.base.exit_work.take_completed();
  EXPECT_EQ(completed.sends.pop_front(), &r);
  EXPECT_EQ(g.port.completed, 0) << "whoever leaves the engine says that";
}

}  // namespace
}  // namespace bfo::test
