// SPDX-License-Identifier: BSD-3-Clause
//
// pages.h: the pages that were there when memory was registered (SOFTHCA_STRICT_PAGES=1).
//
// A real HCA keeps the pages of registration time: when a program unmaps registered memory and maps other
// memory at the same address, requests go on reading and writing the old pages, and wrong bytes travel
// without an error. The software HCA copies by address, so that such a program works here and fails on
// hardware. With SOFTHCA_STRICT_PAGES=1 a request whose pages are not those of registration time fails with a
// protection error.
//
// How: registration makes all pages present, as pinning does, and writes the frame number of each into a
// memory file. Whoever executes a request compares it with /proc/PID/pagemap. Frame numbers need
// CAP_SYS_ADMIN (root). Without it only a page that is neither present nor swapped is noticed.
//
// Not seen: other memory that happens to have got the same frames; pages that come and go between the
// look and the copy; registrations of a process whose /proc/PID/fd cannot be opened. Taken for gone, although
// it is not: a page that the kernel moved. Registered memory is kept out of huge pages for that
// (MADV_NOHUGEPAGE); compaction can still move one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bfo::softhca {

/// What is kept of one registration: number of a file of the owner, plus one. 0: nothing, all is allowed.
using PageRecord = uint32_t;

/// Makes the pages of [address, address + length) of this process present and writes down which they are.
/// 0 with errno when that cannot be done. The caller owns the record: forget_pages().
PageRecord record_pages(uint64_t address, uint64_t length, bool writable);
void forget_pages(PageRecord record);

/// True when [address, address + length) has the pages of `record`, which process `pid` made for the memory
/// from `start` on. Any process of the same user; says the first difference on stderr, once.
bool same_pages(int pid, PageRecord record, uint64_t start, uint64_t address, uint64_t length);

}  // namespace bfo::softhca
