// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operators of the language, on arrays: the meaning of docs/reference/language_reference.md in C++. Every float
// operation rounds by itself, in the program's order; nothing is fused or reordered.
#include <span>

#include "lang/front/passes.h"
#include "tithe/seam/codec.h"

namespace tithe::lang {

// The inputs that a call gives.
struct Given {
  const Settings* settings = nullptr;
  std::size_t n = 0;
  std::size_t length = 0;  // of the block
  std::size_t first = 0;   // the run's first value among all: draws count from there
  std::size_t at = 0;      // and in its block
  std::uint64_t key = 0;
  std::uint64_t shared_key = 0;
  unsigned added[2] = {1, 1};  // payloads in what was sent, and in what the phase in front agreed on
};

// The arrays of a program at work.
class Registers {
 public:
  Registers(const Checked& program, const Schedule& schedule, std::uint8_t* memory)
      : program_(program), schedule_(&schedule), offset_(schedule.offset), memory_(memory) {}
  // The plan alone: eight bytes for each of its nodes.
  Registers(const Checked& program, const std::vector<std::size_t>& plan_offset, std::uint64_t* memory)
      : program_(program), offset_(plan_offset), memory_(reinterpret_cast<std::uint8_t*>(memory)) {}

  const Node& node(int k) const { return program_.nodes[static_cast<std::size_t>(k)]; }
  const Folding& folding(unsigned k) const { return program_.foldings[k]; }
  template <typename T>
  T* of(int k) const {
    return reinterpret_cast<T*>(memory_ + offset_[static_cast<std::size_t>(k)]);
  }
  // Nodes that are given in arrays (what is taken, what was sent) must be there already.
  void compute_values(std::span<const int> nodes, const Given& given, std::size_t count) const;
  // Once for a call or a block; `fills`: whether values will read them.
  void compute_once(const Nodes& nodes, const Given& given, bool fills = true) const;
  void fill(int k) const { fill(k, schedule_->run); }
  void fill(int k, std::size_t count) const;

 private:
  void compute(int k, const Given& given, std::size_t count) const;
  const Checked& program_;
  const Schedule* schedule_ = nullptr;
  std::span<const std::size_t> offset_;
  std::uint8_t* memory_;
};

}  // namespace tithe::lang
