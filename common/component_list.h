// SPDX-License-Identifier: BSD-3-Clause
//
// component_list.h: what a list that chooses the components of an Open MPI framework says: "verbs,self" means
// these alone, "^openib,uct" all but these, an empty one all.
#pragma once

#include <string_view>

namespace bfo {

class ComponentList {
 public:
  constexpr explicit ComponentList(const char* text)
      : names_(text == nullptr ? "" : text), all_but_(!names_.empty() && names_.front() == '^') {
    if (all_but_) names_.remove_prefix(1);
  }

  /// It says which components may be used, and no others.
  constexpr bool is_closed() const { return !all_but_ && !names_.empty(); }
  /// It asks for the component by name.
  constexpr bool asks_for(std::string_view name) const { return !all_but_ && has(name); }
  constexpr bool leaves_out(std::string_view name) const {
    return all_but_ ? has(name) : is_closed() && !has(name);
  }
  constexpr bool leaves_out_by_name(std::string_view name) const { return all_but_ && has(name); }
  /// Of a framework that uses one component (pml): Open MPI looks at the first name alone, and an open list
  /// chooses among components of its own.
  constexpr bool selects(std::string_view name) const { return is_closed() && next(names_).first == name; }
  /// It asks for components, none of which is outside of `names`.
  template <class Names>
  constexpr bool is_within(const Names& names) const {
    if (!is_closed()) return false;
    for (std::string_view rest = names_; !rest.empty();) {
      const auto [name, more] = next(rest);
      bool known = name.empty();
      for (const std::string_view allowed : names) known = known || name == allowed;
      if (!known) return false;
      rest = more;
    }
    return true;
  }

 private:
  struct Step {
    std::string_view first;
    std::string_view second;
  };
  static constexpr Step next(std::string_view list) {
    const size_t comma = list.find(',');
    if (comma == std::string_view::npos) return {list, {}};
    return {list.substr(0, comma), list.substr(comma + 1)};
  }
  constexpr bool has(std::string_view name) const {
    for (std::string_view rest = names_; !rest.empty();) {
      const auto [first, more] = next(rest);
      if (first == name) return true;
      rest = more;
    }
    return false;
  }

  std::string_view names_;
  bool all_but_;
};

}  // namespace bfo
