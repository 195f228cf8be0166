// SPDX-License-Identifier: Apache-2.0
// The interpreter's writing of a block.
#include <algorithm>

#include "base/finite.h"
#include "lang/run/fields.h"
#include "lang/run/walk.h"

namespace tithe::lang {

Status Walk::encode_head(const EncodeInput& in, std::uint8_t* payload, bool& finite) {
  if (!schedule_.looked.reduce.empty()) finite = look(in) && finite;
  registers_.compute_once(schedule_.all, inputs_);
  std::fill_n(payload, head_bytes(program_, inputs_.n), std::uint8_t{0});
  if (program_.counts) {
    wire::put(payload, std::uint16_t{1});
    payload += kCountBytes;
  }
  for (const Item& item : program_.items) {
    if (!item.once) continue;
    const std::uint32_t bits = *registers_.of<std::uint32_t>(item.value);
    if (item.is_float) finite = finite && is_finite(std::bit_cast<float>(bits));
    payload = put_number(item, bits, payload);
    receive(item, &bits, 1);
  }
  registers_.compute_once(schedule_.all_read, inputs_);
  return finite ? holds(Stage::kAll, 1, Code::kUnsupported, 0) : Status{};
}

Result<std::size_t> Walk::encode_block(const EncodeInput& in, std::size_t first, std::size_t len,
                                       std::uint8_t* payload, std::uint8_t* to, bool& finite) {
  if (!find(schedule_.passes, in, first, len, true)) return nothing(in, first, len, to, finite);
  registers_.compute_once(schedule_.send.block, inputs_);
  send_numbers(payload, to, first, len, finite);
  registers_.compute_once(schedule_.read.block, inputs_);
  for (const Pass& pass : schedule_.widths) registers_.compute_once(pass.block, inputs_);
  if (finite) TITHE_TRY(holds(Stage::kBlock, 1, Code::kUnsupported, first));
  Status broken;
  runs(first, len, [&](std::size_t at, std::size_t count) {
    take(in, at, count);
    const bool sound = all_finite({current_values_, count});
    finite = finite && sound;
    registers_.compute_values(schedule_.send.value, inputs_, count);
    std::uint8_t* array = to;
    for (std::size_t k = 0; k < program_.items.size(); ++k) {
      const Item& item = program_.items[k];
      if (!item.in_block()) continue;
      if (item.array) {
        if (item.is_float) finite = finite && all_finite({registers_.of<float>(item.value), count});
        send_array(k, array, len, at - first, count);
      }
      array += item_bytes(item, len);
    }
    registers_.compute_values(schedule_.read.value, inputs_, count);
    if (sound && finite && broken.ok()) broken = holds(Stage::kValue, count, Code::kUnsupported, first);
    finite = leave(in, at, count) && finite;
  });
  TITHE_TRY(broken);
  const std::size_t bytes = varies_ ? send_codes(to, len) : block_bytes(program_, len);
  add_lengths(payload, first, bytes);
  return bytes;
}

void Walk::send_numbers(std::uint8_t* payload, std::uint8_t* to, std::size_t first, std::size_t len,
                        bool& finite) {
  for (const Item& item : program_.items) {
    if (!item.once && !item.array && item.coding != Coding::kBytes) {
      const std::uint32_t bits = *registers_.of<std::uint32_t>(item.value);
      if (item.is_float) finite = finite && is_finite(std::bit_cast<float>(bits));
      if (item.table)
        put_number(item, bits, payload + entry(item, first));
      else if (!varies_)
        put_number(item, bits, to);
      receive(item, &bits, 1);
    }
    if (item.in_block()) to += item_bytes(item, len);
  }
}

// Stores a run of an array in the payload; if the array's offset depends on earlier items, in a buffer until the
// block ends.
void Walk::send_array(std::size_t k, std::uint8_t* to, std::size_t len, std::size_t at, std::size_t count) {
  const Item& item = program_.items[k];
  const std::uint32_t* values = registers_.of<std::uint32_t>(item.value);
  if (item.coding == Coding::kInts) {
    fields_->pack(values, inputs_.first, count, field_bits_, fields_out_);
    return receive(item, values, count);
  }
  if (!varies_) {
    pack(values, count, item.bits, to + at * item.bits / 8);
    const std::size_t used = (len * item.bits + 7) / 8;
    if (at + count == len) std::fill_n(to + used, item_bytes(item, len) - used, std::uint8_t{0});
    return receive(item, values, count);
  }
  std::uint32_t* const codes = own_.codes[k] + at;
  std::copy_n(values, count, codes);
  if (item.coding == Coding::kWidths) {  // bits beyond a code's width are not sent
    registers_.compute_values(schedule_.widths[k].value, inputs_, count);
    const std::uint32_t* widths = registers_.of<std::uint32_t>(item.width);
    std::copy_n(widths, count, own_.widths[k] + at);
    for (std::size_t i = 0; i < count; ++i)
      codes[i] &= static_cast<std::uint32_t>((std::uint64_t{1} << widths[i]) - 1);
  }
  receive(item, codes, count);
}

std::size_t Walk::send_codes(std::uint8_t* to, std::size_t len) {
  std::uint8_t* const begin = to;
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const Item& item = program_.items[k];
    if (!item.in_block()) continue;
    to = item.array ? put_codes(item, {own_.codes[k], len}, {own_.widths[k], len}, to)
                    : put_number(item, *registers_.of<std::uint32_t>(item.value), to);
  }
  return static_cast<std::size_t>(to - begin);
}

void Walk::add_lengths(std::uint8_t* payload, std::size_t first, std::size_t bytes) const {
  for (const Item& item : program_.items) {
    if (item.coding != Coding::kBytes) continue;
    std::uint8_t* const at = payload + entry(item, first);
    put_number(item, get_number(item, at) + static_cast<std::uint32_t>(bytes), at);
  }
}

}  // namespace tithe::lang
