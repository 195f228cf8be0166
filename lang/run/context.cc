// SPDX-License-Identifier: Apache-2.0
#include "lang/run/context.h"

#include <algorithm>

#include "lang/run/fields.h"
#include "lang/run/walk.h"

namespace tithe::lang {

namespace {

// Items whose offsets follow from n alone.
void read_fixed(const Checked& program, ByteView payload, std::size_t n, std::span<std::uint32_t* const> to) {
  const std::size_t length = program.block == 0 ? n : program.block;
  std::size_t at = program.counts ? kCountBytes : 0;
  for (std::size_t k = 0; k < to.size(); ++k) {
    const Item& item = program.items[k];
    if (item.in_block()) continue;
    const std::size_t each = item_bytes(item, 1), all = item.once ? each : table_bytes(item, program, n);
    for (std::size_t j = 0; to[k] != nullptr && j < all / each; ++j)
      to[k][j] = get_number(item, payload.data() + at + j * each);
    at += all;
  }
  std::size_t first = 0;
  for (std::size_t number = 0; number == 0 || first < n; ++number) {
    const std::size_t len = std::min(length, n - first);
    if (len == 0 && program.block != 0) return;
    for (std::size_t k = 0; k < to.size(); ++k) {
      const Item& item = program.items[k];
      if (!item.in_block()) continue;
      if (to[k] != nullptr && item.array)
        unpack(payload.data() + at, len, item.bits, to[k] + first);
      else if (to[k] != nullptr)
        to[k][number] = get_number(item, payload.data() + at);
      at += item_bytes(item, len);
    }
    first += len;
  }
}

// Allocates the array of each item that this phase reads.
std::span<std::uint32_t*> lay_out(const Combination& of, std::size_t n, CallMemory& memory) {
  const Checked& front = of.before->program;
  const std::size_t blocks = front.block == 0 ? 1 : (n + front.block - 1) / front.block;
  const std::vector<Item>& items = of.program.before;
  std::uint32_t** const all = memory.take<std::uint32_t*>(items.size());
  for (std::size_t k = 0; k < items.size(); ++k) {
    const std::size_t there = items[k].once ? 1 : items[k].array ? n : blocks;
    std::uint32_t* numbers = nullptr;
    if (items[k].input != kNone) numbers = memory.take<std::uint32_t>(std::max<std::size_t>(there, 1));
    if (numbers != nullptr) *numbers = 0;
    if (all != nullptr) all[k] = numbers;
  }
  return {all, all == nullptr ? 0 : items.size()};
}

}  // namespace

std::size_t agreed_bytes(const Combination& of, const Settings& settings, std::size_t n) {
  if (of.program.before.empty()) return 0;
  CallMemory measure;
  lay_out(of, n, measure);
  return measure.used() + (of.before->program.varies() ? walk_bytes(*of.before, settings, n) : 0);
}

Agreed::Agreed(const Combination& of, std::string_view name, const Call& call, std::size_t n,
               CallMemory& memory) {
  if (of.program.before.empty()) return;
  const Checked& front = of.before->program;
  numbers_ = lay_out(of, n, memory);
  if (front.adds()) {
    const int_fields::Head head = int_fields::head_of(call.context);
    ranks_ = head.added;
    int_fields::kSimd.unpack(call.context.data(), 0, n, head.bits, numbers_[0]);
  } else if (front.varies()) {
    Walk(*of.before, name, in_front(call), n, memory).read_all(call.context, numbers_);
  } else {
    read_fixed(front, call.context, n, numbers_);
  }
}

}  // namespace tithe::lang
