// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/play.h"

#include "test/conformance/mpi/player/rng.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace player {
namespace {

bool is(const std::string& text, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return text == name; });
}
bool persistent(const std::string& mode) {
  return mode.ends_with("_init");
}
bool posted_first(const Message& m) {
  return is(m.receive, {"irecv", "recv_init", "cancel"});
}
bool both_ways(const Message& m) {
  return is(m.send, {"sendrecv", "replace"});
}
bool blocking_send(const Message& m) {
  return is(m.send, {"send", "ssend", "rsend", "bsend"});
}
// One blocks in a send while the other has not begun to receive: such messages go one after the other, in the
// order of the list on every process.
bool in_turn(const Message& m) {
  return both_ways(m) || (blocking_send(m) && !posted_first(m));
}

// The calls that start a send; null for those that block.
using Start = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
Start start_of(const std::string& mode) {
  if (mode == "isend") return MPI_Isend;
  if (mode == "issend") return MPI_Issend;
  if (mode == "irsend") return MPI_Irsend;
  if (mode == "ibsend") return MPI_Ibsend;
  if (mode == "send_init") return MPI_Send_init;
  if (mode == "ssend_init") return MPI_Ssend_init;
  if (mode == "rsend_init") return MPI_Rsend_init;
  if (mode == "bsend_init") return MPI_Bsend_init;
  return nullptr;
}

using Send = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
Send send_of(const std::string& mode) {
  if (mode == "ssend") return MPI_Ssend;
  if (mode == "rsend") return MPI_Rsend;
  if (mode == "bsend") return MPI_Bsend;
  return MPI_Send;
}

}  // namespace

void Play::run(const Program& program) {
  program_ = &program;
  for (const Batch& batch : program.batches) {
    batch_ = &batch;
    log_->line("begin " + program.name + " " + std::to_string(batch.id));
    log_->flush();
    run(batch);
  }
  log_->line("end " + program.name);
  log_failovers();
  log_->flush();
}

void Play::run(const Batch& batch) {
  const bool freed = std::any_of(batch.messages.begin(), batch.messages.end(),
                                 [](const Message& m) { return m.comm == "freed"; });
  if (freed) world_->make_freed();
  std::vector<Part> parts;
  for (const Message& message : batch.messages) parts.push_back(part_of(message));
  for (wave_ = 0; wave_ < batch.waves; ++wave_) {
    wave(batch, &parts);
    for (const Part& part : parts) check(part);
  }
  for (Part& part : parts)
    for (MPI_Request* request : {&part.send, &part.receive})
      if (*request != MPI_REQUEST_NULL) MPI_Request_free(request);
  if (batch.end_barrier) MPI_Barrier(world_->everybody());
}

Part Play::part_of(const Message& message) const {
  Part part;
  part.message = &message;
  const bool other_way = both_ways(message) && message.source != message.target;
  if (message.send == "replace") {
    if (receives(message) || sends(message)) part.in = std::make_unique<Side>(message.in);
    return part;
  }
  if (sends(message) || (other_way && receives(message))) part.out = std::make_unique<Side>(message.out);
  if (receives(message) || (other_way && sends(message))) part.in = std::make_unique<Side>(message.in);
  return part;
}

void Play::refill(Part* part) const {
  const Message& m = *part->message;
  part->sent = part->received = false;
  part->sending = part->receiving = {};
  part->seen.clear();
  if (part->out) part->out->refill(content(m, me()));
  if (part->in) part->in->refill(m.send == "replace" ? content(m, me()) : ~content(m, me()));
}

void Play::wave(const Batch& batch, std::vector<Part>* parts) {
  for (Part& part : *parts) refill(&part);
  for (Part& part : *parts)
    if (receives(*part.message) && posted_first(*part.message)) post_receive(&part);
  if (batch.ready_barrier) MPI_Barrier(world_->everybody());
  for (Part& part : *parts)
    if (sends(*part.message) && !in_turn(*part.message)) post_send(&part);
  for (Part& part : *parts)
    if (receives(*part.message) && part.message->comm == "freed") match_freed(&part);
  world_->free_freed();
  for (Part& part : *parts)
    if (receives(*part.message) && !posted_first(*part.message) && !in_turn(*part.message))
      receive_now(&part);
  for (Part& part : *parts) {
    const Message& m = *part.message;
    if (!in_turn(m)) continue;
    if (both_ways(m)) {
      if (sends(m) || receives(m)) exchange(&part);
    } else {
      if (sends(m)) post_send(&part);
      if (receives(m)) receive_now(&part);
    }
  }
  finish_all(batch, parts);
}

void Play::post_receive(Part* part) {
  const Message& m = *part->message;
  Side& in = *part->in;
  if (m.receive != "recv_init") {
    part->receiving.error =
        error_class(MPI_Irecv(in.address(), in.count(), in.type(), from(m), tag(m), comm(m), &part->receive));
  } else {
    // Open MPI frees a request that has failed, a persistent one too.
    if (part->receive == MPI_REQUEST_NULL)
      MPI_Recv_init(in.address(), in.count(), in.type(), from(m), tag(m), comm(m), &part->receive);
    part->receiving.error = error_class(MPI_Start(&part->receive));
  }
  const bool will_fail = m.receive == "recv_init" && m.out.elements > m.in.elements;
  if (m.free_types && !will_fail) in.free_type();
  if (m.receive == "cancel") MPI_Cancel(&part->receive);
}

void Play::post_send(Part* part) {
  const Message& m = *part->message;
  Side& out = *part->out;
  const Start start = start_of(m.send);
  int code;
  if (start == nullptr) {
    code = send_of(m.send)(out.address(), out.count(), out.type(), to(m), m.tag, comm(m));
  } else {
    code = MPI_SUCCESS;
    if (!persistent(m.send) || wave_ == 0)
      code = start(out.address(), out.count(), out.type(), to(m), m.tag, comm(m), &part->send);
    if (persistent(m.send) && code == MPI_SUCCESS) code = MPI_Start(&part->send);
    if (m.free_types) out.free_type();
  }
  part->sent = true;
  part->sending.error = error_class(code);
}

// MPI_Mprobe's message is received when its communicator is gone.
void Play::match_freed(Part* part) {
  const Message& m = *part->message;
  MPI_Status status = {};
  if (is(m.receive, {"mprobe", "imrecv"})) MPI_Mprobe(from(m), tag(m), comm(m), &part->matched, &status);
  int flag = 0;
  while (m.receive == "improbe" && !flag)
    MPI_Improbe(from(m), tag(m), comm(m), &flag, &part->matched, &status);
}

void Play::receive_now(Part* part) {
  const Message& m = *part->message;
  Side& in = *part->in;
  MPI_Status status = {};
  bool looked = part->matched == MPI_MESSAGE_NULL;
  int flag = 0;
  if (m.receive == "probe")
    MPI_Probe(from(m), tag(m), comm(m), &status);
  else if (m.receive == "iprobe")
    while (!flag) MPI_Iprobe(from(m), tag(m), comm(m), &flag, &status);
  else if (looked && is(m.receive, {"mprobe", "imrecv"}))
    MPI_Mprobe(from(m), tag(m), comm(m), &part->matched, &status);
  else if (looked && m.receive == "improbe")
    while (!flag) MPI_Improbe(from(m), tag(m), comm(m), &flag, &part->matched, &status);
  else
    looked = false;
  if (looked) {
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    part->seen = " seen " + std::to_string(status.MPI_SOURCE) + " " + std::to_string(status.MPI_TAG) + " " +
                 std::to_string(bytes);
    const size_t wanted = m.out.elements * in.element_size();
    if (status.MPI_SOURCE != expected_source(m) || status.MPI_TAG != m.tag ||
        static_cast<size_t>(bytes) != wanted)
      complain(m, "the probe has" + part->seen);
  }
  int code;
  if (m.receive == "imrecv")
    code = MPI_Imrecv(in.address(), in.count(), in.type(), &part->matched, &part->receive);
  else if (part->matched != MPI_MESSAGE_NULL)
    code = MPI_Mrecv(in.address(), in.count(), in.type(), &part->matched, &part->receiving.status);
  else
    code = MPI_Recv(in.address(), in.count(), in.type(), from(m), tag(m), comm(m), &part->receiving.status);
  part->receiving.error = error_class(code);
  part->received = true;
}

// Sender and receiver both send and receive.
void Play::exchange(Part* part) {
  const Message& m = *part->message;
  const int peer = world_->rank(m.comm, m.source == me() ? m.target : m.source);
  Side& in = *part->in;
  MPI_Status* status = &part->receiving.status;
  const int code = m.send == "replace" ? MPI_Sendrecv_replace(in.address(), in.count(), in.type(), peer,
                                                              m.tag, peer, m.tag, comm(m), status)
                                       : MPI_Sendrecv(part->out->address(), part->out->count(),
                                                      part->out->type(), peer, m.tag, in.address(),
                                                      in.count(), in.type(), peer, m.tag, comm(m), status);
  part->receiving.error = error_class(code);
  part->received = true;
}

void Play::finish_all(const Batch& batch, std::vector<Part>* parts) {
  std::vector<MPI_Request> requests;
  std::vector<std::pair<MPI_Request*, Ended*>> owners;
  for (Part& part : *parts) {
    if (part.receive != MPI_REQUEST_NULL) owners.push_back({&part.receive, &part.receiving});
    if (part.receive != MPI_REQUEST_NULL) part.received = true;
    if (part.send != MPI_REQUEST_NULL) owners.push_back({&part.send, &part.sending});
  }
  for (const auto& owner : owners) requests.push_back(*owner.first);
  const std::vector<Ended> ends = finish(&requests, batch.finish.at(static_cast<size_t>(me())));
  for (size_t i = 0; i < owners.size(); ++i) {
    *owners[i].first = requests[i];
    *owners[i].second = ends[i];
  }
}

// How many failovers there were so far, so that it can be told which programs had one.
void Play::log_failovers() {
  const char* path = std::getenv("OMPI_MCA_pml_bfo_event_file");
  if (path == nullptr || me() != 0) return;
  std::ifstream events(path);
  int count = 0;
  for (std::string line; std::getline(events, line);) count += line.find("\"failover\"") != std::string::npos;
  log_->line("# failovers " + program_->name + " " + std::to_string(count));
}

int Play::expected_source(const Message& message) const {
  return world_->rank(message.comm, message.source);
}

int Play::from(const Message& m) const {
  return m.wild == "source" || m.wild == "both" ? MPI_ANY_SOURCE : world_->rank(m.comm, m.source);
}

uint64_t Play::content(const Message& m, int sender) const {
  return mix(program_->seed ^
             mix(static_cast<uint64_t>(batch_->id) << 32 ^ static_cast<uint64_t>(m.id) << 16 ^
                 static_cast<uint64_t>(wave_) << 8 ^ static_cast<uint64_t>(sender)));
}

}  // namespace player
