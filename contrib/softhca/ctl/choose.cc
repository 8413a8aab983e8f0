// SPDX-License-Identifier: BSD-3-Clause
//
// Finding the fabric: by name, or the only one of this user.
#include "contrib/softhca/ctl/choose.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "contrib/softhca/fabric/registry.h"

namespace bfo::softhca::ctl {

int complain(const std::string& text) {
  fprintf(stderr, "softhcactl: %s\n", text.c_str());
  return 1;
}

std::string other_users() {
  static constexpr std::string_view kPrefix = "softhca-";
  std::string users;
  DIR* directory = opendir("/dev/shm");
  if (directory == nullptr) return users;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kPrefix) || name == "softhca-" + std::to_string(geteuid())) continue;
    const std::string_view uid = name.substr(kPrefix.size());
    if (uid.empty() || uid.find_first_not_of("0123456789") != std::string_view::npos) continue;
    users += (users.empty() ? "" : ", ") + std::string(uid);
  }
  closedir(directory);
  if (users.empty()) return users;
  return "; there are fabrics of other users (uid " + users +
         "): run softhcactl as the user who started the job";
}

std::unique_ptr<Fabric> choose_fabric(const Options& options) {
  std::string error;
  if (registry_directory(error).empty()) {
    complain(error);
    return nullptr;
  }
  std::string name = options.fabric;
  if (name.empty()) {
    const std::vector<std::string> names = list_fabrics();
    if (names.empty()) {
      complain("no fabric of user id " + std::to_string(geteuid()) +
               " is running; start a job with mpirun-softhca or softhca-run" + other_users());
      return nullptr;
    }
    if (names.size() > 1) {
      std::string all;
      for (const std::string& each : names) all += "\n  " + each;
      complain("several fabrics are running, name one with --fabric NAME:" + all);
      return nullptr;
    }
    name = names.front();
  }
  std::unique_ptr<Fabric> fabric = Fabric::observe(name, error);
  if (!fabric) complain(error + other_users());
  return fabric;
}

}  // namespace bfo::softhca::ctl
