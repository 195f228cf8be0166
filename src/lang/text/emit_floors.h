// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole numbers that a program makes of doubles, as u32(min(floor(f64(x - low) / gap + u), top)): they are computed in
// floats, with a bound on how far these are off. Only where two numbers lie within the bound are they computed in
// doubles. The number is the same.
//
// A float s that stands for the double d: |s - d| <= units 2^-24 |q| + 2^-24 |s|, where q is s before a last exact
// summand of at most `more`, so |q| <= |s| + more. Each rounding to a float is one unit: half an ulp is less than 2^-24
// of what is rounded. The bound that is used is twice that and more, which covers the roundings of the doubles. A value
// beyond the ends that the number is held within may be off by more, as the bound is a part of it: it stays beyond.
#include <optional>
#include <string>
#include <vector>

#include "lang/front/passes.h"
#include "lang/text/emit_nodes.h"

namespace tithe::lang {

struct FloorText {
  int root = kNone;                 // the whole number
  Nodes inside;                     // what it needs above the leaves, in order, without the root
  Nodes alone;                      // of these what nothing else reads: doubles, but for conversions
  Nodes leaves;                     // of each value: what these read
  std::vector<std::string> before;  // lines in front of the loop
  std::string sum;                  // s12, which is rounded down, in floats, where 12 is the root
  std::string whole;                // the root, where s12 is clear of whole numbers
};

// The text of a node that is such a number; `nodes` are all value nodes of the loop, `kept` those that something else
// reads, too.
std::optional<FloorText> floor_text(const Checked& program, const NodeText& text, int root,
                                    const Nodes& nodes, const Nodes& kept);

}  // namespace tithe::lang
