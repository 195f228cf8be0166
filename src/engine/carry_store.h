// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where each key's residual, velocity and its codec's memory lie: in the unit that synchronised the key last, or loose,
// after a restore. When a key turns up in another unit, both move there.
#include <map>
#include <string>
#include <vector>

#include "engine/unit.h"

namespace tithe::engine {

struct Home {
  std::size_t n = 0;
  Unit* unit = nullptr;
  std::size_t tensor = 0;                 // its number in the unit
  std::uint64_t used = 0;                 // 1 + the last round that synchronised it
  std::vector<float> residual, velocity;  // loose; empty stands for zeros
  std::vector<std::uint8_t> memory;       // likewise
  std::uint64_t memory_kind = 0;          // Unit::memory_kind where that memory was made
};

class CarryStore {
 public:
  // The home of a key, made on first sight.
  Home& home(std::string_view key);
  const Home* find(std::string_view key) const;
  // Moves what is kept for tensor `index` of `unit` there. A memory of another kind is of another codec, or of values
  // that are cut in another way now: it begins anew.
  void move_in(Home& home, Unit& unit, std::size_t index);

  static std::span<const float> residual(const Home& home);
  static std::span<const float> velocity(const Home& home);
  static ByteView memory(const Home& home);
  static std::uint64_t memory_kind(const Home& home);

  const std::map<std::string, Home, std::less<>>& all() const { return homes_; }
  std::map<std::string, Home, std::less<>>& all() { return homes_; }

 private:
  std::map<std::string, Home, std::less<>> homes_;
};

// State as bytes (docs/format.md, "State"): the header below, the keys in order, and a checksum of it all.
struct SavedHead {
  Rank rank = 0;
  int world = 1;
  std::uint64_t round = 0;
  std::string codec;
  std::string schedule = {};
  Schedule::Told told = {};
};
std::vector<std::uint8_t> save(const SavedHead& head, const CarryStore& store);
// Into `head` and loose homes. kCorrupt for bytes that save() did not write, and for a residual or velocity that is not
// finite.
Status load(ByteView bytes, SavedHead& head, std::map<std::string, Home, std::less<>>& homes);

}  // namespace tithe::engine
