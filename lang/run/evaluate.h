// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operators of the language on arrays, as docs/reference/language_reference.md defines them. Every float
// operation rounds separately and in the program's order: nothing is fused or reordered.
#include <span>

#include "lang/front/passes.h"
#include "tithe/seam/codec.h"

namespace tithe::lang {

// The inputs of a call, at the present position.
struct Given {
  const Settings* settings = nullptr;
  std::size_t n = 0;
  std::size_t length = 0;  // of the present block
  std::size_t first = 0;   // index in the tensor of the run's first value: the counter of random draws
  std::size_t at = 0;      // index of the run's first value in its block
  std::uint64_t key = 0;
  std::uint64_t shared_key = 0;
  unsigned added[2] = {1, 1};  // payloads in the received sum, and in the previous phase's sum
};

// Calls of(T{}) with the C++ type T of this type's values in registers; a bool is a u32.
template <typename Of>
auto by_type(Type type, const Of& of) {
  if (type == Type::kF32) return of(float{});
  if (type == Type::kF64) return of(double{});
  if (type == Type::kI32) return of(std::int32_t{});
  return of(std::uint32_t{});
}

// The value arrays of all nodes of a program.
class Registers {
 public:
  Registers(const Checked& program, const Schedule& schedule, std::uint8_t* memory)
      : program_(program), schedule_(&schedule), offset_(schedule.offset), memory_(memory) {}
  // Plan nodes only, eight bytes each.
  Registers(const Checked& program, const std::vector<std::size_t>& plan_offset, std::uint64_t* memory)
      : program_(program), offset_(plan_offset), memory_(reinterpret_cast<std::uint8_t*>(memory)) {}

  const Node& node(int k) const { return program_.nodes[static_cast<std::size_t>(k)]; }
  const Folding& folding(unsigned k) const { return program_.foldings[k]; }
  template <typename T>
  T* of(int k) const {
    return reinterpret_cast<T*>(memory_ + offset_[static_cast<std::size_t>(k)]);
  }
  // Input arrays (kTaken, kItem, ...) must be filled first.
  void compute_values(std::span<const int> nodes, const Given& given, std::size_t count) const;
  // Nodes computed once per call or block; `fills`: also fill the arrays that value-stage nodes read.
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
