// SPDX-License-Identifier: Apache-2.0
#include "lang/emit_items.h"

#include <algorithm>

namespace tithe::lang {

void ItemText::places(const char* type) {
  std::string at = "block";
  each(false, [&](std::size_t k, const Item& item) {
    if (item.table) return;
    line("{} const o{} = {};", type, k, at);
    at = item.array ? fmt::format("o{} + (len * {} + 7) / 8", k, item.bits)
                    : fmt::format("o{} + {}", k, item_bytes(item, 1));
  });
  line("{} const next = {};", type, at);
}

std::string ItemText::tables(const char* type, std::string from) {
  each(false, [&](std::size_t k, const Item& item) {
    if (!item.table) return;
    line("{} const t{} = {};", type, k, from);
    from =
        fmt::format("t{} + (n + {}) / {} * {}", k, program_.block - 1, program_.block, item_bytes(item, 1));
  });
  return from;
}

std::string ItemText::place(std::size_t k, const Item& item) const {
  return item.table ? fmt::format("t{} + first / {} * {}", k, program_.block, item_bytes(item, 1))
                    : fmt::format("o{}", k);
}

std::string ItemText::sent_number(const Item& item, const std::string& bits) const {
  const Type type = node(item.input).type;
  return type == Type::kF32    ? fmt::format("float_({})", bits)
         : type == Type::kBool ? fmt::format("{} != 0", bits)
                               : bits;
}

void ItemText::receive_number(const Item& item, const std::string& bits) {
  if (item.input == kNone) return;
  line("const {} b{} = {};", text_.number_type(item.input), item.input, sent_number(item, bits));
  known(item.input);
}

void ItemText::receive_values(const Item& item) {
  if (item.input == kNone) return;
  const Type to = node(item.input).type, from = node(item.value).type;
  const std::string v = text_.values(item.value);
  line("const {} v{} = {};", text_.value_type(item.input), item.input,
       to == Type::kU32 && from != Type::kU32 ? fmt::format("as_u({})", v) : v);
  known(item.input);
}

void ItemText::read_numbers(const Pass& of) {
  each(false, [&](std::size_t k, const Item& item) {
    if (!item.array) receive_number(item, fmt::format("get({}, {})", place(k, item), item_bytes(item, 1)));
  });
  define_all(of.block);
}

void ItemText::unpack(std::size_t k, const Item& item) {
  if (item.input == kNone || !item.array) return;
  const Type type = node(item.input).type;
  const std::string at = fmt::format("o{} + i * {} / 8", k, item.bits);
  std::string v = fmt::format("unpack_as<{}>(tail, {}, count)", item.bits, at);
  if (type == Type::kF32) v = fmt::format("float_({})", v);
  if (type == Type::kBool) v = fmt::format("unpack_mask_as(tail, {}, count)", at);
  line("const {} v{} = {};", text_.value_type(item.input), item.input, v);
  known(item.input);
}

void ItemText::pack(std::size_t k, const Item& item) {
  const Type type = node(item.value).type;
  const std::string at = fmt::format("o{} + i * {} / 8", k, item.bits), v = text_.values(item.value);
  if (type == Type::kBool && item.bits == 1)
    line("pack_mask_as(tail, {}, {}, count);", v, at);
  else
    line("pack_as<{}>(tail, {}({}), {}, count);", item.bits, item.is_float ? "bits_" : "as_u", v, at);
  if (item.is_float) line("peak = max_(peak, select(here, size_bits({}), splat(0U)));", v);
}

void ItemText::condition_masks() {
  each(false, [&](std::size_t k, const Item& item) {
    if (of_values(item)) line("M w{} = splat(false);", k);
  });
}

void ItemText::look_at_conditions() {
  each(false, [&](std::size_t k, const Item& item) {
    if (of_values(item)) line("w{0} = or_(w{0}, and_(here, not_({1})));", k, text_.values(item.where));
  });
}

std::size_t ItemText::looked_up_item() const {
  constexpr unsigned kMostBits = 4, kLeastWork = 3;
  std::size_t found = kNoTable, arrays = 0;
  each(false, [&](std::size_t k, const Item& item) {
    if (!item.array || item.input == kNone) return;
    ++arrays;
    if (item.coding == Coding::kCodes && item.bits <= kMostBits && node(item.input).type == Type::kU32)
      found = k;
  });
  const Nodes& work = schedule_.read.value;
  const auto computed = [&](int k) {
    return node(k).op == Op::kItem || (node(k).op > Op::kItem && node(k).op < Op::kDraw);
  };
  const bool follows = arrays == 1 && node(program_.result).stage == Stage::kValue &&
                       std::all_of(work.begin(), work.end(), computed);
  return follows && work.size() > kLeastWork ? found : kNoTable;
}

void ItemText::look_up_table(std::size_t k) {
  const Item& item = program_.items[k];
  const std::vector<bool> before = defined_;
  open("const F stands = [&]() __attribute__((always_inline))");
  line("const {} v{} = and_(lanes(), splat({}U));", text_.value_type(item.input), item.input,
       (1U << item.bits) - 1);
  known(item.input);
  before_loop(schedule_.read.value);
  define_all(schedule_.read.value);
  line("return {};", text_.values(program_.result));
  close("}();");
  defined_ = before;
}

std::string ItemText::looked_up(std::size_t k, const std::string& code) const {
  return fmt::format("looked_up<{}>(stands, {})", program_.items[k].bits, code);
}

}  // namespace tithe::lang
