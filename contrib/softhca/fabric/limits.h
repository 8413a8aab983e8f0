// SPDX-License-Identifier: BSD-3-Clause
//
// The limits: how many objects a device can have, how much memory a process may register, and how much of
// both each process has. Counts are kept per process, so that those of a dead process end with it.
#pragma once

#include "contrib/softhca/fabric/fabric.h"

namespace bfo::softhca {

/// Limit of objects of that kind on a device, as query_device reports it.
uint32_t object_limit(Fabric& fabric, uint32_t node, uint32_t device, ObjectKind kind);

/// Objects of that kind that living processes have on the device.
uint32_t object_count(Fabric& fabric, uint32_t node, uint32_t device, ObjectKind kind);

/// Counts one more object on a device of this node. False when the device has its limit.
bool take_object(Fabric& fabric, uint32_t device, ObjectKind kind);
void give_object(Fabric& fabric, uint32_t device, ObjectKind kind);

/// Bytes a process of that node may register; kNever without a limit.
uint64_t memlock_limit(Fabric& fabric, uint32_t node);

/// Counts the pages of [addr, addr + length) as registered by this process. False when that exceeds its
/// limit. `bytes` is what unpin() takes off again.
bool pin(Fabric& fabric, uint64_t addr, uint64_t length, uint64_t& bytes);
void unpin(Fabric& fabric, uint64_t bytes);

}  // namespace bfo::softhca
