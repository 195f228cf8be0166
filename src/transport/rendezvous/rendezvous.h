// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions that the rendezvous over files and the one over TCP share.
#include <cstdint>
#include <string>
#include <vector>

#include "tithe/connect.h"

namespace tithe::rendezvous {

using Blob = std::vector<std::uint8_t>;

// Upper bound of a rank's blob, so that no rank can make another one allocate more.
inline constexpr std::size_t kMaxBlobBytes = 1U << 20;

// "1, 2 and 5"; names at most ten ranks.
std::string name_ranks(const std::vector<Rank>& ranks);

// kTimeout that names the missing ranks; its peer is the first of them.
Status missing_ranks_error(const std::vector<Rank>& missing, const Launch& launch);

// True if the job has a token, or runs without one on purpose.
inline bool is_guarded(const Launch& launch) { return !launch.token.empty() || launch.unguarded; }

// The status after Launch::interrupted returned true.
inline Status cancelled_error() { return {Code::kCancelled, "the rendezvous was cancelled"}; }

Result<std::vector<Blob>> over_tcp(const Launch& launch, ByteView mine);
Result<std::vector<Blob>> over_files(const Launch& launch, ByteView mine);

}  // namespace tithe::rendezvous
