// SPDX-License-Identifier: Apache-2.0
#pragma once
// Nodes of a checked program as C++ expressions, in the names of the prelude: b12 is node 12 as a number, v12 as
// sixteen values.
#include <map>
#include <string>

#include "lang/front/checked.h"

namespace tithe::lang {

class NodeText {
 public:
  // of_sixteen: for the prelude of vectors, which has forms of its own for some operators.
  explicit NodeText(const Checked& program, bool of_sixteen = false)
      : program_(program), of_sixteen_(of_sixteen) {}

  const Node& node(int k) const { return program_.nodes[static_cast<std::size_t>(k)]; }
  // The node where a number is wanted, and where sixteen values are.
  std::string number(int k) const;
  std::string values(int k) const;
  std::string number_type(int k) const;
  std::string value_type(int k) const;
  // Numbers that are known before the blocks and wanted as sixteen values: "const U k0 = kept(splat(127U));" once for
  // each; values() has their names from then on.
  void forget_kept() { kept_.clear(); }
  std::string keep(int k);
  // The text that computes the node of its operands; not of inputs, draws and reductions.
  std::string expression(int k) const;
  // The largest e for which the node, if finite, is always a multiple of 2^e; or far below where that is not known.
  int least_unit(int k) const;
  // The node that a conversion to whole numbers within this range is of: where a clamp does no more than it does, the
  // clamp's value.
  int before_clamp(int k, Range range) const;
  // "const F v12 = add(v3, splat(b7));", or the same of numbers
  std::string definition(int k) const;

 private:
  std::string conversion(int k, std::string of) const;
  const Checked& program_;
  const bool of_sixteen_;
  std::map<std::string, std::string> kept_;
};

}  // namespace tithe::lang
