// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session's state as bytes (docs/reference/format_state.md, "State"): the head below, the tensors' states, and a
// checksum over both.
#include <string>
#include <vector>

#include "feedback/residual_store.h"
#include "tithe/schedule.h"
#include "tithe/seam/transport.h"

namespace tithe::engine {

// The name of a rank among `members`, which is empty if the names are the numbers of the ranks.
inline std::string member_name(const std::vector<std::string>& members, Rank r) {
  return members.empty() ? std::to_string(r) : members[static_cast<std::size_t>(r)];
}

struct SavedHead {
  Rank rank = 0;
  int world = 1;
  std::uint64_t round = 0;
  std::uint64_t job = 0;     // drawn by rank 0 in the job's first round; 0: no round is committed
  std::string codec = {};    // and choices, of the last commit
  std::string opened = {};   // the choices at the session's start, if they differ
  std::string decided = {};  // by codec "auto", in the format of advisor/auto
  std::string link = {};     // the session's link rate; empty: unknown
  std::string schedule = {};
  Schedule::State schedule_state = {};
  std::vector<std::string> members = {};  // names of the ranks, by rank; empty: their numbers
  std::string name(Rank r) const { return member_name(members, r); }
};
inline constexpr std::size_t kMaxMemberBytes = 200;
// kInvalid if the names of `world` ranks do not meet the rules of SessionOptions::members.
Status check_members(const std::vector<std::string>& members, int world);

// residuals=false: without residuals and velocities.
std::vector<std::uint8_t> save(const SavedHead& head, const feedback::ResidualStore& store,
                               bool residuals = true);
// The checksum at the end of a state of save().
std::uint64_t checksum_of(ByteView state);
// kCorrupt: the bytes were not written by save(), or a residual or velocity is not finite. kMismatch: the state has
// another version.
Status load(ByteView bytes, SavedHead& head, feedback::ResidualStore::Map& saved);

}  // namespace tithe::engine
