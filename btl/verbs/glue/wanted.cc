// SPDX-License-Identifier: BSD-3-Clause
//
// wanted.cc: who asked for this component: the lists "btl" and "pml", wherever they were given.
#include <array>
#include <string>

#include "btl/verbs/glue/component.h"
#include "common/component_list.h"

namespace bfo::verbs {
namespace {

/// The list that chooses the components of a framework: of the command line, the environment or a parameter
/// file, as Open MPI weighs them. It starts the BTLs before it has registered the variable "pml". That one is
/// registered here for a moment, as the framework does it later.
std::string selection_of(const char* project, const char* framework, const char* title) {
  static char* storage = nullptr;
  int index = mca_base_var_find(project, framework, nullptr, nullptr);
  const bool ours = index < 0;
  if (ours) {
    mca_base_var_group_register(project, framework, nullptr, title);
    const std::string help = "Default selection set of components for the " + std::string(framework) +
                             " framework (<none> means use all components that can be found)";
    index = mca_base_var_register(project, framework, nullptr, nullptr, help.c_str(),
                                  MCA_BASE_VAR_TYPE_STRING, nullptr, 0, MCA_BASE_VAR_FLAG_SETTABLE,
                                  OPAL_INFO_LVL_2, MCA_BASE_VAR_SCOPE_ALL_EQ, &storage);
  }
  char** value = nullptr;
  std::string list;
  if (index >= 0 && mca_base_var_get_value(index, &value, nullptr, nullptr) == OPAL_SUCCESS &&
      value != nullptr && *value != nullptr) {
    list = *value;
  }
  if (ours && index >= 0) mca_base_var_deregister(index);
  return list;
}

}  // namespace

Wish read_wish() {
  const std::string btl = selection_of("opal", "btl", "Byte Transport Layer");
  const std::string pml = selection_of("ompi", "pml", "OMPI PML");
  // Those that reach other hosts over these ports or not at all.
  constexpr std::array<std::string_view, 4> kRails = {"verbs", "self", "vader", "sm"};
  const ComponentList btls(btl.c_str());
  Wish wish{};
  wish.named = btls.asks_for("verbs");
  wish.failover = ComponentList(pml.c_str()).selects("bfo");
  wish.alone = wish.named && btls.is_within(kRails);
  return wish;
}

}  // namespace bfo::verbs
