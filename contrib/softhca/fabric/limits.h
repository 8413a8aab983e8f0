// SPDX-License-Identifier: BSD-3-Clause
//
// The limits: how many objects a device has room for and how much memory a process may register, and who has
// how much of it. Counts are kept per process, so that what a dead process had counts no more.
#pragma once

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// Objects of that kind a device has room for, as query_device tells.
uint32_t object_limit(Fabric& fabric, uint32_t node, uint32_t device, ObjectKind kind);

/// Objects of that kind that living processes have on the device.
uint32_t object_count(Fabric& fabric, uint32_t node, uint32_t device, ObjectKind kind);

/// Takes room for one more on a device of the own node. False when the device is full.
bool take_object(Fabric& fabric, uint32_t device, ObjectKind kind);
void give_object(Fabric& fabric, uint32_t device, ObjectKind kind);

/// Bytes a process of that node may register; kNever without a limit.
uint64_t memlock_limit(Fabric& fabric, uint32_t node);

/// Books the pages of [addr, addr + length) as registered by this process. False when that is more than it
/// may register. `bytes` is what to give back.
bool pin(Fabric& fabric, uint64_t addr, uint64_t length, uint64_t& bytes);
void unpin(Fabric& fabric, uint64_t bytes);

}  // namespace bfo::softhca
