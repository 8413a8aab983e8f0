// SPDX-License-Identifier: BSD-3-Clause
//
// given_text.h: what the user wrote for the parameters of a component. Open MPI takes text that is no number
// for 0 and 1.5 for 1, without a word; the values it has stored are compared with the text here.
#pragma once

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/compat/ompi_includes.h"
#include "common/shown_text.h"

#if __has_include("opal/mca/base/mca_base_vari.h")
#include "opal/mca/base/mca_base_vari.h"
#define BFO_PARAMETER_FILES 1
#else
#define BFO_PARAMETER_FILES 0
#endif

namespace bfo {

/// The text of a parameter that was set in the environment (there mpirun puts its --mca options) or in a
/// file; nullptr: it was not set, or nobody knows the text any more.
inline const char* given_text(const mca_base_var_t& variable) {
  if (variable.mbv_source == MCA_BASE_VAR_SOURCE_ENV ||
      variable.mbv_source == MCA_BASE_VAR_SOURCE_COMMAND_LINE)
    return getenv((std::string("OMPI_MCA_") + variable.mbv_full_name).c_str());
#if BFO_PARAMETER_FILES
  if (variable.mbv_source == MCA_BASE_VAR_SOURCE_FILE && variable.mbv_file_value != nullptr) {
    const char* text = static_cast<const mca_base_var_file_value_t*>(variable.mbv_file_value)->mbvfv_value;
    return text == nullptr ? "" : text;
  }
#endif
  return nullptr;
}

/// A whole number as Open MPI reads one: decimal, 0x hexadecimal or 0 octal, K, M or G behind it. False:
/// something else.
inline bool read_whole(const char* text, int64_t* number) {
  const char* const digits = *text == '-' || *text == '+' ? text + 1 : text;
  if (*digits < '0' || *digits > '9') return false;
  char* end = nullptr;
  errno = 0;
  const long long value = strtoll(text, &end, 0);
  if (errno != 0) return false;
  int shift = 0;
  switch (*end) {
    case 'k':
    case 'K':
      shift = 10;
      break;
    case 'm':
    case 'M':
      shift = 20;
      break;
    case 'g':
    case 'G':
      shift = 30;
      break;
    default:
      break;
  }
  if (end[shift != 0 ? 1 : 0] != '\0' || value > INT64_MAX >> shift || value < INT64_MIN >> shift)
    return false;
  *number = value * (int64_t{1} << shift);
  return true;
}

/// The value of a parameter of whole numbers. False: it is of another type.
inline bool stored_number(const mca_base_var_t& variable, int64_t* number) {
  const mca_base_var_storage_t& stored = *variable.mbv_storage;
  switch (variable.mbv_type) {
    case MCA_BASE_VAR_TYPE_INT:
      *number = stored.intval;
      return true;
    case MCA_BASE_VAR_TYPE_UNSIGNED_INT:
      *number = stored.uintval;
      return true;
    case MCA_BASE_VAR_TYPE_UNSIGNED_LONG:
      *number = static_cast<int64_t>(stored.ulval);
      return true;
    case MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG:
      *number = static_cast<int64_t>(stored.ullval);
      return true;
    case MCA_BASE_VAR_TYPE_SIZE_T:
      *number = static_cast<int64_t>(stored.sizetval);
      return true;
    default:
      return false;
  }
}

/// Why the value of `variable` is not what the user wrote; empty: it is.
inline std::string misread(const mca_base_var_t& variable) {
  const char* text = given_text(variable);
  if (text == nullptr || variable.mbv_storage == nullptr) return {};
  int64_t stored = 0;
  const bool numeric = stored_number(variable, &stored);
  if (*text == '\0' && (numeric || variable.mbv_type == MCA_BASE_VAR_TYPE_BOOL))
    return "is empty; leave it out to get its default";
  if (variable.mbv_enumerator != nullptr) {
    // Where the registration went on, the default is in force.
    int known = 0;
    if (variable.mbv_enumerator->value_from_string(variable.mbv_enumerator, text, &known) == OPAL_SUCCESS)
      return {};
    return "does not take the value \"" + shown(text) + "\"; leave it out to get its default";
  }
  int64_t number = 0;
  if (!numeric || (read_whole(text, &number) && number == stored)) return {};
  return "is \"" + shown(text) + "\", which is not a whole number that fits; leave it out to get its default";
}

/// What the registration of a parameter returned, and 0 where Open MPI refuses what the user wrote: the
/// default is in force then, and first_misread() tells of it when the component is opened. Open MPI's own
/// sentence, from 5.0 on, is lost where the process ends right behind it.
constexpr int registered(int rc) {
  return rc == OPAL_ERR_VALUE_OUT_OF_BOUNDS || rc == OPAL_ERR_BAD_PARAM ? 0 : rc;
}

/// The first parameter of a component that was misread: its full name, and why. Empty: there is none.
inline std::string first_misread(const char* project, const char* framework, const char* component,
                                 std::string* why) {
  const mca_base_var_group_t* group = nullptr;
  const int found = mca_base_var_group_find(project, framework, component);
  if (found < 0 || mca_base_var_group_get(found, &group) != OPAL_SUCCESS) return {};
  const int* const members = OPAL_VALUE_ARRAY_GET_BASE(&group->group_vars, int);
  const size_t count = opal_value_array_get_size(const_cast<opal_value_array_t*>(&group->group_vars));
  for (size_t i = 0; i < count; ++i) {
    const mca_base_var_t* variable = nullptr;
    if (mca_base_var_get(members[i], &variable) != OPAL_SUCCESS) continue;
    *why = misread(*variable);
    if (!why->empty()) return variable->mbv_full_name;
  }
  return {};
}

}  // namespace bfo
