// SPDX-License-Identifier: BSD-3-Clause
//
// Registered memory that is unmapped and mapped again at the same address: with SOFTHCA_STRICT_PAGES=1
// requests that use it fail, without it they go through. The script strict_pages runs this program both ways.
#include <sys/mman.h>

#include <cstdlib>

#include "test/conformance/rig.h"

namespace bfo::conformance {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 16;
constexpr size_t kBytes = kPages * kPage;

bool strict() {
  const char* const value = std::getenv("SOFTHCA_STRICT_PAGES");
  return value != nullptr && *value == '1';
}

/// Memory that is registered as a whole and belongs to nobody else.
class Mapping {
 public:
  explicit Mapping(ibv_pd* pd) {
    map(0, kPages);
    mr = ibv_reg_mr(pd, at_, kBytes, kAllAccess);
  }
  ~Mapping() {
    if (mr != nullptr) ibv_dereg_mr(mr);
    munmap(at_, kBytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  /// What an allocator does: gives pages back and gets others at the same place. The old ones stay in use, so
  /// that the new ones are others.
  void replace(size_t first, size_t count) {
    void* const elsewhere =
        mmap(nullptr, count * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mremap(page(first), count * kPage, count * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere);
    map(first, count);
    memset(page(first), 7, count * kPage);
    munmap(elsewhere, count * kPage);
  }
  ibv_sge sge(size_t first, size_t count) const {
    return {reinterpret_cast<uint64_t>(page(first)), static_cast<uint32_t>(count * kPage), mr->lkey};
  }
  char* page(size_t number) const { return static_cast<char*>(at_) + number * kPage; }

  ibv_mr* mr = nullptr;

 private:
  void map(size_t first, size_t count) {
    const int fixed = at_ != nullptr ? MAP_FIXED : 0;
    void* const at = mmap(at_ != nullptr ? page(first) : nullptr, count * kPage, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    if (at_ == nullptr) at_ = at;
  }
  void* at_ = nullptr;
};

/// One request of side a with memory of its own, and with remote memory if `remote` says so.
ibv_wc_status run(Pair& p, const ibv_sge& local, ibv_wr_opcode opcode, const ibv_sge& remote = {},
                  uint32_t rkey = 0) {
  ibv_sge list = local;
  ibv_send_wr wr{};
  wr.wr_id = 2;
  wr.sg_list = &list;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.wr.rdma.remote_addr = remote.addr;
  wr.wr.rdma.rkey = rkey;
  if (opcode == IBV_WR_SEND) EXPECT_EQ(p.b.post_recv(1, 0, kBytes), 0);
  EXPECT_EQ(p.a.post_send(wr), 0);
  const auto wc = p.a.wait_send();
  return wc ? wc->status : IBV_WC_GENERAL_ERR;
}

class StrictPages : public Conformance {};

TEST_F(StrictPages, PagesThatStay_AreUsedAgainAndAgain) {
  Pair p;
  Mapping mine(p.a.pd);
  Mapping theirs(p.b.pd);
  ASSERT_NE(mine.mr, nullptr);
  for (int i = 0; i < 20; ++i) {
    memset(mine.page(0), i, kBytes);
    ASSERT_EQ(run(p, mine.sge(0, kPages), IBV_WR_SEND), IBV_WC_SUCCESS);
    ASSERT_EQ(run(p, mine.sge(0, 8), IBV_WR_RDMA_WRITE, theirs.sge(2, 8), theirs.mr->rkey), IBV_WC_SUCCESS);
    ASSERT_EQ(run(p, mine.sge(3, 4), IBV_WR_RDMA_READ, theirs.sge(1, 4), theirs.mr->rkey), IBV_WC_SUCCESS);
  }
}

TEST_F(StrictPages, LocalPageReplaced_RequestFails) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pair p;
    Mapping mine(p.a.pd);
    Mapping theirs(p.b.pd);
    mine.replace(5, 1);
    EXPECT_EQ(run(p, mine.sge(0, kPages), opcode, theirs.sge(0, kPages), theirs.mr->rkey),
              strict() ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS)
        << opcode;
  }
}

TEST_F(StrictPages, RemotePageReplaced_RequestFails) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pair p;
    Mapping mine(p.a.pd);
    Mapping theirs(p.b.pd);
    theirs.replace(kPages - 1, 1);
    EXPECT_EQ(run(p, mine.sge(0, kPages), opcode, theirs.sge(0, kPages), theirs.mr->rkey),
              strict() ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS)
        << opcode;
  }
}

TEST_F(StrictPages, OtherPagesReplaced_DoNotCount) {
  Pair p;
  Mapping mine(p.a.pd);
  mine.replace(0, 4);
  EXPECT_EQ(run(p, mine.sge(4, kPages - 4), IBV_WR_SEND), IBV_WC_SUCCESS);
}

TEST_F(StrictPages, RegisteredAnew_Works) {
  Pair p;
  Mapping mine(p.a.pd);
  mine.replace(0, kPages);
  ASSERT_EQ(ibv_dereg_mr(mine.mr), 0);
  mine.mr = ibv_reg_mr(p.a.pd, mine.page(0), kBytes, kAllAccess);
  ASSERT_NE(mine.mr, nullptr);
  EXPECT_EQ(run(p, mine.sge(0, kPages), IBV_WR_SEND), IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_rereg_mr(mine.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, mine.page(1), kBytes - kPage, 0),
            0);
  mine.replace(0, 1);
  EXPECT_EQ(run(p, mine.sge(1, kPages - 1), IBV_WR_SEND), IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace bfo::conformance
