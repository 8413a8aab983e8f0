// SPDX-License-Identifier: BSD-3-Clause
//
// queue_test.cc: the queue of what waits to be matched, against a plain list; what an index costs and when it
// is there.
#include "pml/bfo/xfer/base/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

namespace bfo::test {
namespace {

struct Item {
  Item* next = nullptr;
  Item* prev = nullptr;
  Item* chain_next = nullptr;
  Item* chain_prev = nullptr;
  bool in = false;
  int64_t key = 0;
  unsigned stamp = 0;
};
struct ItemLink {
  static Item*& next(Item* e) { return e->next; }
  static Item*& prev(Item* e) { return e->prev; }
  static Item*& chain_next(Item* e) { return e->chain_next; }
  static Item*& chain_prev(Item* e) { return e->chain_prev; }
  static void mark(Item* e, bool in) { e->in = in; }
};
/// Counts how often a key is looked at.
struct ItemKey {
  static int64_t of(const Item* e) {
    ++looks;
    return e->key;
  }
  static bool older(const Item* a, const Item* b) { return a->stamp < b->stamp; }
  static inline uint64_t looks = 0;
};
using ItemQueue = xfer::Queue<Item, ItemLink, ItemKey>;

struct Memory {
  void* alloc(size_t n) {
    if (n > limit) return nullptr;
    ++blocks;
    ++allocations;
    return std::malloc(n);
  }
  void free(void* p) {
    if (p) --blocks;
    std::free(p);
  }
  size_t limit = static_cast<size_t>(-1);
  int blocks = 0;
  int allocations = 0;
};

/// `n` items with keys 0, `stride`, 2 * `stride`, ..
struct Filled {
  explicit Filled(int n, int64_t stride = 1) : items(static_cast<size_t>(n)) {
    for (int i = 0; i < n; ++i) {
      items[static_cast<size_t>(i)].key = i * stride;
      queue.push_back(memory, &items[static_cast<size_t>(i)]);
    }
  }
  void take(int64_t key) {
    Item* const e = queue.find(memory, key);
    ASSERT_TRUE(e && e->key == key);
    queue.remove(memory, e);
  }
  Memory memory;
  std::vector<Item> items;
  ItemQueue queue;
};

TEST(Queue, InOrder_NoIndex) {
  Filled f(1000);
  for (int i = 0; i < 1000; ++i) f.take(i);
  EXPECT_EQ(f.memory.allocations, 0);
}

TEST(Queue, ShortInAnyOrder_NoIndex) {
  Filled f(ItemQueue::kShort);
  for (int i = ItemQueue::kShort - 1; i >= 0; --i) f.take(i);
  EXPECT_EQ(f.memory.allocations, 0);
}

TEST(Queue, NotThere_NothingFound) {
  Filled f(100);
  EXPECT_EQ(f.queue.find(f.memory, 100), nullptr);
  EXPECT_EQ(f.queue.find(f.memory, 100, 101), nullptr);
  ItemQueue empty;
  EXPECT_EQ(empty.find(f.memory, 1), nullptr);
  while (f.queue.pop_front(f.memory)) {
  }
  EXPECT_EQ(f.memory.blocks, 0);
}

/// The work for one element does not depend on how many there are, and the memory is given back.
TEST(Queue, LongInReverse_WorkPerElementIsConstant) {
  for (const int64_t stride : {1ll, 3ll, 64ll, 4096ll, 1ll << 32}) {
    double per_item[2] = {};
    int which = 0;
    for (const int n : {1000, 100000}) {
      Filled f(n, stride);
      ItemKey::looks = 0;
      for (int i = n - 1; i >= 0; --i) f.take(i * stride);
      per_item[which++] = static_cast<double>(ItemKey::looks) / n;
      EXPECT_TRUE(f.queue.empty());
      EXPECT_EQ(f.memory.blocks, 0);
    }
    EXPECT_LT(per_item[1], 8) << "stride " << stride;
    EXPECT_LT(per_item[1], 1.2 * per_item[0]) << "stride " << stride;
  }
}

TEST(Queue, KeptLong_NoMoreAllocations) {
  Filled f(200);
  f.take(199);
  const int before = f.memory.allocations;
  std::vector<Item> more(20000);
  for (int i = 0; i < 20000; ++i) {
    Item& e = more[static_cast<size_t>(i)];
    e.key = 1000 + i;
    f.queue.push_back(f.memory, &e);
    if (i >= 20) f.take(1000 + i - 20);
  }
  EXPECT_LE(f.memory.allocations - before, 1);
  while (f.queue.pop_front(f.memory)) {
  }
  EXPECT_EQ(f.memory.blocks, 0);
}

/// What waits at the end of a process is never matched.
TEST(Queue, ForgottenWithElements_GivesTheIndexBack) {
  Filled f(100);
  f.take(99);
  ASSERT_TRUE(f.queue.indexed());
  f.queue.forget(f.memory);
  EXPECT_EQ(f.memory.blocks, 0);
  EXPECT_TRUE(f.queue.empty());
  ItemQueue empty;
  empty.forget(f.memory);
  EXPECT_EQ(f.memory.blocks, 0);
}

/// Random calls, few or many keys, with all the memory, with some, with none.
TEST(Queue, RandomCalls_AsAPlainList) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    Memory memory;
    if (seed % 3 == 1) memory.limit = 4000;
    if (seed % 3 == 2) memory.limit = 100;
    ItemQueue queue;
    std::vector<std::unique_ptr<Item>> items;
    std::vector<Item*> plain;
    const auto keys = static_cast<int64_t>(1 + rng() % (1u << rng() % 10));
    const auto any_key = [&] { return static_cast<int64_t>(rng()) % keys * (seed % 5 == 0 ? 64 : 1); };
    unsigned lean = 50;
    for (unsigned step = 0; step < 600; ++step) {
      if (step % 100 == 0) lean = 30 + rng() % 45;
      if (rng() % 100 < lean) {
        items.push_back(std::make_unique<Item>());
        items.back()->key = any_key();
        items.back()->stamp = step;
        queue.push_back(memory, items.back().get());
        plain.push_back(items.back().get());
        continue;
      }
      const int64_t a = any_key();
      const int64_t b = rng() % 2 ? any_key() : a;
      const auto expected =
          std::find_if(plain.begin(), plain.end(), [&](const Item* e) { return e->key == a || e->key == b; });
      Item* e = a == b ? queue.find(memory, a) : queue.find(memory, a, b);
      ASSERT_EQ(e, expected == plain.end() ? nullptr : *expected);
      if (rng() % 4 == 0 && !plain.empty()) e = plain[rng() % plain.size()];
      if (!e) continue;
      queue.remove(memory, e);
      ASSERT_FALSE(e->in);
      plain.erase(std::find(plain.begin(), plain.end(), e));
    }
    Item* at = queue.front();
    for (Item* e : plain) {
      ASSERT_EQ(at, e);
      at = ItemQueue::next(at);
    }
    ASSERT_EQ(at, nullptr);
    while (queue.pop_front(memory)) {
    }
    ASSERT_EQ(memory.blocks, 0);
  }
}

}  // namespace
}  // namespace bfo::test
