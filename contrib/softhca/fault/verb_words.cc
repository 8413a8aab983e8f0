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
    {"get_device_list", bit_of(ControlVerb::GetDeviceList)},
    {"open_device", bit_of(ControlVerb::OpenDevice)},
    {"close_device", bit_of(ControlVerb::CloseDevice)},
    {"query_device", bit_of(ControlVerb::QueryDevice)},
    {"query_port", bit_of(ControlVerb::QueryPort)},
    {"query_gid", bit_of(ControlVerb::QueryGid)},
    {"query_pkey", bit_of(ControlVerb::QueryPkey)},
    {"alloc_pd", bit_of(ControlVerb::AllocPd)},
    {"dealloc_pd", bit_of(ControlVerb::DeallocPd)},
    {"reg_mr", bit_of(ControlVerb::RegMr)},
    {"rereg_mr", bit_of(ControlVerb::ReregMr)},
    {"dereg_mr", bit_of(ControlVerb::DeregMr)},
    {"alloc_mw", bit_of(ControlVerb::AllocMw)},
    {"dealloc_mw", bit_of(ControlVerb::DeallocMw)},
    {"create_comp_channel", bit_of(ControlVerb::CreateCompChannel)},
    {"destroy_comp_channel", bit_of(ControlVerb::DestroyCompChannel)},
    {"create_cq", bit_of(ControlVerb::CreateCq)},
    {"resize_cq", bit_of(ControlVerb::ResizeCq)},
    {"destroy_cq", bit_of(ControlVerb::DestroyCq)},
    {"create_srq", bit_of(ControlVerb::CreateSrq)},
    {"modify_srq", bit_of(ControlVerb::ModifySrq)},
    {"query_srq", bit_of(ControlVerb::QuerySrq)},
    {"destroy_srq", bit_of(ControlVerb::DestroySrq)},
    {"create_qp", bit_of(ControlVerb::CreateQp)},
    {"modify_qp", bit_of(ControlVerb::ModifyQp)},
    {"query_qp", bit_of(ControlVerb::QueryQp)},
    {"destroy_qp", bit_of(ControlVerb::DestroyQp)},
    {"create_ah", bit_of(ControlVerb::CreateAh)},
    {"destroy_ah", bit_of(ControlVerb::DestroyAh)},
    {"attach_mcast", bit_of(ControlVerb::AttachMcast)},
    {"detach_mcast", bit_of(ControlVerb::DetachMcast)},
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
