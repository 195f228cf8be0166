// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tags that a message can have. The lower half says who sends it and what kind it is; the upper half is a
// channel, a word of the transport itself, or the number of a long message's piece.
#include <ucp/api/ucp.h>

#include "tithe/seam/transport.h"

namespace tithe::ucx {

constexpr ucp_tag_t kWordBit = ucp_tag_t{1} << 31;
constexpr ucp_tag_t kPieceBit = ucp_tag_t{1} << 30;
constexpr ucp_tag_t kSourceBits = kPieceBit - 1;
constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};  // a receive's mask

constexpr ucp_tag_t tag_of(Channel channel, Rank source) {
  return ucp_tag_t{channel} << 32 | static_cast<ucp_tag_t>(source);
}
constexpr ucp_tag_t piece_tag(std::uint32_t number, Rank source) {
  return ucp_tag_t{number} << 32 | kPieceBit | static_cast<ucp_tag_t>(source);
}

}  // namespace tithe::ucx
