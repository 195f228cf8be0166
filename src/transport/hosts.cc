// SPDX-License-Identifier: Apache-2.0
// Hosts are numbered in the order of their first rank. host_ is empty if every rank has its own host.
#include "tithe/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/text.h"

namespace tithe {
namespace {

constexpr std::size_t kMaxShown = 80;

// The numbers in `text`, with one separator between two of them; empty if the text has any other form.
std::vector<std::uint64_t> numbers(std::string_view text, char separator) {
  std::vector<std::uint64_t> out;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    std::uint32_t v = 0;
    const auto [next, error] = std::from_chars(at, end, v);
    if (error != std::errc{}) return {};
    out.push_back(v);
    if (next == end) return out;
    if (*next != separator) return {};
    at = next;
  }
}

// The host number of each rank, from the number of ranks of each host. Empty if there are more than `most` ranks.
std::vector<std::uint64_t> in_a_row(const std::vector<std::uint64_t>& ranks_of_host, std::size_t most) {
  std::vector<std::uint64_t> out;
  for (std::size_t h = 0; h < ranks_of_host.size(); ++h) {
    if (ranks_of_host[h] == 0 || ranks_of_host[h] > most - out.size()) return {};
    out.insert(out.end(), ranks_of_host[h], h);
  }
  return out;
}

}  // namespace

Hosts Hosts::of(std::span<const std::uint64_t> number_of_rank) {
  Hosts out;
  std::map<std::uint64_t, int> seen;
  for (const std::uint64_t n : number_of_rank)
    out.host_.push_back(seen.try_emplace(n, static_cast<int>(seen.size())).first->second);
  if (seen.size() == number_of_rank.size()) out.host_.clear();
  return out;
}

Result<Hosts> Hosts::parse(std::string_view text, int world) {
  if (text.empty()) return Hosts{};
  const auto ranks = static_cast<std::size_t>(world);
  std::vector<std::uint64_t> host;
  if (const auto by = numbers(text, 'x'); by.size() == 2 && by[0] <= ranks)
    host = in_a_row(std::vector<std::uint64_t>(by[0], by[1]), ranks);
  else if (text.find(',') != std::string_view::npos)
    host = numbers(text, ',');
  else
    host = in_a_row(numbers(text, '+'), ranks);
  if (host.size() != ranks)
    return Status(
        Code::kInvalid,
        fmt::format("hosts '{}': must name the hosts of {} rank{}: 4x2 means 4 hosts of 2 ranks, 3+1 means a "
                    "host of 3 ranks and a host of 1 rank, and 0,1,0,1 lists the host of each rank",
                    printable(text, kMaxShown), world, world == 1 ? "" : "s"));
  return of(host);
}

int Hosts::count(int world) const {
  return alone() ? world : *std::max_element(host_.begin(), host_.end()) + 1;
}

std::vector<std::vector<int>> Hosts::ranks(int world) const {
  std::vector<std::vector<int>> out(static_cast<std::size_t>(count(world)));
  for (int r = 0; r < world; ++r) out[static_cast<std::size_t>(of_rank(r))].push_back(r);
  return out;
}

std::string Hosts::text(int world) const {
  if (alone()) return fmt::format("{}x1", world);
  if (!std::is_sorted(host_.begin(), host_.end())) return fmt::format("{}", fmt::join(host_, ","));
  std::vector<std::size_t> sizes;
  for (const auto& ranks : this->ranks(world)) sizes.push_back(ranks.size());
  if (std::all_of(sizes.begin(), sizes.end(), [&](std::size_t n) { return n == sizes[0]; }))
    return fmt::format("{}x{}", sizes.size(), sizes[0]);
  return fmt::format("{}", fmt::join(sizes, "+"));
}

}  // namespace tithe
