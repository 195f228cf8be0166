// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions that the rendezvous over files and over TCP share.
#include <cstdint>
#include <string>
#include <vector>

#include "tithe/connect.h"

namespace tithe::rendezvous {

using Blob = std::vector<std::uint8_t>;

// No rank may make another allocate more than this for its address.
inline constexpr std::size_t kMaxBlobBytes = 1U << 20;

// "1, 2 and 5"; at most ten ranks are spelled out.
std::string name_ranks(const std::vector<Rank>& ranks);

// kTimeout, naming the ranks that did not come; the first of them is the peer.
Status nobody_from(const std::vector<Rank>& missing, const Launch& launch);

// True if strangers are kept out by a token, or are let in on purpose.
inline bool is_guarded(const Launch& launch) { return !launch.token.empty() || launch.unguarded; }

// Where Launch::interrupted said so.
inline Status given_up() { return {Code::kCancelled, "the rendezvous was cancelled"}; }

Result<std::vector<Blob>> over_tcp(const Launch& launch, ByteView mine);
Result<std::vector<Blob>> over_files(const Launch& launch, ByteView mine);

}  // namespace tithe::rendezvous
