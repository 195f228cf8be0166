// SPDX-License-Identifier: Apache-2.0
// The interpreter's reading and checking of a block.
#include <fmt/format.h>

#include "base/finite.h"
#include "lang/run/fields.h"
#include "lang/run/walk.h"

namespace tithe::lang {

Status Walk::check_head(ByteView payload) {
  const std::uint8_t* from = payload.data();
  if (program_.counts) {
    const unsigned ranks = wire::get<std::uint16_t>(from);
    if (ranks == 0 || ranks > max_ranks_) return corrupt("maxima of more ranks than allowed");
    from += kCountBytes;
  }
  for (const Item& item : program_.items) {
    if (!item.once) continue;
    TITHE_TRY(receive_number(item, get_number(item, from), 0));
    from += item_bytes(item, 0);
  }
  registers_.compute_once(schedule_.all_read, inputs_);
  return holds(Stage::kAll, 1, Code::kCorrupt, 0);
}

Status Walk::receive_number(const Item& item, std::uint32_t bits, std::size_t first) {
  if (item.is_float && !is_finite(std::bit_cast<float>(bits)))
    return corrupt(fmt::format("'{}' of block {} is not finite", item.name, number_of(first)));
  if (item.input == kNone && bits != *registers_.of<std::uint32_t>(item.value)) return other(item);
  if (item.bits % 8 != 0 && bits >> item.bits != 0)
    return corrupt(
        fmt::format("'{}' of block {} has more than its {} bits", item.name, number_of(first), item.bits));
  receive(item, &bits, 1);
  return {};
}

Result<std::size_t> Walk::check_block(ByteView payload, std::size_t at, std::size_t first, std::size_t len) {
  const Result<std::size_t> bytes = read_block(payload, at, first, len, schedule_.check);
  if (!bytes.ok()) return bytes;
  if (!lengths_hold(payload, first, len, *bytes))
    return corrupt(
        fmt::format("block {} has another number of bytes than its table states", number_of(first)));
  TITHE_TRY(holds(Stage::kBlock, 1, Code::kCorrupt, first));
  if (!reads_values()) return bytes;
  Status broken;
  runs(first, len, [&](std::size_t from, std::size_t count) {
    if (!broken.ok()) return;
    read_run(payload.data() + at, len, from - first, count, schedule_.check);
    broken = holds(Stage::kValue, count, Code::kCorrupt, first);
  });
  TITHE_TRY(broken);
  return bytes;
}

Result<std::size_t> Walk::read_block(ByteView payload, std::size_t at, std::size_t first, std::size_t len,
                                     const Pass& pass) {
  std::size_t bytes = block_bytes(program_, len);
  const std::uint8_t* from = payload.data() + at;
  for (const Item& item : program_.items) {
    if (item.table && item.coding != Coding::kBytes)
      TITHE_TRY(receive_number(item, get_number(item, payload.data() + entry(item, first)), first));
    if (!item.in_block() || varies_ || item.coding == Coding::kInts) continue;
    if (!item.array)
      TITHE_TRY(receive_number(item, get_number(item, from), first));
    else if (!ends_clean(from, len, item.bits, item_bytes(item, len)))
      return corrupt(fmt::format("a bit past the last of '{}'", item.name));
    from += item_bytes(item, len);
  }
  if (varies_) {
    const Result<std::size_t> found = read_codes(payload.subspan(at), first, len);
    if (!found.ok()) return found;
    bytes = *found;
  }
  registers_.compute_once(pass.block, inputs_);
  return bytes;
}

// Reads a block's items of variable size, each of which starts behind the one before it.
Result<std::size_t> Walk::read_codes(ByteView block, std::size_t first, std::size_t len) {
  std::size_t at = 0;
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const Item& item = program_.items[k];
    if (!item.in_block()) continue;
    if (!item.array) {
      if (block.size() - at < item_bytes(item, 1))
        return corrupt(fmt::format("it ends within block {}", number_of(first)));
      TITHE_TRY(receive_number(item, get_number(item, block.data() + at), first));
      at += item_bytes(item, 1);
      continue;
    }
    if (item.coding == Coding::kWidths) find_widths(k, first, len);
    const auto bytes = get_codes(item, block.subspan(at), {own_.widths[k], len}, {own_.codes[k], len});
    if (!bytes)
      return corrupt(fmt::format("'{}' of block {} is not in canonical form", item.name, number_of(first)));
    at += *bytes;
  }
  return at;
}

void Walk::find_widths(std::size_t k, std::size_t first, std::size_t len) {
  const Pass& pass = schedule_.widths[k];
  const int width = program_.items[k].width;
  registers_.compute_once(pass.block, inputs_);
  runs(first, len, [&](std::size_t at, std::size_t count) {
    for (std::size_t j = 0; j < k; ++j)
      if (program_.items[j].array && program_.items[j].in_block())
        receive(program_.items[j], own_.codes[j] + (at - first), count);
    registers_.compute_values(pass.value, inputs_, count);
    std::copy_n(registers_.of<std::uint32_t>(width), count, own_.widths[k] + (at - first));
  });
}

void Walk::read_run(const std::uint8_t* block, std::size_t len, std::size_t at, std::size_t count,
                    const Pass& pass) {
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const Item& item = program_.items[k];
    if (!item.in_block()) continue;
    if (item.array && item.input != kNone) {
      if (item.coding == Coding::kInts)
        fields_->unpack(fields_in_, inputs_.first, count, field_bits_,
                        registers_.of<std::uint32_t>(item.input));
      else if (varies_)
        receive(item, own_.codes[k] + at, count);
      else
        unpack(block + at * item.bits / 8, count, item.bits, registers_.of<std::uint32_t>(item.input));
    }
    block += item_bytes(item, len);
  }
  registers_.compute_values(pass.value, inputs_, count);
}

void Walk::read_all(ByteView payload, std::span<std::uint32_t* const> to) {
  const auto number = [&](std::size_t k) { return registers_.of<std::uint32_t>(program_.items[k].input); };
  static_cast<void>(check_head(payload));
  for (std::size_t k = 0; k < to.size(); ++k)
    if (to[k] != nullptr && program_.items[k].once) *to[k] = *number(k);
  std::size_t at = head_bytes(program_, inputs_.n);
  static_cast<void>(blocks([&](std::size_t first, std::size_t len) {
    const std::size_t bytes = *read_block(payload, at, first, len, {});
    for (std::size_t k = 0; k < to.size(); ++k)
      if (const Item& item = program_.items[k]; to[k] != nullptr && !item.once && !item.array)
        to[k][number_of(first)] = *number(k);
    runs(first, len, [&](std::size_t from, std::size_t count) {
      read_run(payload.data() + at, len, from - first, count, {});
      for (std::size_t k = 0; k < to.size(); ++k)
        if (to[k] != nullptr && program_.items[k].array) std::copy_n(number(k), count, to[k] + from);
    });
    at += bytes;
    return Status{};
  }));
}

bool Walk::lengths_hold(ByteView payload, std::size_t first, std::size_t len, std::size_t bytes) {
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const Item& item = program_.items[k];
    if (item.coding != Coding::kBytes) continue;
    std::uint64_t& length = own_.lengths[k];
    length = (first % item.per == 0 ? 0 : length) + bytes;
    const bool ends = first + len == inputs_.n || (first + len) % item.per == 0;
    if (ends && length != get_number(item, payload.data() + entry(item, first))) return false;
  }
  return true;
}

}  // namespace tithe::lang
