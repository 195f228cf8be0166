// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of kernels of blocks and kernels of lists: phases, kernels, and finding what a pass finds.
#include "lang/text/emit_passes.h"

namespace tithe::lang {

// The size of a code where threads share it.
inline unsigned code_bytes(const Item& item) { return item.bits <= 8 ? 1 : item.bits <= 16 ? 2 : 4; }
// Bytes of a block's codes, or of a run's of a long one, where threads share them.
std::size_t shared_bytes(const Checked& program);

class CudaText : protected PassText {
 public:
  CudaText(const Checked& program, const Schedule& schedule)
      : PassText(program, schedule, false), passes_(&schedule.passes) {}

 protected:
  // The work of a block of threads: a block of the program; or, of a long one, a piece, in which it finds something, or
  // a run, which it sends.
  enum class Unit { kBlocks, kPieces, kRuns };

  std::size_t block() const { return program_.sends_pairs ? 0 : program_.block; }
  // Blocks are longer than one block of threads works on.
  bool is_long() const { return block() == 0 || block() > kPiece; }
  // The threads that work on a block of the program, or on a run of a long one; as many such groups as fit share a
  // block of threads.
  std::size_t group() const;
  bool is_sum(int k) const { return node(k).op == Op::kSum || node(k).op == Op::kMean; }
  bool is_end(int k) const { return node(k).op == Op::kLargest || node(k).op == Op::kSmallest; }
  bool is_fold(int k) const { return node(k).op == Op::kReduce; }
  bool counts(int k) const {
    return !is_end(k) && !is_fold(k) && (!is_sum(k) || (node(k).op == Op::kMean && node(k).in[1] != kNone));
  }
  const std::vector<Pass>& passes() const { return *passes_; }
  static bool by_sample(const Node& n) { return n.op == Op::kThreshold; }

  // Found, Part and Lanes; the numbers of blocks, pieces and runs.
  void types();
  // A function of one thread; what the first `found` passes have found is known in it.
  void open_phase(const std::string& name, Unit unit, std::size_t found, const std::string& also = "");
  void one_value();  // what the loops of lang/text/emit_passes.h have besides
  void take();
  // Phases of a pass, and the kernels of a long one.
  void find(std::size_t p);
  void kernel(const std::string& name, const char* common, const std::vector<std::string>& phases);
  // The same of groups, one for each block or run; what launches it.
  void group_kernel(const std::string& name, const std::vector<std::string>& phases);
  void launch_groups(const std::string& name);
  // Around a loop over values that take() and unless_finite() are in: one store for all values that are not finite.
  void open_values(const std::string& loop);
  void close_values();
  void unless_finite(const std::string& value);
  // Statements of the host's functions: what is found within the scratch, and the passes.
  void place_found();
  void launch_pass(std::size_t p);
  std::string found_of(const std::string& b) const;

  // ---- Items
  template <typename Of>
  void each(const Of& of) const {  // but those that are sent once
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (!program_.items[k].once) of(k, program_.items[k]);
  }
  template <typename Of>
  void each_once(const Of& of) const {  // and where it stands
    std::size_t at = program_.counts ? kCountBytes : 0;
    for (const Item& item : program_.items) {
      if (!item.once) continue;
      of(at, item);
      at += item_bytes(item, 1);
    }
  }
  std::string array_bytes(const Item& item) const;
  // A sent item as the receiver sees it: of a number 'b', of a value 'v'.
  void receive_as(const Item& item, const std::string& bits, char of);
  // The conditions (`where`) on a block's numbers, or on values.
  void hold(bool values);

  // Phases that find what the passes over a short block do.
  std::vector<std::string> finding_;
  // The passes that find() is about, and what their phases' names begin with.
  const std::vector<Pass>* passes_;
  std::string prefix_ = {};
  // The memory that a phase's threads share.
  std::string shared_ = "Shared";

 private:
  bool is_shaped(const Pass& pass) const;
  void rows(std::size_t p);
  void look(std::size_t p);
  void add_value(int k);
  void end_lanes(std::size_t p, const char* to, const std::string& lanes, const char* by);
  void fold(std::size_t p);
  void store_found(std::size_t p);
  std::string lanes_of(std::size_t p) const;
  // A variable of a lane, and what it begins with.
  void begin_lane(int k);
  void end_lane(int k);
  // The functions by which a pass reduces.
  void functions_of(const Pass& pass);
  bool finds(std::size_t p) const;
};

}  // namespace tithe::lang
