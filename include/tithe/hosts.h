// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hosts maps ranks to hosts; a host is a machine and its link to the others. The transport detects it, a session option
// can override it, and it is the same value on all ranks.
//
//   numbered   hosts count from 0, in the order in which their first ranks come: equal sharing, equal value
//   alone      by default each rank has a host of its own, in a world of any size
//   text       parse(h.text(world), world) == h
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/status.h"

namespace tithe {

class Hosts {
 public:
  Hosts() = default;  // each rank has one of its own

  // Ranks with equal numbers share a host.
  static Hosts of(std::span<const std::uint64_t> number_of_rank);
  // "4x2": 4 hosts of 2 ranks, one after the other; "3+1": one of 3 ranks and one of 1; "0,1,0,1": the host of each
  // rank. Empty: each has its own. kInvalid where it does not name `world` ranks.
  static Result<Hosts> parse(std::string_view text, int world);

  bool alone() const { return host_.empty(); }  // each rank has one of its own
  int of_rank(int rank) const { return alone() ? rank : host_[static_cast<std::size_t>(rank)]; }
  int count(int world) const;
  std::vector<std::vector<int>> ranks(int world) const;  // of each host, in order
  std::string text(int world) const;                     // the shortest that parse() takes

  friend bool operator==(const Hosts&, const Hosts&) = default;

 private:
  std::vector<int> host_;  // by rank; empty where each has one of its own
};

}  // namespace tithe
