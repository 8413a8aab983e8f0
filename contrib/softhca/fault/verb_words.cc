// SPDX-License-Identifier: BSD-3-Clause
//
// The words of the rules about control verbs: the verbs, the states of modify_qp, and the errors by name.
#include <infiniband/verbs.h>

#include <cerrno>

#include "contrib/softhca/fault/control_verb.h"
#include "contrib/softhca/fault/words.h"

namespace bfo::softhca {
namespace {

constexpr Word kControlVerbs[] = {
    {"get_device_list", bit_of(ControlVerb::kGetDeviceList)},
    {"open_device", bit_of(ControlVerb::kOpenDevice)},
    {"close_device", bit_of(ControlVerb::kCloseDevice)},
    {"query_device", bit_of(ControlVerb::kQueryDevice)},
    {"query_port", bit_of(ControlVerb::kQueryPort)},
    {"query_gid", bit_of(ControlVerb::kQueryGid)},
    {"query_pkey", bit_of(ControlVerb::kQueryPkey)},
    {"alloc_pd", bit_of(ControlVerb::kAllocPd)},
    {"dealloc_pd", bit_of(ControlVerb::kDeallocPd)},
    {"reg_mr", bit_of(ControlVerb::kRegMr)},
    {"rereg_mr", bit_of(ControlVerb::kReregMr)},
    {"dereg_mr", bit_of(ControlVerb::kDeregMr)},
    {"alloc_mw", bit_of(ControlVerb::kAllocMw)},
    {"dealloc_mw", bit_of(ControlVerb::kDeallocMw)},
    {"create_comp_channel", bit_of(ControlVerb::kCreateCompChannel)},
    {"destroy_comp_channel", bit_of(ControlVerb::kDestroyCompChannel)},
    {"create_cq", bit_of(ControlVerb::kCreateCq)},
    {"resize_cq", bit_of(ControlVerb::kResizeCq)},
    {"destroy_cq", bit_of(ControlVerb::kDestroyCq)},
    {"create_srq", bit_of(ControlVerb::kCreateSrq)},
    {"modify_srq", bit_of(ControlVerb::kModifySrq)},
    {"query_srq", bit_of(ControlVerb::kQuerySrq)},
    {"destroy_srq", bit_of(ControlVerb::kDestroySrq)},
    {"create_qp", bit_of(ControlVerb::kCreateQp)},
    {"modify_qp", bit_of(ControlVerb::kModifyQp)},
    {"query_qp", bit_of(ControlVerb::kQueryQp)},
    {"destroy_qp", bit_of(ControlVerb::kDestroyQp)},
    {"create_ah", bit_of(ControlVerb::kCreateAh)},
    {"destroy_ah", bit_of(ControlVerb::kDestroyAh)},
    {"attach_mcast", bit_of(ControlVerb::kAttachMcast)},
    {"detach_mcast", bit_of(ControlVerb::kDetachMcast)},
    {"query_port_speed", bit_of(ControlVerb::kQueryPortSpeed)},
    {"any", kEveryVerb},
};
static_assert(std::size(kControlVerbs) == kControlVerbCount + 1);

constexpr Word kStates[] = {
    {"RESET", 1u << IBV_QPS_RESET}, {"INIT", 1u << IBV_QPS_INIT}, {"RTR", 1u << IBV_QPS_RTR},
    {"RTS", 1u << IBV_QPS_RTS},     {"SQD", 1u << IBV_QPS_SQD},   {"SQE", 1u << IBV_QPS_SQE},
    {"ERR", 1u << IBV_QPS_ERR},
};

constexpr Word kErrors[] = {
    {"ENOMEM", ENOMEM},
    {"ETIMEDOUT", ETIMEDOUT},
    {"EINVAL", EINVAL},
    {"EIO", EIO},
    {"EAGAIN", EAGAIN},
    {"EBUSY", EBUSY},
    {"EPERM", EPERM},
    {"EACCES", EACCES},
    {"EFAULT", EFAULT},
    {"ENOSPC", ENOSPC},
    {"ENODEV", ENODEV},
    {"ENOENT", ENOENT},
    {"ENXIO", ENXIO},
    {"EINTR", EINTR},
    {"EMFILE", EMFILE},
    {"ENFILE", ENFILE},
    {"ENOSYS", ENOSYS},
    {"EOPNOTSUPP", EOPNOTSUPP},
    {"EPROTONOSUPPORT", EPROTONOSUPPORT},
    {"ENETDOWN", ENETDOWN},
    {"ENETUNREACH", ENETUNREACH},
    {"EHOSTUNREACH", EHOSTUNREACH},
    {"EADDRNOTAVAIL", EADDRNOTAVAIL},
    {"ENOBUFS", ENOBUFS},
    {"EOVERFLOW", EOVERFLOW},
};

}  // namespace

std::span<const Word> control_verb_words() {
  return kControlVerbs;
}
std::span<const Word> qp_state_words() {
  return kStates;
}
std::span<const Word> errno_words() {
  return kErrors;
}

}  // namespace bfo::softhca
