// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of a generated program's functions: lines, nodes that are defined once where they are visible, loops
// over sixteen values, and what a pass finds.
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
  // of_sixteen: as NodeText has it.
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
  // "head {" and what closes it
  void open(const std::string& head);
  void close(const char* tail = "}");
  const Node& node(int k) const { return text_.node(k); }
  // The function of a reduction by a function of the program: f12.
  void function_of(int k, const char* attribute = "");

  // ---- Nodes
  void define(int k);
  void define_all(const Nodes& nodes);
  void known(int k) { defined_[static_cast<std::size_t>(k)] = true; }
  void plan();
  // The numbers that the phase in front agreed on: c3 where item 3 stands, and what follows of it once for a call.
  void context();
  // The numbers that these nodes read of the plan.
  void keep_numbers(const Nodes& of);
  // The lines in front of a loop over these nodes. Draws that two runs of 16 share are kept in open_body()'s loops.
  void before_loop(const Nodes& nodes);
  // The nodes of a loop that are computed in floats first; `kept` are those that something else reads, too. Behind
  // before_loop().
  void floors_before_loop(const Nodes& nodes, const Nodes& kept);
  void end_of_floors();

  // ---- Loops
  // Over blocks: `first` and `len`, and the block's `number`. A length that a parameter says is told with the call, so
  // that one text serves other lengths: nothing is known of it but what pairs and pieces ask.
  bool block_is_told() const;
  std::string block_length() const {
    return block_is_told() ? std::string("block_length") : std::to_string(program_.block);
  }
  void open_blocks();
  void close_blocks();
  // A body for sixteen values or, at the end, fewer, and what runs it over [from, to).
  void open_body();
  void close_body();
  void run_body(const char* from, const char* to, const std::string& how = "true");
  // Runs of 32 begin where values are drawn for, so that two runs of 16 share a word.
  // Over all values it would cost a third of the compile time, and gain nothing.
  bool in_pairs() const { return program_.block != 0 && program_.block % 32 == 0; }
  // No magnitude that is taken is above it.
  bool reaches_peak(int k) const;
  // One pass over a block up to what it finds; the first one says whether all values are finite.
  void pass(const Pass& of, bool first);

  const Checked& program_;
  const Schedule& schedule_;
  const bool of_sixteen_;
  NodeText text_;
  bool plain_loop_ = false;  // a loop that goes over blocks of the usual sizes apart from others
  bool found_peak_ = false;  // the first pass has found the largest magnitude of all that is taken, in `peak`
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
  bool plain_largest(int k) const;
  bool is_peak(int k) const;
  Nodes sums_of_all(const Pass& of) const;
  // A condition without the `not`s in front of it, and whether they are an odd number.
  std::pair<int, bool> condition(int k) const;
  bool end_of_taken(int k) const;
  bool by_one(int k) const;
  bool sums(int k) const { return node(k).op == Op::kSum || node(k).op == Op::kMean; }
  bool in_shape(int k) const { return sums(k) || node(k).op == Op::kReduce; }
  // Tables: where they stand, what a pass adds to them, their end, and what is read of them.
  void table(int k);
  void add_to_table(int k, const std::string& of, const std::string& which);
  void finish_table(int k);
  std::string entry(int k) const;
  void accumulator(int k);
  void accumulate(int k);
  void finish(int k);

  std::vector<int> counted_;     // conditions of the pass whose values are counted: n12
  bool first_of_block_ = false;  // the pass that finds out whether all values are finite
  std::size_t depth_ = 0;
  bool in_body_ = false;
};

}  // namespace tithe::lang
