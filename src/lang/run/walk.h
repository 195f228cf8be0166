// SPDX-License-Identifier: Apache-2.0
#pragma once
// One call of a codec at work in the interpreter: a program's registers, and where it is among the values and in the
// payload. interpreter.cc asks it for one block after the other.
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

// A walk's pieces of a call's memory.
struct WalkMemory {
  WalkMemory(CallMemory& memory, const Combination& of, const Settings& settings, std::size_t n);

  std::uint8_t* registers;
  std::uint8_t* numbers = nullptr;  // of encode_together: of each number as many as there are blocks
  Reduction* found;                 // of a pass at work
  Reduction* looked;                // of all blocks
  std::uint64_t* looked_numbers;    // kRun for each of these: one of each block
  std::uint32_t** codes;            // per item, of a block, where its bytes depend on them
  std::uint32_t** widths;
  std::uint64_t* lengths;  // per item: bytes of the blocks that this entry of its table is about
  // For pairs alone. A threshold's sample is sorted in `picked` too.
  std::uint32_t* picked = nullptr;
  std::uint32_t* slots = nullptr;
  float* values = nullptr;
};

class Walk {
 public:
  // `memory` goes on to be used until the walk is over: walk_bytes() of it at the most.
  Walk(const Combination& of, std::string_view name, const Call& call, std::size_t n, CallMemory& memory);

  // Reads what the phase in front of this one agreed on, which has passed its check. Once, before all else.
  void begin(const Combination& of, const Call& call, const int_fields::Kernels& with);
  // A sum's fields: where they are read or written, and by what.
  void begin_sum(int_fields::Head head, const std::uint8_t* in, std::uint8_t* out,
                 const int_fields::Kernels& with);

  // Calls of(first, len) for each block, in order; stops at the first Status that is not ok.
  template <typename Of>
  Status blocks(const Of& of) {
    const std::size_t n = given_.n, length = program_.block == 0 ? n : program_.block;
    for (std::size_t first = 0; first < std::max<std::size_t>(n, program_.block == 0 ? 1 : 0);
         first += std::max<std::size_t>(length, 1)) {
      const std::size_t len = std::min(length, n - first);
      given_.length = len;
      if (before_ != nullptr) begin_block(first, len);
      TITHE_TRY(of(first, len));
    }
    return {};
  }

  // ---- Encode
  // Looks at all blocks, where the program does, and writes what is sent once.
  Status encode_head(const EncodeInput& in, std::uint8_t* payload, bool& finite);
  // Writes a block's items to `to` and its numbers to the tables: the bytes of the block.
  Result<std::size_t> encode_block(const EncodeInput& in, std::size_t first, std::size_t len,
                                   std::uint8_t* payload, std::uint8_t* to, bool& finite);
  // Several blocks that are much shorter than a run, from `first` on: how many; 0, and nothing is left, if there are
  // not so many, or if one of them has to be looked at alone.
  std::size_t encode_together(const EncodeInput& in, std::size_t first, std::uint8_t* payload,
                              std::uint8_t* to);
  Encoded encode_pairs(const EncodeInput& in, const sparse::Form& form, const PairsLimits& limits, Bytes out);
  // The indices that encode_pairs would send.
  std::span<std::uint32_t> pick(const EncodeInput& in, const PairsLimits& limits);

  // ---- Check and decode
  Status check_head(ByteView payload);
  // The bytes of a block that begins at `at`.
  Result<std::size_t> check_block(ByteView payload, std::size_t at, std::size_t first, std::size_t len);
  // All numbers of a payload that was checked and varies: of item k to[k] (lang/run/context.h), which may be nullptr.
  void read_all(ByteView payload, std::span<std::uint32_t* const> to);
  // A payload that was checked. add(at, count, values) gets the block's values.
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
      given_.first = at;
      given_.at = at - first;
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

  // Parts of encode_together: numbers of all blocks, and each as often as its block has values, where values read it.
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
  bool looks_at_values() const;
  Status holds(Stage of, std::size_t count, Code code, std::size_t first) const;
  // Where a table's entry for the block that begins at `first` stands.
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
  std::size_t together_;  // blocks that are encoded at a time; 0: each alone
  Registers numbers_;
  Given given_;
  bool varies_;
  const float* taken_now_ = nullptr;
  float unread_[kRun];      // where the program does not read what is taken
  Walk* before_ = nullptr;  // reads the context, beside this one
  ByteView context_;
  std::size_t context_at_ = 0, context_next_ = 0;  // where its block begins, and the next one
  unsigned most_ranks_;                            // of a sum, or of maxima in front of one
  unsigned field_bits_ = 0;
  const int_fields::Kernels* fields_ = &int_fields::kReference;
  const std::uint8_t* fields_in_ = nullptr;
  std::uint8_t* fields_out_ = nullptr;
};

// For a walk of n values, and for one of the phase in front of it that reads what was agreed on.
std::size_t walk_bytes(const Combination& of, const Settings& settings, std::size_t n);

}  // namespace tithe::lang
