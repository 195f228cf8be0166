// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of all generated functions: text lines, nodes defined once in each scope, loops over sixteen
// values, and reductions.
#include <fmt/format.h>

#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "lang/front/passes.h"
#include "lang/text/emit_floors.h"
#include "lang/text/emit_nodes.h"

namespace tithe::lang {

class PassText {
 public:
  // of_sixteen: see NodeText.
  PassText(const Checked& program, const Schedule& schedule, bool of_sixteen = true)
      : program_(program),
        schedule_(schedule),
        of_sixteen_(of_sixteen),
        text_(program, of_sixteen),
        defined_(program.nodes.size()) {}

 protected:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    out_.append(2 * depth_, ' ');
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  // "head {" and the closing brace.
  void open(const std::string& head);
  void close(const char* tail = "}");
  const Node& node(int k) const { return text_.node(k); }
  bool decodes() const { return program_.result != kNone; }
  // True if encode needs a last loop over the values: not in a phase that sends only the results of its passes.
  bool sends_each() const;
  bool is_sum(int k) const { return node(k).op == Op::kSum || node(k).op == Op::kMean; }
  bool in_shape(int k) const {
    return is_sum(k) || node(k).op == Op::kReduce;
  }  // in the order of base/fold.h
  // True if the item has a `where` for each value.
  bool of_values(const Item& item) const {
    return item.where != kNone && node(item.where).stage == Stage::kValue;
  }
  // The number of node k from the bits in a payload.
  std::string from_bits(int k, const std::string& bits) const;
  // The function of a kReduce: f12.
  void function_of(int k, const char* attribute = "");

  // ---- Nodes
  void define(int k);
  void define_all(const Nodes& nodes);
  void known(int k) { defined_[static_cast<std::size_t>(k)] = true; }
  void plan();
  // The previous phase's numbers (c3 is item 3), and the nodes computed from them once per call.
  void context();
  // Keeps the plan numbers that these nodes read in registers.
  void keep_numbers(const Nodes& of);
  // The declarations before a loop over these nodes. Random words that two runs of 16 share are declared by
  // open_body().
  void before_loop(const Nodes& nodes);
  // Selects the nodes of a loop to be computed in floats first; `kept` are those with users outside the loop. Call
  // after before_loop().
  void floors_before_loop(const Nodes& nodes, const Nodes& kept);
  void end_of_floors();

  // ---- Loops
  // Opens the loop over blocks and defines `first`, `len` and the block's `number`. If a parameter sets the block
  // length, the length is an argument of the call, so that all lengths share one text.
  bool block_is_reported() const;
  std::string block_length() const {
    return block_is_reported() ? std::string("block_length") : std::to_string(program_.block);
  }
  void open_blocks();
  void close_blocks();
  // A loop body for sixteen or, at the end, fewer values, and the call that runs it over [from, to).
  void open_body();
  void close_body();
  void run_body(const char* from, const char* to, const std::string& how = "true");
  // Blocks are processed in runs of 32 where values need random draws, so that two runs of 16 share a random word.
  // For a single block of all values this would add a third to the compile time without being faster.
  bool in_pairs() const { return program_.block != 0 && program_.block % 32 == 0; }
  // True if the largest magnitude among the inputs bounds this node.
  bool reaches_peak(int k) const;
  bool plain_largest(int k) const;
  // One pass over a block; a block's first pass also determines whether all values are finite.
  void pass(const Pass& of, bool first);

  const Checked& program_;
  const Schedule& schedule_;
  const bool of_sixteen_;
  NodeText text_;
  bool plain_loop_ = false;  // the loop has a copy for blocks of common sizes
  bool found_peak_ = false;  // `peak` holds the largest input magnitude
  bool draws_own_ = false;   // the loop is over the values of a GPU thread (runtime/prelude_cuda_tiles.h)
  std::string out_;
  std::vector<bool> defined_, outer_;

 private:
  std::map<int, FloorText> floors_;
  std::vector<bool> within_floors_;
  void define_floor(const FloorText& of);
  std::string draw(int k, unsigned bits) const;
  std::string agreed(int k) const;
  bool keeps_draws(unsigned bits) const { return in_body_ && in_pairs() && bits <= 23; }
  bool in_pieces() const;
  bool is_peak(int k) const;
  Nodes sums_of_all(const Pass& of) const;
  // A condition without its leading `not`s, and whether their number is odd.
  std::pair<int, bool> condition(int k) const;
  bool end_of_selected(int k) const;
  bool by_one(int k) const;
  // Tables: declaration, update in a pass, completion, and lookup.
  void table(int k);
  void add_to_table(int k, const std::string& of, const std::string& which);
  void finish_table(int k);
  std::string entry(int k) const;
  void accumulator(int k);
  void accumulate(int k);
  void finish(int k);

  std::vector<int> counted_;     // conditions with a counter: n12
  bool first_of_block_ = false;  // the pass that checks whether all values are finite
  std::size_t depth_ = 0;
  bool in_body_ = false;
};

}  // namespace tithe::lang
