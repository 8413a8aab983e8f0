// SPDX-License-Identifier: BSD-3-Clause
//
// help.cc: renders a help text with Open MPI's own parser and writes it in one piece.
#include "pml/bfo/glue/help.h"

#include "common/compat/ompi_includes.h"

namespace bfo::glue {

void show_help(const char* topic, ...) {
  va_list arguments;
  va_start(arguments, topic);
  char* text = opal_show_help_vstring("help-mpi-pml-bfo.txt", topic, true, arguments);
  va_end(arguments);
  if (text == nullptr) {
    opal_output(0, "pml bfo: %s (help-mpi-pml-bfo.txt is not next to the component)", topic);
    return;
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, strlen(text));
  ::free(text);
}

}  // namespace bfo::glue
