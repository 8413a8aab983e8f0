// SPDX-License-Identifier: BSD-3-Clause
//
// ompi_release.h: what differs between the releases of Open MPI behind one name each, so that no other file
// asks which release it is compiled for. Inline functions and constants only. Included by ompi_includes.h.
#pragma once

#include "common/compat/ompi_includes.h"
#include "common/decimal.h"

// What MCA_PML_DEFAULT_VERSION and MCA_BTL_DEFAULT_VERSION begin with; the rest of them gives a component the
// version of Open MPI. Lists of initializers, so they can only be macros.
#if OMPI_MAJOR_VERSION >= 5
#define BFO_PML_BASE_VERSION MCA_PML_BASE_VERSION_2_1_0
#define BFO_BTL_BASE_VERSION MCA_BTL_BASE_VERSION_3_3_0
#else
#define BFO_PML_BASE_VERSION MCA_PML_BASE_VERSION_2_0_0
#define BFO_BTL_BASE_VERSION MCA_BTL_BASE_VERSION_3_1_0
#endif

namespace bfo {

/// The number of a communicator, which is the same in all of its processes.
inline uint32_t context_of(const ompi_communicator_t& comm) {
#if OMPI_MAJOR_VERSION >= 5
  return comm.c_index;
#else
  return comm.c_contextid;
#endif
}

/// For OPAL_MODEX_SEND: processes of all hosts may read it.
#if OMPI_MAJOR_VERSION >= 5
inline constexpr auto kModexGlobal = PMIX_GLOBAL;
#else
inline constexpr auto kModexGlobal = OPAL_PMIX_GLOBAL;
#endif

/// The BTL for processes of one host.
#if OMPI_MAJOR_VERSION >= 5
inline constexpr const char* kSharedMemoryBtl = "sm";
#else
inline constexpr const char* kSharedMemoryBtl = "vader";
#endif

/// The host of a process, which the runtime may have to be asked for. The text is valid as long as this
/// object is.
class HostName {
 public:
  HostName() = default;
  explicit HostName(const opal_proc_t& proc) : text_(ask(proc)) {}
  const char* text() const {
    const char* const text = get();
    return text != nullptr ? text : "unknown";
  }

 private:
#if OMPI_MAJOR_VERSION >= 5
  // The caller frees it.
  struct Free {
    void operator()(char* text) const { free(text); }
  };
  using Text = std::unique_ptr<char, Free>;
  static Text ask(const opal_proc_t& proc) {
    return Text(opal_get_proc_hostname(&proc));
  }
  const char* get() const {
    return text_.get();
  }
#else
  // It belongs to the process.
  using Text = const char*;
  static Text ask(const opal_proc_t& proc) {
    return opal_get_proc_hostname(&proc);
  }
  const char* get() const {
    return text_;
  }
#endif
  Text text_{};
};

/// The same without asking anybody, for when memory is short. nullptr: nobody has asked before.
inline const char* known_host([[maybe_unused]] const opal_proc_t& proc) {
#if OMPI_MAJOR_VERSION >= 5
  return nullptr;
#else
  return proc.proc_hostname;
#endif
}

/// The job that a process belongs to, in the same words in those that it has spawned.
inline std::string job_name() {
#if OMPI_MAJOR_VERSION >= 5
  // "prterun-HOST-PID@1" of the first, "@2" of a spawned one.
  const std::string space = opal_process_info.myprocid.nspace;
  return space.substr(0, space.rfind('@'));
#else
  return decimal(OPAL_PROC_MY_NAME.jobid >> 16);
#endif
}

/// A callback for messages, of the type that BTLs take: calls kDeliver with the pointer that was registered,
/// the tag, and the segments of the message.
#if OMPI_MAJOR_VERSION >= 5
template <auto kDeliver>
void receive_callback(mca_btl_base_module_t*, const mca_btl_base_receive_descriptor_t* message) {
  kDeliver(message->cbdata, message->tag, message->des_segments, message->des_segment_count);
}
#else
template <auto kDeliver>
void receive_callback(mca_btl_base_module_t*, mca_btl_base_tag_t tag, mca_btl_base_descriptor_t* message,
                      void* cbdata) {
  kDeliver(cbdata, tag, message->des_segments, message->des_segment_count);
}
#endif

/// Is there a window of osc rdma that uses BTLs without asking the PML? `ours`: what the PML has at the tags
/// that nobody else has taken; such a window takes one with its first message.
inline bool windows_use_btls([[maybe_unused]] mca_btl_base_module_recv_cb_fn_t ours) {
#if OMPI_MAJOR_VERSION >= 5
  const auto taken = mca_btl_base_active_message_trigger[MCA_BTL_TAG_BTL_BASE].cbfunc;
  return taken != nullptr && taken != ours;
#else
  return false;
#endif
}

/// May a process wait in the runtime without progress (MPI_Comm_disconnect, connect, accept, spawn)? Where
/// the runtime's functions can be replaced there is progress: pml/bfo/glue/waits.h.
#if OMPI_MAJOR_VERSION >= 5
inline constexpr bool kWaitsWithoutProgress = true;
#else
inline constexpr bool kWaitsWithoutProgress = false;
#endif

/// Does osc rdma serve windows by messages over a BTL, and is this the tag of one?
#if OMPI_MAJOR_VERSION >= 5
inline constexpr bool kWindowsUseBtls = true;
constexpr bool is_of_window(uint8_t tag) {
  return tag >= MCA_BTL_TAG_BTL_BASE && tag < MCA_BTL_TAG_BTL;
}
#else
inline constexpr bool kWindowsUseBtls = false;
constexpr bool is_of_window(uint8_t) {
  return false;
}
#endif

/// Does the runtime tell of processes that died, so that others can go on ("mpirun --with-ft ulfm")?
#if defined(ompi_request_is_failed)
inline constexpr bool kTellsOfTheDead = true;
#else
inline constexpr bool kTellsOfTheDead = false;
#endif

/// Was this job started so that it goes on when processes die?
inline bool survives_deaths() {
#if defined(ompi_request_is_failed)
  return ompi_ftmpi_enabled;
#else
  return false;
#endif
}

/// Does the runtime say that `proc` is gone? Only where survives_deaths().
inline bool is_dead([[maybe_unused]] ompi_proc_t& proc) {
#if defined(ompi_request_is_failed)
  return !ompi_proc_is_active(&proc);
#else
  return false;
#endif
}

/// Tells the runtime, and with it all other processes, that `proc` is lost. Sends messages.
inline void declare_dead([[maybe_unused]] ompi_proc_t& proc) {
#if defined(ompi_request_is_failed)
  ompi_errhandler_proc_failed(&proc);
#endif
}

/// What a request ends with whose other end died.
constexpr int proc_failed_error() {
#if defined(ompi_request_is_failed)
  return MPI_ERR_PROC_FAILED;
#else
  return MPI_ERR_OTHER;
#endif
}

/// What a request ends with whose communicator was revoked.
constexpr int revoked_error() {
#if defined(ompi_request_is_failed)
  return MPI_ERR_REVOKED;
#else
  return MPI_ERR_OTHER;
#endif
}

/// Is `tag` one of libmpi's collective operations?
inline bool is_collective([[maybe_unused]] int tag) {
#if defined(ompi_request_is_failed)
  return ompi_request_tag_is_collective(tag);
#else
  return false;
#endif
}

inline bool is_revoked([[maybe_unused]] ompi_communicator_t& comm) {
#if defined(ompi_request_is_failed)
  return ompi_comm_is_revoked(&comm);
#else
  return false;
#endif
}

/// From now on is_revoked(), or only for collective operations. libmpi asks the PML to mark it.
inline void mark_revoked([[maybe_unused]] ompi_communicator_t& comm, [[maybe_unused]] bool collective) {
#if defined(ompi_request_is_failed)
  comm.coll_revoked = true;
  if (!collective) comm.comm_revoked = true;
#endif
}

/// Does a receive with this error still wait, for others than the process that died?
constexpr bool is_pending([[maybe_unused]] int error) {
#if defined(ompi_request_is_failed)
  return error == MPI_ERR_PROC_FAILED_PENDING;
#else
  return false;
#endif
}

/// MPI_SUCCESS, or the class that a call ends with which waits for a message from `peer` in `comm`.
inline int wait_error([[maybe_unused]] ompi_communicator_t& comm, [[maybe_unused]] int peer) {
#if defined(ompi_request_is_failed)
  if (!ompi_ftmpi_enabled) [[likely]]
    return MPI_SUCCESS;
  if (ompi_comm_is_revoked(&comm)) return MPI_ERR_REVOKED;
  const bool there = peer == MPI_ANY_SOURCE
                         ? ompi_comm_is_any_source_enabled(&comm)
                         : ompi_comm_is_proc_active(&comm, peer, OMPI_COMM_IS_INTER(&comm));
  return there ? MPI_SUCCESS : MPI_ERR_PROC_FAILED;
#else
  return MPI_SUCCESS;
#endif
}

/// The tags of libmpi's own messages by which those that are left agree, also in a revoked communicator; and
/// those of collective operations, which the former are in the middle of.
struct Tags {
  int32_t lowest = 1;
  int32_t highest = 0;
};
#if defined(ompi_request_is_failed)
inline constexpr Tags kFailureTags = {MCA_COLL_BASE_TAG_FT_END, MCA_COLL_BASE_TAG_FT_BASE};
inline constexpr Tags kCollectiveTags = {MCA_COLL_BASE_TAG_END, MCA_COLL_BASE_TAG_BASE};
#else
inline constexpr Tags kFailureTags;
inline constexpr Tags kCollectiveTags;
#endif

/// Must nobody wait for a request any more, because of a process that died? If so the request has ended with
/// its error, or it is a receive from any source that a living process could still match. False as long as it
/// has not ended otherwise.
inline bool is_failed([[maybe_unused]] ompi_request_t& request) {
#if defined(ompi_request_is_failed)
  return ompi_request_is_failed(&request);
#else
  return false;
#endif
}

/// Hands one segment that came for `tag` from `endpoint` to the callback of a layer.
inline void call_receiver(const mca_btl_active_message_callback_t& layer, mca_btl_base_module_t& btl,
                          [[maybe_unused]] mca_btl_base_endpoint_t* endpoint, mca_btl_base_tag_t tag,
                          mca_btl_base_segment_t& segment) {
#if OMPI_MAJOR_VERSION >= 5
  mca_btl_base_receive_descriptor_t message = {};
  message.endpoint = endpoint;
  message.des_segments = &segment;
  message.des_segment_count = 1;
  message.tag = tag;
  message.cbdata = layer.cbdata;
  layer.cbfunc(&btl, &message);
#else
  mca_btl_base_descriptor_t message;
  message.des_segments = &segment;
  message.des_segment_count = 1;
  message.des_cbfunc = nullptr;
  message.des_cbdata = nullptr;
  message.des_context = nullptr;
  message.des_flags = 0;
  message.order = MCA_BTL_NO_ORDER;
  layer.cbfunc(&btl, tag, &message, layer.cbdata);
#endif
}

}  // namespace bfo
