// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session's state as bytes (docs/format.md, "State"): the head below, what the carry keeps, and a checksum of it all.
#include <string>
#include <vector>

#include "carry/store.h"
#include "tithe/schedule.h"
#include "tithe/seam/transport.h"

namespace tithe::engine {

struct SavedHead {
  Rank rank = 0;
  int world = 1;
  std::uint64_t round = 0;
  std::string codec;         // and choices, of the last commit
  std::string opened = {};   // the same that the session was opened with, where those are others
  std::string decided = {};  // by codec "auto", as src/advice/auto reads it
  std::string link = {};     // that the session took, said or found; empty: none was known
  std::string schedule = {};
  Schedule::Told told = {};
};
std::vector<std::uint8_t> save(const SavedHead& head, const carry::Store& store);
// kCorrupt for bytes that save() did not write, and for a residual or velocity that is not finite; kMismatch for those
// of another version.
Status load(ByteView bytes, SavedHead& head, carry::Store::Map& saved);

}  // namespace tithe::engine
