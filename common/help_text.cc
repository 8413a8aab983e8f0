// SPDX-License-Identifier: BSD-3-Clause
//
// help_text.cc: see help_text.h.
#include "common/help_text.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

namespace bfo {
namespace {

// As wide as the lines that Open MPI puts around its own texts.
constexpr char kDashes[] = "--------------------------------------------------------------------------\n";

bool is_topic(std::string_view line) {
  return line.size() > 2 && line.front() == '[' && line.back() == ']';
}

/// The lines of `topic`, nothing where the file does not have it. Returns 0, or why the file cannot be read.
int find(const char* path, std::string_view topic, std::optional<std::string>& text) {
  FILE* const file = fopen(path, "re");
  if (file == nullptr) return errno;
  char* buffer = nullptr;
  size_t room = 0;
  ssize_t length = 0;
  while ((length = getline(&buffer, &room, file)) > 0) {
    std::string_view line(buffer, static_cast<size_t>(length));
    if (line.back() == '\n') line.remove_suffix(1);
    if (line.starts_with('#')) continue;
    if (is_topic(line)) {
      if (text) break;
      if (line.substr(1, line.size() - 2) == topic) text.emplace();
    } else if (text) {
      text->append(line).push_back('\n');
    }
  }
  const int error = length < 0 && feof(file) == 0 ? errno : 0;
  free(buffer);
  fclose(file);
  return error;
}

std::string formatted(const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  const int length = vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length < 0) return format;
  std::string text(static_cast<size_t>(length), '\0');
  vsnprintf(text.data(), text.size() + 1, format, arguments);
  return text;
}

}  // namespace

std::string help_path(const char* file) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&help_path), &info) == 0 || info.dli_fname == nullptr) return file;
  const std::string_view own = info.dli_fname;
  return std::string(own.substr(0, own.rfind('/') + 1)) + file;
}

std::string help_text(const std::string& path, const char* topic, va_list arguments) {
  std::optional<std::string> text;
  const int error = find(path.c_str(), topic, text);
  if (error == 0 && text) return kDashes + formatted(text->c_str(), arguments) + kDashes;
  const std::string why = error == 0 ? "has no such text" : std::string("cannot be read: ") + strerror(error);
  return std::string("bfo: the help text \"") + topic + "\" is missing: the file " + path + " " + why + "\n";
}

}  // namespace bfo
