// SPDX-License-Identifier: Apache-2.0
#pragma once
// Generates C++ expressions from nodes of a checked program, in terms of the prelude's functions: b12 is node 12 as a
// single number, v12 as sixteen values.
#include <map>
#include <string>
#include <vector>

#include "lang/front/checked.h"

namespace tithe::lang {

class NodeText {
 public:
  // of_sixteen: for the prelude of vectors, which has special forms of some operators.
  explicit NodeText(const Checked& program, bool of_sixteen = false)
      : program_(program), of_sixteen_(of_sixteen) {
    if (!of_sixteen) count_users();
  }

  const Node& node(int k) const { return program_.nodes[static_cast<std::size_t>(k)]; }
  // The declared name of a node: b12, v12, or for kernels scale_12.
  std::string name(int k) const;
  // False for a node of a kernel whose expression is part of its user's.
  bool is_declared(int k) const { return of_sixteen_ || !inlined_[static_cast<std::size_t>(k)]; }
  // The name of a node where one number, or sixteen values, are needed.
  std::string number(int k) const;
  std::string values(int k) const;
  std::string number_type(int k) const;
  std::string value_type(int k) const;
  // Declares a vector of a number that is known before the blocks: "const U k0 = kept(splat(127U));"; values()
  // returns its name from then on.
  void clear_cached() { cached_.clear(); }
  std::string keep(int k);
  // The expression of a node in its operands; not for inputs, draws and reductions.
  std::string expression(int k) const;
  // The largest known e such that the node, if finite, is a multiple of 2^e; very small if unknown.
  int min_unit(int k) const;
  // The operand of a conversion to integers in this range: if it is a clamp that the conversion repeats, the clamp's
  // operand.
  int before_clamp(int k, Range range) const;
  // "const F v12 = add(v3, splat(b7));", or the same for numbers.
  std::string definition(int k) const;

 private:
  std::string conversion(int k, std::string of) const;
  static std::string literal(Type type, double v, bool of_sixteen);
  // ---- For kernels (emit_scalars.cc)
  void count_users();
  std::string operand(int k) const;
  std::string argument(int k) const;  // of a function: without parentheses
  // Empty for a function of the prelude.
  std::string scalar(int k) const;
  const Checked& program_;
  const bool of_sixteen_;
  std::map<std::string, std::string> cached_;
  std::vector<bool> inlined_ = {};
};

}  // namespace tithe::lang
