// SPDX-License-Identifier: Apache-2.0
#pragma once
// The common part of all generated kernels: phases, kernels, and reductions.
//
//   reductions   a lane has the partial result of one thread, a Part that of a block or of a piece of kPiece values,
//                and Found the results of a block. Sums and folds have sixteen lanes, in the order of base/fold.h. All
//                other reductions use all threads of a group; between equal values the first position decides
#include "lang/text/emit_passes.h"

namespace tithe::lang {

// The element size of codes in shared memory.
inline unsigned code_bytes(const Item& item) { return item.bits <= 8 ? 1 : item.bits <= 16 ? 2 : 4; }
// Bytes of the codes of a block, or of a run of a long block, in shared memory.
std::size_t shared_bytes(const Checked& program);

class CudaText : protected PassText {
 public:
  CudaText(const Checked& program, const Schedule& schedule)
      : PassText(program, schedule, false), passes_(&schedule.passes) {}

 protected:
  static constexpr std::size_t kThreads = 128, kLanes = 16;  // as in prelude_cuda_types.h
  // The work of a thread block: a block of the program; or, for long blocks, a piece in a reduction or a run in
  // sending.
  enum class Unit { kBlocks, kPieces, kRuns };

  std::size_t block() const { return program_.sends_pairs ? 0 : program_.block; }
  // A block has more values than one thread block processes.
  bool is_long() const { return block() == 0 || block() > longest_; }
  // The number of threads that work on a block of the program, or on a run of a long block; as many groups as fit
  // share a thread block.
  std::size_t group() const;
  bool is_end(int k) const { return node(k).op == Op::kLargest || node(k).op == Op::kSmallest; }
  // Several values may be equal, and the first one is the result: its position is compared.
  bool has_place(int k) const { return is_end(k) && !plain_largest(k); }
  bool is_fold(int k) const { return node(k).op == Op::kReduce; }
  bool counts(int k) const {
    return !is_end(k) && !is_fold(k) && (!is_sum(k) || (node(k).op == Op::kMean && node(k).in[1] != kNone));
  }
  const std::vector<Pass>& passes() const { return *passes_; }
  static bool by_sample(const Node& n) { return n.op == Op::kThreshold; }

  Nodes reductions() const;
  // The types Found, Part and Lanes, and the numbers of blocks, pieces and runs.
  void types();
  // Opens a per-thread function in which the results of the first `found` passes are defined.
  void open_phase(const std::string& name, Unit unit, std::size_t found, const std::string& also = "");
  void take();
  // The phases of a pass, and the kernels of a pass over long blocks.
  void find(std::size_t p);
  void kernel(const std::string& name, const char* common, const std::vector<std::string>& phases);
  // Likewise with one group per block or run; and the statement that launches it.
  void group_kernel(const std::string& name, const std::vector<std::string>& phases);
  void launch_groups(const std::string& name);
  // Around a loop over values that uses take() and unless_finite(): all non-finite values are reported with one
  // store.
  void open_values(const std::string& loop);
  void close_values();
  void unless_finite(const std::string& value);
  // Host functions: the one that returns the size of the scratch; and the beginning of one that launches kernels.
  void scratch_size();
  void open_host(const char* name);
  // Statements of host functions: the reductions' memory in the scratch, and the passes.
  void place_found();
  void launch_pass(std::size_t p);
  std::string found_of(const std::string& b) const;

  // ---- Items
  template <typename Of>
  void each(const Of& of) const {  // except the items sent once
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (!program_.items[k].once) of(k, program_.items[k]);
  }
  template <typename Of>
  void each_once(const Of& of) const {  // with the offset
    std::size_t at = program_.counts ? kCountBytes : 0;
    for (const Item& item : program_.items) {
      if (!item.once) continue;
      of(at, item);
      at += item_bytes(item, 1);
    }
  }
  std::string array_bytes(const Item& item) const;
  // The receiver's view of an item: of a number 'b', of a value 'v'.
  void receive_as(const Item& item, const std::string& bits, char of);
  // The `where` conditions on a block's numbers, or on values.
  void hold(bool values);

  // The phases that compute the passes of a short block.
  std::vector<std::string> finding_;
  // The passes that find() generates, and the prefix of their phases' names.
  const std::vector<Pass>* passes_;
  std::string prefix_ = {};
  // The kernels that send and decode work on tiles (runtime/prelude_cuda_tiles.h).
  bool in_tiles_ = false;
  std::size_t longest_ = kPiece;  // block for one group of threads
  // The type of the shared memory of a phase.
  std::string shared_ = "Shared";

  // A member of a partial result.
  void partial(int k, const std::string& count);
  void rows_of(const Nodes& reduce, const std::string& lanes);
  bool is_shaped(const Pass& pass) const;
  void rows(std::size_t p);
  void look(std::size_t p);
  void add_value(int k);
  void end_lanes(std::size_t p, const std::string& lanes, const char* by);
  void fold(std::size_t p);
  void store_found(std::size_t p);  // from `part`
  std::string lanes_of(std::size_t p) const;
  // The accumulator of a lane and its initial value.
  void begin_lane(int k);
  void end_lane(int k);
  // The functions of the reductions of a pass.
  void functions_of(const Pass& pass);
  bool finds(std::size_t p) const;
};

}  // namespace tithe::lang
