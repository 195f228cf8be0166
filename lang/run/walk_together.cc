// SPDX-License-Identifier: Apache-2.0
// Encodes several short blocks in one run: each node is computed for a whole run of values, so the fixed cost per
// node is paid once for several blocks. A number of a block becomes an array with one element per block, and is
// repeated for each value where values read it.
//
// In special cases (a value that is not finite, a `where` that does not hold) encode_block takes over and reports the
// error. Therefore nothing is written to the residual until all values and conditions were checked.
#include <algorithm>

#include "base/finite.h"
#include "lang/run/fields.h"
#include "lang/run/walk.h"

namespace tithe::lang {

std::size_t Walk::encode_together(const EncodeInput& in, std::size_t first, std::uint8_t* payload,
                                  std::uint8_t* to) {
  const std::size_t count = together_ * program_.block;
  if (together_ == 0 || first + count > inputs_.n) return 0;
  if (first == 0) {
    numbers_.compute_once(schedule_.plan, inputs_, false);
    for (const int k : schedule_.plan) {
      numbers_.fill(k, together_);
      if (schedule_.filled[static_cast<std::size_t>(k)]) registers_.fill(k, kRun);
    }
  }
  inputs_.first = first;
  inputs_.at = 0;
  take(in, first, count);
  if (!all_finite({current_values_, count})) return 0;
  for (const Pass& pass : schedule_.passes) find_together(pass);
  if (!send_together(in, first)) return 0;
  write_together(first, payload, to);
  return together_;
}

void Walk::find_numbers(const Nodes& nodes) {
  for (const int k : nodes) {
    numbers_.compute_values({&k, 1}, inputs_, together_);
    if (registers_.node(k).op == Op::kLength) numbers_.fill(k, together_);
    spread(k);
  }
}

void Walk::spread(int k) const {
  if (!schedule_.filled[static_cast<std::size_t>(k)]) return;
  by_type(registers_.node(k).type, [&]<typename T>(T) {
    const T* from = numbers_.of<T>(k);
    T* to = registers_.of<T>(k);
    for (std::size_t b = 0; b < together_; ++b) std::fill_n(to + b * program_.block, program_.block, from[b]);
  });
}

void Walk::find_together(const Pass& pass) {
  const std::size_t block = program_.block;
  find_numbers(pass.block);
  registers_.compute_values(pass.value, inputs_, together_ * block);
  for (const int k : pass.reduce) {
    for (std::size_t b = 0; b < together_; ++b) {
      Reduction one;
      one.add(registers_, k, block, b * block);
      one.finish(registers_, k);
      by_type(registers_.node(k).type, [&]<typename T>(T) { numbers_.of<T>(k)[b] = *registers_.of<T>(k); });
    }
    spread(k);
  }
}

bool Walk::holds_together(Stage of) const {
  const bool values = of == Stage::kValue;
  return std::all_of(program_.items.begin(), program_.items.end(), [&](const Item& item) {
    if (item.where == kNone || (registers_.node(item.where).stage == Stage::kValue) != values) return true;
    const std::size_t count = values ? together_ * program_.block : together_;
    const std::uint32_t* truth = (values ? registers_ : numbers_).of<std::uint32_t>(item.where);
    return std::find(truth, truth + count, 0U) == truth + count;
  });
}

// Computes the sent values and residuals. Returns false, before any residual is written, in a special case.
bool Walk::send_together(const EncodeInput& in, std::size_t first) {
  const std::size_t count = together_ * program_.block;
  find_numbers(schedule_.send.block);
  for (const Item& item : program_.items) {
    if (item.once || item.array) continue;
    const std::uint32_t* sent = numbers_.of<std::uint32_t>(item.value);
    if (item.is_float && !all_finite({numbers_.of<float>(item.value), together_})) return false;
    if (item.input == kNone) continue;
    std::copy_n(sent, together_, numbers_.of<std::uint32_t>(item.input));
    spread(item.input);
  }
  find_numbers(schedule_.read.block);
  if (!holds_together(Stage::kBlock)) return false;
  registers_.compute_values(schedule_.send.value, inputs_, count);
  for (const Item& item : program_.items) {
    if (!item.array) continue;
    if (item.is_float && !all_finite({registers_.of<float>(item.value), count})) return false;
    if (item.input != kNone)
      std::copy_n(registers_.of<std::uint32_t>(item.value), count, registers_.of<std::uint32_t>(item.input));
  }
  registers_.compute_values(schedule_.read.value, inputs_, count);
  if (!holds_together(Stage::kValue)) return false;
  if (program_.result == kNone) return true;  // only the last phase leaves residuals
  const float* sent = registers_.of<float>(program_.result);
  if (!all_finite({sent, count})) return false;
  if (in.residual_out != nullptr) {
    float rest[kRun];
    for (std::size_t i = 0; i < count; ++i) rest[i] = current_values_[i] - sent[i];
    if (!all_finite({rest, count})) return false;
    std::copy_n(rest, count, in.residual_out + first);
  }
  return true;
}

void Walk::write_together(std::size_t first, std::uint8_t* payload, std::uint8_t* to) const {
  const std::size_t block = program_.block;
  for (std::size_t b = 0; b < together_; ++b)
    for (const Item& item : program_.items) {
      if (item.once) continue;
      const std::size_t bytes = item_bytes(item, block);
      if (item.array) {
        pack(registers_.of<std::uint32_t>(item.value) + b * block, block, item.bits, to);
        const std::size_t used = (block * item.bits + 7) / 8;
        std::fill_n(to + used, bytes - used, std::uint8_t{0});
      } else {
        const std::uint32_t bits = numbers_.of<std::uint32_t>(item.value)[b];
        put_number(item, bits, item.table ? payload + entry(item, first + b * block) : to);
      }
      if (item.in_block()) to += bytes;
    }
}

}  // namespace tithe::lang
