// SPDX-License-Identifier: BSD-3-Clause
// What came of a message: logged, and compared with what the program says must come.
#include "test/conformance/mpi/player/play.h"

namespace player {
namespace {

std::string number(size_t n) {
  return std::to_string(n);
}
std::string number(int n) {
  return std::to_string(n);
}

}  // namespace

void Play::check(const Part& part) {
  if (part.received) check_received(part);
  if (!part.out) return;
  const std::string name = name_of(*part.message);
  log_->line(name + " sent " + number(part.sending.error));
  if (part.sending.unseen) log_->wrong(name + ": the request of the send was freed, and nothing said of it");
  if (part.sending.error != MPI_SUCCESS)
    log_->wrong(name + ": the send ended with error class " + number(part.sending.error));
  Bytes before(part.out->memory().size());
  fill(&before, content(*part.message, me()));
  if (part.out->memory() != before) log_->wrong(name + ": the memory of the sender has changed");
}

void Play::check_received(const Part& part) {
  const Message& m = *part.message;
  const bool replace = m.send == "replace";
  const bool returning = (replace || m.send == "sendrecv") && m.source == me();
  const int sender = returning ? m.target : m.source;
  const bool cancelled = m.receive == "cancel";
  const bool too_long = m.out.elements > m.in.elements;
  const std::string name = name_of(m);
  std::string line = name + " received " + number(error_of(part)) + part.seen;
  if (part.receiving.unseen) log_->line("# unseen " + name);
  line += cancelled ? check_cancelled(part) : check_status(part, world_->rank(m.comm, sender));
  // All memory of the receiver, the guard bytes and the holes included, as it was or as it was sent.
  Bytes is = part.in->memory();
  Bytes wanted(is.size());
  fill(&wanted, replace ? content(m, me()) : ~content(m, me()));
  if (too_long) {
    part.in->blank(&is);
    part.in->blank(&wanted);
  } else if (!cancelled) {
    part.in->scatter(stream_of(replace ? m.in : m.out, content(m, sender)), &wanted);
  }
  part.in->blank_padding(&is);
  part.in->blank_padding(&wanted);
  log_->line(line + " digest " + std::to_string(digest(is)));
  if (is != wanted) complain(m, part.in->difference(is, wanted));
}

std::string Play::check_cancelled(const Part& part) {
  int cancelled = 0;
  MPI_Test_cancelled(&part.receiving.status, &cancelled);
  if (part.receiving.error != MPI_SUCCESS || !cancelled) complain(*part.message, "not cancelled");
  return " cancelled " + number(cancelled);
}

// Only a receive that has failed may end unseen: then it counts as if it had been told of.
int Play::error_of(const Part& part) {
  const Message& m = *part.message;
  return part.receiving.unseen && m.out.elements > m.in.elements ? MPI_ERR_TRUNCATE : part.receiving.error;
}

// A message that is longer than its receive has no count; all else must be as sent.
std::string Play::check_status(const Part& part, int source) {
  const Message& m = *part.message;
  const Ended& end = part.receiving;
  const bool too_long = m.out.elements > m.in.elements;
  const int error = too_long ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
  const int is = error_of(part);
  if (is != error) complain(m, "error class " + number(is) + ", expected " + number(error));
  if (is != MPI_SUCCESS && is != MPI_ERR_TRUNCATE) return "";
  std::string said = " from " + number(end.status.MPI_SOURCE) + " tag " + number(end.status.MPI_TAG);
  std::string expected = " from " + number(source) + " tag " + number(m.tag);
  if (end.unseen && too_long) return expected;
  if (!too_long) {
    int bytes = 0;
    MPI_Get_count(&end.status, MPI_BYTE, &bytes);
    said += " bytes " + number(bytes) + " elements " + number(part.in->count_of(end.status));
    expected +=
        " bytes " + number(m.out.elements * part.in->element_size()) + " elements " + number(m.out.elements);
  }
  if (said != expected) complain(m, "the status has" + said + ", expected" + expected);
  return said;
}

void Play::complain(const Message& m, const std::string& what) {
  log_->wrong(name_of(m) + " (" + m.send + " of " + number(m.out.elements) + " " + m.out.base + ", " +
              m.out.layout + " to " + m.in.layout + ", " + m.receive + "): " + what);
}

std::string Play::name_of(const Message& m) const {
  return program_->name + " message " + number(m.id) + " wave " + number(wave_);
}

}  // namespace player
