// SPDX-License-Identifier: BSD-3-Clause
//
// The registry: the 0700 directory of one user under /dev/shm in which every fabric is a 0600 file.
#pragma once

#include <string>
#include <vector>

namespace bfo::softhca {

/// Path of the registry of the calling user; created when missing. Empty and a sentence in `error` when it
/// cannot be trusted (wrong owner or mode).
std::string registry_directory(std::string& error);

/// True when `name` can be the name of a fabric: letters, digits, '-', '_', '.', at most 100, no leading dot.
bool valid_fabric_name(const std::string& name);

/// A name nobody can guess (128 random bits).
std::string fresh_fabric_name();

/// Names of all fabrics in the registry.
std::vector<std::string> list_fabrics();

/// Opens the file of a fabric, creating an empty one when `create`, and takes its exclusive lock: creation,
/// joining and removal happen under it. -1 and a sentence on failure; errno is ENOENT when it is not there.
int open_locked(const std::string& path, bool create, std::string& error);
void unlock_file(int fd);

}  // namespace bfo::softhca
