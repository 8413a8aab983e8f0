// SPDX-License-Identifier: BSD-3-Clause
//
// sanitized.h: BFO_ADDRESS_SANITIZER is defined where AddressSanitizer looks on. g++ says so by a macro, and
// clang++ as one of its features.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define BFO_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BFO_ADDRESS_SANITIZER
#endif
#endif
