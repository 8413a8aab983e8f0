// SPDX-License-Identifier: BSD-3-Clause
//
// help.cc: reads a help text and writes it in one piece.
#include "pml/bfo/glue/help.h"

#include <unistd.h>

#include <cstdarg>
#include <string>

#include "common/help_text.h"

namespace bfo::glue {

void show_help(const char* topic, ...) {
  va_list arguments;
  va_start(arguments, topic);
  const std::string text = help_text(help_path("help-mpi-pml-bfo.txt"), topic, arguments);
  va_end(arguments);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace bfo::glue
