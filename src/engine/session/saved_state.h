// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session's state as bytes (docs/reference/format_state.md, "State"): the head below, the tensors' states, and a
// checksum of all.
#include <string>
#include <vector>

#include "feedback/residual_store.h"
#include "tithe/schedule.h"
#include "tithe/seam/transport.h"

namespace tithe::engine {

struct SavedHead {
  Rank rank = 0;
  int world = 1;
  std::uint64_t round = 0;
  std::uint64_t job = 0;     // a number that rank 0 drew in the job's first round; 0: it has committed none
  std::string codec;         // and choices, of the last commit
  std::string opened = {};   // the same that the session was opened with, where those are others
  std::string decided = {};  // by codec "auto", as src/advice/auto reads it
  std::string link = {};     // that the session took, said or found; empty: none was known
  std::string schedule = {};
  Schedule::Told told = {};
  std::vector<std::string> members = {};  // names of the ranks, by rank; empty: their numbers
  // The name of one of them.
  std::string name(Rank r) const {
    return members.empty() ? std::to_string(r) : members[static_cast<std::size_t>(r)];
  }
};
inline constexpr std::size_t kMostMemberBytes = 200;
// kInvalid where the names of `world` ranks are not as SessionOptions::members has them.
Status check_members(const std::vector<std::string>& members, int world);

// Without debts: no residuals and velocities.
std::vector<std::uint8_t> save(const SavedHead& head, const feedback::ResidualStore& store,
                               bool debts = true);
// The checksum that a state of save() ends in.
std::uint64_t checksum_of(ByteView state);
// kCorrupt for bytes that save() did not write, and for a residual or velocity that is not finite; kMismatch for those
// of another version.
Status load(ByteView bytes, SavedHead& head, feedback::ResidualStore::Map& saved);

}  // namespace tithe::engine
