// SPDX-License-Identifier: Apache-2.0
#pragma once
// Evaluates integers that a program computes in doubles, such as u32(min(floor(f64(x - low) / gap + u), top)), in
// floats with an error bound. The doubles are evaluated only if an integer lies within the error bound of the float;
// so the result is always that of the doubles.
//
// A float s that approximates the double d satisfies |s - d| <= units 2^-24 |q| + 2^-24 |s|, where q is s before a
// last exact summand of at most `more`, so |q| <= |s| + more. Each rounding to float counts as one unit: half an ulp
// is less than 2^-24 of the rounded value. The generated code uses more than twice that bound, which covers the
// roundings of the doubles. Values outside the clamped range may have a larger error, but stay outside it, since the
// error is a fraction of the value.
#include <optional>
#include <string>
#include <vector>

#include "lang/front/passes.h"
#include "lang/text/emit_nodes.h"

namespace tithe::lang {

struct FloorText {
  int root = kNone;                 // the integer node
  Nodes inside;                     // the nodes between leaves and root, in order, without the root
  Nodes alone;                      // the nodes of these that have no other user: doubles and conversions
  Nodes leaves;                     // the value-stage operands of these nodes
  std::vector<std::string> before;  // declarations before the loop
  std::string sum;                  // the float expression to be rounded down, named s<root>
  std::string whole;                // the root, if s<root> is not close to an integer
};

// The text of a node of this form. `nodes` are all value nodes of the loop, `kept` those with users outside the loop.
std::optional<FloorText> floor_text(const Checked& program, const NodeText& text, int root,
                                    const Nodes& nodes, const Nodes& kept);

}  // namespace tithe::lang
