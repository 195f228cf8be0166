// SPDX-License-Identifier: Apache-2.0
#include "lang/run/context.h"

#include <algorithm>

#include "lang/run/fields.h"
#include "lang/run/walk.h"

namespace tithe::lang {

namespace {

// Items whose places follow from n alone.
void read_fixed(const Checked& program, ByteView payload, std::size_t n,
                const std::vector<std::uint32_t*>& to) {
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

}  // namespace

Agreed::Agreed(const Combination& of, std::string_view name, const Call& call, std::size_t n) {
  if (of.program.before.empty()) return;
  const Checked& front = of.before->program;
  const std::size_t blocks = front.block == 0 ? 1 : (n + front.block - 1) / front.block;
  std::vector<std::size_t> counts;
  std::size_t all = 0;
  for (const Item& item : of.program.before) {
    const std::size_t there = item.once ? 1 : item.array ? n : blocks;
    counts.push_back(item.input == kNone ? 0 : std::max<std::size_t>(there, 1));
    all += counts.back();
  }
  memory_ = std::make_unique_for_overwrite<std::uint32_t[]>(all);
  if (n == 0) std::fill_n(memory_.get(), all, 0U);
  std::uint32_t* next = memory_.get();
  for (std::size_t k = 0; k < counts.size(); ++k) {
    numbers_.push_back(of.program.before[k].input == kNone ? nullptr : next);
    next += counts[k];
  }
  if (front.adds()) {
    const int_fields::Head head = int_fields::head_of(call.context);
    ranks_ = head.added;
    int_fields::kSimd.unpack(call.context.data(), 0, n, head.bits, numbers_[0]);
  } else if (front.varies()) {
    Walk(*of.before, name, in_front(call), n).read_all(call.context, numbers_);
  } else {
    read_fixed(front, call.context, n, numbers_);
  }
}

}  // namespace tithe::lang
