// SPDX-License-Identifier: Apache-2.0
#include "transport/rendezvous/rendezvous.h"

#include <fmt/format.h>

namespace tithe {
namespace rendezvous {

std::string name_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t kMaxShownRanks = 10;
  std::string out;
  const std::size_t n = std::min(ranks.size(), kMaxShownRanks);
  for (std::size_t i = 0; i < n; ++i) {
    const bool last = i + 1 == ranks.size();
    fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : (last ? " and " : ", "), ranks[i]);
  }
  if (ranks.size() > n) fmt::format_to(std::back_inserter(out), " and {} more", ranks.size() - n);
  return out;
}

Status missing_ranks_error(const std::vector<Rank>& missing, const Launch& launch) {
  const auto seconds = std::chrono::duration<double>(launch.timeout).count();
  const std::string place =
      launch.file.empty() ? fmt::format("{}:{}", launch.host, launch.port) : launch.file;
  return {Code::kTimeout,
          fmt::format("within {} s, rank{} {} did not reach {}; check that every rank was started and can "
                      "reach that address. If a rank only starts late, raise timeout",
                      seconds, missing.size() == 1 ? "" : "s", name_ranks(missing), place),
          missing.front()};
}

}  // namespace rendezvous

AllGather open_rendezvous(const Launch& launch) {
  return [launch](ByteView mine) -> Result<std::vector<rendezvous::Blob>> {
    if (launch.world < 1 || launch.rank < 0 || launch.rank >= launch.world)
      return Status(Code::kInvalid, fmt::format("rank {} of world size {}", launch.rank, launch.world));
    if (mine.size() > rendezvous::kMaxBlobBytes)
      return Status(Code::kInvalid, fmt::format("{} bytes to exchange, at most {} are allowed", mine.size(),
                                                rendezvous::kMaxBlobBytes));
    if (launch.world == 1) return std::vector<rendezvous::Blob>{{mine.begin(), mine.end()}};
    return launch.file.empty() ? rendezvous::over_tcp(launch, mine) : rendezvous::over_files(launch, mine);
  };
}

}  // namespace tithe
