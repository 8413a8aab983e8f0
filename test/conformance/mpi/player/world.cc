// SPDX-License-Identifier: BSD-3-Clause
#include "test/conformance/mpi/player/world.h"

#include <cstring>

extern char** environ;

namespace player {
namespace {

bool starts_with(const char* text, const char* beginning) {
  return std::strncmp(text, beginning, std::strlen(beginning)) == 0;
}

// What mpirun gives its first job with -x or by --mca does not reach a job that this one spawns.
bool handed_on(const char* variable) {
  return starts_with(variable, "LD_PRELOAD=") || starts_with(variable, "OMPI_MCA_pml") ||
         starts_with(variable, "OMPI_MCA_btl") || starts_with(variable, "OMPI_MCA_mca_base_component_") ||
         starts_with(variable, "OMPI_MCA_mpi_") ||
         (starts_with(variable, "SOFTHCA_") && !starts_with(variable, "SOFTHCA_NODE="));
}

// Each child is a node of its own on the software HCA.
MPI_Comm spawn(int parents, int children, char** command) {
  std::vector<std::vector<std::string>> texts(static_cast<size_t>(children));
  std::vector<std::vector<char*>> arguments(static_cast<size_t>(children));
  std::vector<char**> all;
  std::vector<char*> programs(static_cast<size_t>(children), const_cast<char*>("/usr/bin/env"));
  const std::vector<int> ones(static_cast<size_t>(children), 1);
  const std::vector<MPI_Info> infos(static_cast<size_t>(children), MPI_INFO_NULL);
  for (int c = 0; c < children; ++c) {
    std::vector<std::string>& text = texts[static_cast<size_t>(c)];
    for (char** v = environ; *v != nullptr; ++v)
      if (handed_on(*v)) text.push_back(*v);
    text.push_back("SOFTHCA_NODE=" + std::to_string(parents + c));
    for (char** word = command; *word != nullptr; ++word) text.push_back(*word);
    text.push_back("--parents");
    text.push_back(std::to_string(parents));
    std::vector<char*>& argument = arguments[static_cast<size_t>(c)];
    for (std::string& one : text) argument.push_back(one.data());
    argument.push_back(nullptr);
    all.push_back(argument.data());
  }
  MPI_Comm inter = MPI_COMM_NULL;
  MPI_Comm_spawn_multiple(children, programs.data(), all.data(), ones.data(), infos.data(), 0, MPI_COMM_WORLD,
                          &inter, MPI_ERRCODES_IGNORE);
  return inter;
}

MPI_Comm copy_of(MPI_Comm comm) {
  MPI_Comm copy;
  MPI_Comm_dup(comm, &copy);
  return copy;
}

}  // namespace

Job join_job(int children, char** command) {
  Job job;
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_get_parent(&job.spawned);
  const bool child = job.spawned != MPI_COMM_NULL;
  if (child) {
    MPI_Comm_remote_size(job.spawned, &job.parents);
    job.children = size;
    job.me = job.parents + rank;
  } else {
    job.parents = size;
    job.children = children;
    job.me = rank;
    job.parents_world = MPI_COMM_WORLD;
    if (children > 0) job.spawned = spawn(size, children, command);
  }
  if (job.children > 0)
    MPI_Intercomm_merge(job.spawned, child, &job.everybody);
  else
    job.everybody = copy_of(MPI_COMM_WORLD);
  return job;
}

void leave_job(Job* job) {
  MPI_Comm_free(&job->everybody);
  if (job->children > 0) MPI_Comm_disconnect(&job->spawned);
}

World::World(const Job& job) : job_(job) {
  everybody_ = copy_of(job.everybody);
  if (job.children > 0) spawned_ = copy_of(job.spawned);
  if (!job.child()) {
    world_ = copy_of(job.parents_world);
    dup_ = copy_of(world_);
    MPI_Comm_split(world_, 0, -job.me, &split_);
    if (job.parents > 1) {
      MPI_Comm local;
      MPI_Comm_split(world_, half(job.me), job.me, &local);
      MPI_Intercomm_create(local, 0, world_, 1 - half(job.me), 1, &inter_);
      MPI_Intercomm_merge(inter_, half(job.me) == 0, &merged_);
      MPI_Comm_free(&local);
    }
  }
  for (MPI_Comm comm : {everybody_, spawned_, world_, dup_, split_, inter_, merged_})
    if (comm != MPI_COMM_NULL) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

World::~World() {
  for (MPI_Comm* comm : {&merged_, &inter_, &split_, &dup_, &world_, &spawned_, &everybody_})
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
}

MPI_Comm World::comm(const std::string& name) const {
  if (name == "dup") return dup_;
  if (name == "split") return split_;
  if (name == "inter") return inter_;
  if (name == "merged") return merged_;
  if (name == "spawned") return spawned_;
  if (name == "freed") return freed_;
  return world_;
}

int World::rank(const std::string& name, int process) const {
  if (name == "split") return job_.parents - 1 - process;
  if (name == "inter") return process / 2;
  if (name == "merged") return half(process) == 1 ? process / 2 : job_.parents / 2 + process / 2;
  if (name == "spawned") return process < job_.parents ? process : process - job_.parents;
  return process;
}

int World::process(const std::string& name, int rank) const {
  for (int p = 0; p < job_.processes(); ++p) {
    if (name == "inter" && half(p) == half(job_.me)) continue;
    if (name == "spawned" && (p >= job_.parents) == job_.child()) continue;
    if (name != "spawned" && p >= job_.parents) continue;
    if (this->rank(name, p) == rank) return p;
  }
  return -1;
}

void World::make_freed() {
  if (world_ == MPI_COMM_NULL) return;
  freed_ = copy_of(world_);
  MPI_Comm_set_errhandler(freed_, MPI_ERRORS_RETURN);
}

void World::free_freed() {
  if (freed_ != MPI_COMM_NULL) MPI_Comm_free(&freed_);
}

}  // namespace player
