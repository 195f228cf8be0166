// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interpreter's state during one call: the registers, and the position in the values and in the payload.
// interpreter.cc processes one block after the other with it.
#include <algorithm>
#include <bit>
#include <span>
#include <string>

#include "codec/shared/int_sum/int_fields.h"
#include "codec/shared/sparse/select.h"
#include "lang/run/call_memory.h"
#include "lang/run/codings.h"
#include "lang/run/interpreter.h"
#include "lang/run/reduce.h"

namespace tithe::lang {

// The memory of a walk, taken from the call's memory.
struct WalkMemory {
  WalkMemory(CallMemory& memory, const Combination& of, const Settings& settings, std::size_t n);

  std::uint8_t* registers;
  std::uint8_t* numbers = nullptr;  // for encode_together: per number, one element per block
  Reduction* found;                 // the reductions of the present pass
  Reduction* looked;                // the reductions over all blocks
  std::uint64_t* lookup_values;     // per such reduction kRun numbers, one per block
  std::uint32_t** codes;            // per item: a block's codes, if their size depends on the values
  std::uint32_t** widths;
  std::uint64_t* lengths;  // per item: bytes so far of the blocks that share a table entry
  // Only for pairs; a threshold's sample is also sorted in `picked`.
  std::uint32_t* picked = nullptr;
  std::uint32_t* slots = nullptr;
  float* values = nullptr;
};

class Walk {
 public:
  // Keeps using `memory`, at most walk_bytes() of it, until it is destroyed.
  Walk(const Combination& of, std::string_view name, const Call& call, std::size_t n, CallMemory& memory);

  // Reads the previous phase's items, which must have been checked. Called once, before all other functions.
  void begin(const Combination& of, const Call& call, const int_fields::Kernels& with);
  // The fields of a sum: where to read or write them, and with which kernels.
  void begin_sum(int_fields::Head head, const std::uint8_t* in, std::uint8_t* out,
                 const int_fields::Kernels& with);

  // Calls of(first, len) for each block in order; stops at the first Status that is not ok.
  template <typename Of>
  Status blocks(const Of& of) {
    const std::size_t n = inputs_.n, length = program_.block == 0 ? n : program_.block;
    for (std::size_t first = 0; first < std::max<std::size_t>(n, program_.block == 0 ? 1 : 0);
         first += std::max<std::size_t>(length, 1)) {
      const std::size_t len = std::min(length, n - first);
      inputs_.length = len;
      if (before_ != nullptr) begin_block(first, len);
      TITHE_TRY(of(first, len));
    }
    return {};
  }

  // ---- Encode
  // Runs the passes over all blocks, if the program has them, and writes the items that are sent once.
  Status encode_head(const EncodeInput& in, std::uint8_t* payload, bool& finite);
  // Writes a block's items to `to` and its table entries; returns the number of bytes at `to`.
  Result<std::size_t> encode_block(const EncodeInput& in, std::size_t first, std::size_t len,
                                   std::uint8_t* payload, std::uint8_t* to, bool& finite);
  // Encodes several blocks that are much shorter than a run, starting at `first`; returns their number. Returns 0 and
  // writes no residual if too few blocks remain, or if one of them needs encode_block.
  std::size_t encode_together(const EncodeInput& in, std::size_t first, std::uint8_t* payload,
                              std::uint8_t* to);
  Encoded encode_pairs(const EncodeInput& in, const sparse::Form& form, const PairsLimits& limits, Bytes out);
  // The indices that encode_pairs would send.
  std::span<std::uint32_t> pick(const EncodeInput& in, const PairsLimits& limits);

  // ---- Check and decode
  Status check_head(ByteView payload);
  // Checks the block at `at`; returns its number of bytes.
  Result<std::size_t> check_block(ByteView payload, std::size_t at, std::size_t first, std::size_t len);
  // Reads all numbers of a checked payload of variable size: those of item k to to[k] (lang/run/context.h), unless
  // nullptr.
  void read_all(ByteView payload, std::span<std::uint32_t* const> to);
  // For a checked payload. Calls add(at, count, values) for each run of the block's values.
  template <typename Add>
  std::size_t decode_block(ByteView payload, std::size_t at, std::size_t first, std::size_t len,
                           const Add& add) {
    const std::size_t bytes = *read_block(payload, at, first, len, schedule_.read);
    runs(first, len, [&](std::size_t from, std::size_t count) {
      read_run(payload.data() + at, len, from - first, count, schedule_.read);
      add(from, count, registers_.of<float>(program_.result));
    });
    return bytes;
  }

 private:
  // Calls of(at, count) for each run of a block.
  template <typename Of>
  void runs(std::size_t first, std::size_t len, const Of& of) {
    for (std::size_t at = first; at < first + len; at += kRun) {
      inputs_.first = at;
      inputs_.at = at - first;
      if (before_ != nullptr) begin_run(std::min(kRun, first + len - at));
      of(at, std::min(kRun, first + len - at));
    }
  }

  void begin_block(std::size_t first, std::size_t len);
  void begin_run(std::size_t count);
  const std::uint32_t* sent(const Item& item) const;

  void take(const EncodeInput& in, std::size_t at, std::size_t count);
  bool leave(const EncodeInput& in, std::size_t at, std::size_t count) const;
  std::size_t nothing(const EncodeInput& in, std::size_t first, std::size_t len, std::uint8_t* to,
                      bool& finite);
  bool find(const std::vector<Pass>& passes, const EncodeInput& in, std::size_t first, std::size_t len,
            bool looks);
  bool look(const EncodeInput& in);
  std::size_t keep_last(const PairsLimits& limits, std::span<std::uint32_t> picked) const;
  void threshold(const EncodeInput& in, int k) const;

  // Parts of encode_together: numbers of all blocks, each repeated for every value of its block where values read it.
  void find_numbers(const Nodes& nodes);
  void spread(int k) const;
  void find_together(const Pass& pass);
  bool holds_together(Stage of) const;
  bool send_together(const EncodeInput& in, std::size_t first);
  void write_together(std::size_t first, std::uint8_t* payload, std::uint8_t* to) const;

  void send_numbers(std::uint8_t* payload, std::uint8_t* to, std::size_t first, std::size_t len,
                    bool& finite);
  void send_array(std::size_t k, std::uint8_t* to, std::size_t len, std::size_t at, std::size_t count);
  std::size_t send_codes(std::uint8_t* to, std::size_t len);
  void add_lengths(std::uint8_t* payload, std::size_t first, std::size_t bytes) const;

  Result<std::size_t> read_block(ByteView payload, std::size_t at, std::size_t first, std::size_t len,
                                 const Pass& pass);
  Result<std::size_t> read_codes(ByteView block, std::size_t first, std::size_t len);
  void find_widths(std::size_t k, std::size_t first, std::size_t len);
  void read_run(const std::uint8_t* block, std::size_t len, std::size_t at, std::size_t count,
                const Pass& pass);
  Status receive_number(const Item& item, std::uint32_t bits, std::size_t first);
  bool lengths_hold(ByteView payload, std::size_t first, std::size_t len, std::size_t bytes);

  void receive(const Item& item, const std::uint32_t* values, std::size_t count);
  bool reads_values() const;
  Status holds(Stage of, std::size_t count, Code code, std::size_t first) const;
  // The offset of a table's entry for the block that starts at `first`.
  std::size_t entry(const Item& item, std::size_t first) const;

  std::size_t number_of(std::size_t first) const { return program_.block == 0 ? 0 : first / program_.block; }
  Status corrupt(const std::string& what) const;
  Status other(const Item& item) const { return corrupt("'" + item.name + "' has another value here"); }

  const Checked& program_;
  const Schedule& schedule_;
  std::string_view name_;
  CallMemory& memory_;
  WalkMemory own_;
  Registers registers_;
  std::size_t together_;  // blocks encoded together; 0: one at a time
  Registers numbers_;
  Given inputs_;
  bool varies_;
  const float* current_values_ = nullptr;
  float unread_[kRun];      // input values, if the program reads none
  Walk* before_ = nullptr;  // reads the context in step with this walk
  ByteView context_;
  std::size_t context_at_ = 0, context_next_ = 0;  // offset of the present block and of the next one
  unsigned max_ranks_;                             // in a sum, or in a maximum before a sum
  unsigned field_bits_ = 0;
  const int_fields::Kernels* fields_ = &int_fields::kReference;
  const std::uint8_t* fields_in_ = nullptr;
  std::uint8_t* fields_out_ = nullptr;
};

// For a walk over n values, and the walk over the previous phase's payload.
std::size_t walk_bytes(const Combination& of, const Settings& settings, std::size_t n);

}  // namespace tithe::lang
