// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layout of a UCX tag. The lower half holds the source rank and the kind of message; the upper half holds the
// channel, a control word, or the number of a piece of a long message.
#include <ucp/api/ucp.h>

#include "tithe/seam/transport.h"

namespace tithe::ucx {

constexpr ucp_tag_t kControlBit = ucp_tag_t{1} << 31;
constexpr ucp_tag_t kPieceBit = ucp_tag_t{1} << 30;
constexpr ucp_tag_t kSourceBits = kPieceBit - 1;
constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};  // mask of a receive: all bits must match

constexpr ucp_tag_t tag_of(Channel channel, Rank source) {
  return ucp_tag_t{channel} << 32 | static_cast<ucp_tag_t>(source);
}
constexpr ucp_tag_t piece_tag(std::uint32_t number, Rank source) {
  return ucp_tag_t{number} << 32 | kPieceBit | static_cast<ucp_tag_t>(source);
}

}  // namespace tithe::ucx
