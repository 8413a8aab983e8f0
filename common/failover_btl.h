/* SPDX-License-Identifier: BSD-3-Clause
 *
 * failover_btl.h: the one contract between a failover PML and a failover BTL.
 *
 * Open MPI's btl.h has no words for what a failover layer must know: which rail died and why, what became of
 * a payload that was sent without a descriptor, when no access by the dead rail can land any more, and which
 * connection a message came in on. This small C ABI adds them.
 *
 * Discovery: a BTL whose module sets MCA_BTL_FLAGS_FAILOVER_SUPPORT *and* whose component exports the object
 * `mca_btl_<component>_failover` of type bfo_failover_btl_t (found with dlsym(RTLD_DEFAULT, ...), magic,
 * version and size checked) speaks it. A BTL that does not is used as ob1 would use it. Nothing past the end
 * of mca_btl_base_module_t is ever read.
 *
 * Life of one connection (a "rail" of one peer = one module + one endpoint), per epoch:
 *
 *     IDLE -> CONNECTING -> UP(epoch n) [-> SUSPECT -> UP] -> DOWN(n) -> CLOSED(n) -> CONNECTING -> UP(n+1)
 * ...
 *
 * Order the BTL guarantees for the death of epoch n, all from its progress function, never from an
 * asynchronous thread, never re-entrantly from inside a call that the PML makes (H19):
 *   1. the queue pair is moved to ERR; slots, credits and tokens are returned;
 *   2. sink.rail_down(n) exactly once, before any fragment comes back;
 *   3. every fragment of epoch n ends exactly once in posting order: des_cbfunc / RDMA callback with a status
 * (below), or sink.sendi_failed; receives that completed with SUCCESS are delivered to the PML during the
 * whole drain and never dropped (H3);
 *   4. the queue pair is destroyed; sink.rail_closed(n, FENCED | UNFENCEABLE, delivered count) exactly once.
 * After FENCED no access of epoch n, local or remote, can touch memory of this process, and no message of
 * epoch n is delivered any more (H2).
 *   5. reconnection (epoch n+1) is the BTL's own business while the port is active; sink.rail_up(n+1) reports
 * it. Nothing is posted before (H18).
 *
 * H1..H23: contrib/doc/hazards.md
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mca_btl_base_module_t;
struct mca_btl_base_endpoint_t;
struct mca_btl_base_descriptor_t;
struct opal_proc_t;

#define BFO_FAILOVER_MAGIC 0x31464f42u /* "BOF1" in memory order, little endian */
#define BFO_FAILOVER_VERSION 12u

/* Status a failover BTL passes to des_cbfunc and to RDMA completion callbacks. Anything that was handed to
 * ibv_post_send has an unknown fate unless a SUCCESS completion covers it: "flushed" is not "never sent"
 * (H22). Values are OPAL's, repeated here so that core code needs no Open MPI header; glue checks them with
 * static_assert. */
#define BFO_RC_DELIVERED 0      /* OPAL_SUCCESS: the peer's HCA has it */
#define BFO_RC_UNKNOWN (-1)     /* OPAL_ERROR: posted, fate unknown: it may have arrived */
#define BFO_RC_NEVER_SENT (-12) /* OPAL_ERR_UNREACH: never given to the HCA */

/* Why an epoch ended. `code` qualifies it. */
typedef enum bfo_rail_cause_t {
  BFO_CAUSE_NONE = 0,
  BFO_CAUSE_WC_ERROR = 1,    /* code = enum ibv_wc_status */
  BFO_CAUSE_ASYNC_EVENT = 2, /* code = enum ibv_event_type */
  BFO_CAUSE_PEER_DOWN = 3,   /* the peer said so, over another rail or by a new handshake; code = its cause */
  BFO_CAUSE_PROBE_FAILED = 4, /* progress clock suspected, and the peer, asked, answers over other rails only;
                                 code = enum ibv_wc_status of a failed probe of the path, 0 when it has not
                                 come back, -1 when the peer's clock suspected and this side agreed */
  BFO_CAUSE_FENCE = 5,        /* fence() was asked for */
  BFO_CAUSE_HANDSHAKE = 6,    /* the handshake failed; code = 0, or
                                 ETIMEDOUT: neither the peer nor its path shows any sign of life, or
                                 EINPROGRESS: late. The first handshake takes longer than its time limit and
                                 another rail works, which takes what waited. It goes on, so no rail_closed
                                 follows, and rail_up may be of the same epoch: no loss, or
                                 ENETDOWN: the port was down at one end when its process started, the
                                 rail has never been up and joins later: no loss */
  BFO_CAUSE_POST_FAILED = 7,  /* ibv_post_send / ibv_post_recv refused; code = errno */
  BFO_CAUSE_SHUTDOWN = 8,     /* the peer is going away in order: not a failure, it never comes back */
  BFO_CAUSE_RESOURCE = 9,     /* it cannot be made: an object or memory is missing here or at the peer;
                                 code = errno. The BTL goes on trying */
  BFO_CAUSE_GIVEN_BACK =
      10 /* queue pairs are short, another peer has no rail at all, and this one has a second
            one, which gives its own back: no loss. It comes up again when there is room */
} bfo_rail_cause_t;

typedef enum bfo_fence_result_t {
  BFO_FENCED = 0,     /* proven: ibv_destroy_qp returned 0 after every successful receive was delivered */
  BFO_UNFENCEABLE = 1 /* the device refused (dying HCA): accesses of this epoch may still land (H12) */
} bfo_fence_result_t;

typedef enum bfo_rail_state_t {
  BFO_RAIL_IDLE = 0,       /* never connected; the first send or connect() starts the handshake */
  BFO_RAIL_CONNECTING = 1, /* sends are queued by the BTL */
  BFO_RAIL_UP = 2,
  BFO_RAIL_SUSPECT = 3, /* still usable, but its progress clock stands: prefer another rail */
  BFO_RAIL_DOWN = 4,    /* sends are refused with BFO_RC_NEVER_SENT */
  BFO_RAIL_UNUSABLE = 5 /* device fatal: will not come back in this job */
} bfo_rail_state_t;

/* One rail as both sides name it. conn is made of the two handshake nonces and equal on both sides; epoch
 * counts its connections from 1. */
typedef struct bfo_rail_name_t {
  uint64_t conn;
  uint32_t epoch;
  uint32_t reserved; /* 0 */
} bfo_rail_name_t;

typedef struct bfo_rail_info_t {
  bfo_rail_name_t name;
  bfo_rail_state_t state;
  uint32_t port;      /* local port number */
  uint32_t answers;   /* what peer_answers() said last, or would have said; 0 or 1 */
  char device[64];    /* local device name, NUL terminated, e.g. "mlx5_0" */
  char peer_port[48]; /* remote port in words, e.g. "lid 12 qpn 0x1a" */
  char own_port[48];  /* what no other port of the fabric has, e.g. its GID; empty: unknown */
} bfo_rail_info_t;

/* An event about one rail. Valid only during the call. */
typedef struct bfo_rail_event_t {
  bfo_rail_info_t info; /* name = the epoch the event is about */
  bfo_rail_cause_t cause;
  int32_t code; /* see bfo_rail_cause_t */
  uint32_t vendor_err;
  uint64_t
      evidence_ns; /* CLOCK_MONOTONIC of the first evidence (completion, event, peer's word, suspicion) */
  uint64_t now_ns; /* CLOCK_MONOTONIC of this call */
  char text[96];   /* cause in words: "RETRY_EXC_ERR", "IBV_EVENT_PORT_ERR", ... */
} bfo_rail_event_t;

/* Totals of one module, for the accounting check: at rest
 * posted == delivered + unknown, and accepted == delivered + unknown + never_sent, per kind. */
typedef enum bfo_frag_kind_t {
  BFO_KIND_SEND = 0,  /* descriptors given to btl_send */
  BFO_KIND_SENDI = 1, /* payloads taken by btl_sendi or send_bytes, without a descriptor */
  BFO_KIND_PUT = 2,
  BFO_KIND_GET = 3,
  BFO_KIND_CONTROL = 4, /* the BTL's own messages */
  BFO_KIND_COUNT = 5
} bfo_frag_kind_t;

typedef struct bfo_accounting_t {
  uint64_t accepted[BFO_KIND_COUNT]; /* taken from the caller, queued ones included */
  uint64_t posted[BFO_KIND_COUNT];   /* given to ibv_post_send */
  uint64_t delivered[BFO_KIND_COUNT];
  uint64_t unknown[BFO_KIND_COUNT];
  uint64_t never_sent[BFO_KIND_COUNT];
  uint64_t bytes_posted;   /* payload and PML headers given to the HCA, all kinds */
  uint64_t bytes_received; /* by SEND */
  uint64_t dropped;        /* malformed, stale or foreign packets dropped */
} bfo_accounting_t;

/* The ports of this process, and in words why they are not more. */
typedef struct bfo_host_ports_t {
  uint32_t up;       /* ACTIVE now */
  uint32_t expected; /* used, or would be if they were up */
  char missing[224]; /* what was missing when the process started, as the end of a sentence about the host */
  char remedy[224];  /* what helps, as a sentence without its full stop */
} bfo_host_ports_t;

/* A port runs at another rate than before. Valid only during the call. */
typedef struct bfo_port_speed_t {
  char device[64];
  uint32_t port;
  uint32_t before; /* million bits per second; 0: not known, it was down when the process started */
  uint32_t now;    /* the same; never 0 */
  char text[96];   /* after which event, in words */
} bfo_port_speed_t;

/* A port loses packets, which its device or the peer's sends again, so that no rail ends; or it does not any
 * more. One process of each host tells it. Valid only during the call. */
typedef struct bfo_port_loss_t {
  char device[64];
  uint32_t port;
  uint32_t in;      /* 1: packets that are sent to the port; 0: that it sends, or their acknowledgments */
  uint32_t lossy;   /* 0: not any more */
  uint64_t signs;   /* lost packets, as the device sees them, in the last `ns` nanoseconds of traffic */
  uint64_t packets; /* of so many */
  uint64_t ns;
} bfo_port_loss_t;

/* What the PML gives the BTL. Calls come from the BTL's progress function (any thread that runs
 * opal_progress), one at a time per module. `ctx` is the pointer given to bind(), `rail` the one given to
 * attach(). Of an endpoint without such a pointer only messages are reported. The callee may post on other
 * rails from inside a callback, but never blocks and never calls progress. */
typedef struct bfo_failover_sink_t {
  size_t size;       /* sizeof(bfo_failover_sink_t) of the PML */
  const char* build; /* of the PML, in words */
  /* A message with a tag of the PML (MCA_BTL_TAG_PML up to MCA_BTL_TAG_OSC_RDMA) came in. It takes the place
   * of the active-message callback. `rail` is NULL when the PML has not met the sender. `data` is valid
   * during the call only. */
  void (*message)(void* ctx, void* rail, uint32_t epoch, uint8_t tag, const void* data, size_t length);
  /* A new epoch is up; again with the same epoch when a suspect rail moves again. */
  void (*rail_up)(void* ctx, void* rail, const bfo_rail_event_t* ev);
  void (*rail_suspect)(void* ctx, void* rail, const bfo_rail_event_t* ev);
  void (*rail_down)(void* ctx, void* rail, const bfo_rail_event_t* ev);
  /* delivered = number of SENDs of this epoch from the peer that were handed to the PML: the EPOCHCLOSED
   * count of H4. */
  void (*rail_closed)(void* ctx, void* rail, const bfo_rail_event_t* ev, bfo_fence_result_t result,
                      uint64_t delivered);
  /* A payload that btl_sendi or send_bytes had accepted without a descriptor ended with `status`
   * BFO_RC_UNKNOWN or BFO_RC_NEVER_SENT. `data` is PML header plus packed payload as one contiguous piece of
   * `length` bytes, owned by the BTL, valid during the call only. Also used for gaps: status BFO_RC_UNKNOWN
   * with a payload that had completed with SUCCESS but was lost by the peer's device after acknowledging it
   * (H4). */
  void (*sendi_failed)(void* ctx, void* rail, uint8_t tag, const void* data, size_t length, int status);
  /* The peer received fewer messages than this side saw acknowledged, and `lost` of them are no longer in
   * their slots: unrecoverable, report an MPI error (H4 c). */
  void (*gap_lost)(void* ctx, void* rail, const bfo_rail_name_t* name, uint64_t lost);
  /* About a rail that is not up. answers = 1: the peer's process lives and the path to it works, it is only
   * busy outside MPI and makes no progress, so time spent waiting for it proves nothing (H15). answers = 0:
   * that is not so any more. Called on changes; 0 after rail_down and rail_up. rail_info() has it for a PML
   * that meets the peer later. */
  void (*peer_answers)(void* ctx, void* rail, int answers);
  /* About the port of a module, and so all its rails: btl_bandwidth is another one. When a port comes back,
   * before rail_up. */
  void (*port_speed)(void* ctx, struct mca_btl_base_module_t* btl, const bfo_port_speed_t* speed);
  /* About the port of a module, and so all its rails, which go on. */
  void (*port_loss)(void* ctx, struct mca_btl_base_module_t* btl, const bfo_port_loss_t* loss);
} bfo_failover_sink_t;

/* What the BTL gives the PML: one constant object per component. All functions may be called by any thread
 * that may call the PML, return BFO_RC_DELIVERED (0) when the request was taken and a negative OPAL code
 * otherwise, never block and never call the sink before they return. */
typedef struct bfo_failover_btl_t {
  uint32_t magic;
  uint32_t version;
  size_t size;       /* sizeof(bfo_failover_btl_t) of the BTL */
  const char* build; /* of the BTL, in words; up to here nothing changes in later versions */

  /* Install (or with NULL remove) the sink of a module. After removal no callback of any kind reaches the
   * PML. */
  int (*bind)(struct mca_btl_base_module_t* btl, const bfo_failover_sink_t* sink, void* ctx);
  /* Current name and state of a rail. */
  int (*rail_info)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep,
                   bfo_rail_info_t* out);
  /* From now on the sink hears of this endpoint, under the name `rail`, and *now is its state: each change
   * after that is reported, perhaps by another thread before this returns, and a change before it perhaps
   * once more. With NULL the endpoint is not named by any call that begins from now on; `now` may be NULL. */
  int (*attach)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, void* rail,
                bfo_rail_info_t* now);
  /* Start the handshake now (IDLE), or hurry the next reconnection attempt (DOWN/CLOSED with an active port).
   */
  int (*connect)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep);
  /* Close the current epoch if it is <= epoch: same sequence as a failure, cause BFO_CAUSE_FENCE. Already
   * closed: rail_closed is called again from the next progress. Never up here, and given up: rail_closed is
   * called alone. Idempotent. */
  int (*fence)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, uint32_t epoch);
  /* The peer said over another rail that this rail is dead for it: close the epoch if conn matches and
   * current epoch <= epoch; stale ones are ignored (0 is returned). */
  int (*peer_down)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep,
                   const bfo_rail_name_t* name, int32_t peer_cause);
  /* The peer's EPOCHCLOSED: it was handed `delivered` SENDs of that epoch. The BTL compares with its own
   * count of successes, hands back what is still in slots by sink.sendi_failed, and calls sink.gap_lost for
   * the rest, from its next progress. */
  int (*peer_closed)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep,
                     const bfo_rail_name_t* name, uint64_t delivered);
  /* btl_sendi for a payload that is one piece of memory: no convertor is needed. Both parts are copied before
   * it returns. Any negative code: nothing was taken, and a descriptor may be tried. */
  int (*send_bytes)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, uint8_t tag,
                    const void* header, size_t header_size, const void* payload, size_t payload_size);
  /* Number of accepted pieces of work not yet covered by a completion on this module; posts a signaled marker
   * where only unsignaled work is left (H20, H22). Poll with progress until 0. */
  uint64_t (*outstanding)(struct mca_btl_base_module_t* btl);
  int (*accounting)(struct mca_btl_base_module_t* btl, bfo_accounting_t* out);
  /* What this rail took since it exists, of all kinds and in all epochs, and how much of that has ended: the
   * oldest `ended` pieces were delivered or handed back. Posts a signaled marker where only unsignaled work
   * is left, so that asking again shows progress. For now and then, not for every message (H5). */
  int (*work)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, uint64_t* taken,
              uint64_t* ended);
  /* Why a rail is not up that has never been, in words of at most `size` bytes, and for how many milliseconds
   * that has been so. 0 milliseconds: it was up, nobody has asked for it yet, or nothing proves more than
   * that this process or the peer was busy outside MPI. */
  uint32_t (*never_up)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, char* why,
                       size_t size);
  /* Device and port number of the peer's end, as its process has published them. For reports: it reads the
   * modex. */
  int (*peer_port)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep, char* device,
                   size_t size, uint32_t* number);
  /* This process needs nothing from the peer any more and will send it nothing: the peer is told, again and
   * again until it has answered, and the connection stays until then, because the peer may wait for
   * acknowledgments. What ends the connection from now on is no failure (BFO_CAUSE_SHUTDOWN), and no new one
   * is made. Returns 1 while an answer is missing, 0 when nothing is left to wait for. Poll with progress. */
  int (*leave)(struct mca_btl_base_module_t* btl, struct mca_btl_base_endpoint_t* ep);
  /* About the component. May be called when it has no module, by any thread, after its framework has chosen
   * the BTLs. */
  void (*host_ports)(bfo_host_ports_t* out);
  /* How many ports `proc` has published: 0 none, -1 it is not known in which form. */
  int (*peer_ports)(struct opal_proc_t* proc);
} bfo_failover_btl_t;

#ifdef __cplusplus
}
#endif
