// SPDX-License-Identifier: Apache-2.0
// Encode also decodes its own values, for the residual. The receiver's view then reads sent nodes instead of packed
// bits: sent() replaces an input, before_packing() follows extracted bits to their origin, and always() removes
// conditions that the ranges prove. Invariant: each replacement has the value of the packed bits, so residuals equal
// the interpreter's. If a decoded value depends only on a code of at most four bits, or on two flags, one vector holds
// all its possible values, and decode looks them up.
#include "lang/cpp/emit_items.h"

#include <algorithm>
#include <bit>
#include <cstdint>

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
    from = fmt::format("t{0} + (n + {1} - 1) / {1} * {2}", k, block_length(), item_bytes(item, 1));
  });
  return from;
}

std::string ItemText::place(std::size_t k, const Item& item) const {
  return item.table ? fmt::format("t{} + number * {}", k, item_bytes(item, 1)) : fmt::format("o{}", k);
}

// A number that follows from the settings is an argument of the call, so settings that differ only in it share one
// text.
std::string ItemText::constant_bits(std::size_t k, const Item& item) const {
  return item.once && item.input == kNone && node(item.value).op == Op::kConst
             ? fmt::format("call->known[{}]", k)
             : fmt::format("raw({})", text_.number(item.value));
}

void ItemText::write_once() {
  if (program_.counts) {
    line("put(block, 1U, {});", kCountBytes);
    line("block += {};", kCountBytes);
  }
  each(true, [&](std::size_t k, const Item& item) {
    const std::string bits = constant_bits(k, item);
    line("put(block, {}, {});", bits, item_bytes(item, 1));
    line("block += {};", item_bytes(item, 1));
    if (item.is_float) line("finite = finite && is_finite({});", text_.number(item.value));
    receive_number(item, bits);
  });
  define_all(schedule_.all_read);
  for (std::size_t k = 0; k < program_.items.size(); ++k)
    if (of_all(program_.items[k])) {
      open(fmt::format("if (finite && !({}))", text_.number(program_.items[k].where)));
      line("answer->broken = {};", k + 1);
      line("return;");
      close();
    }
}

void ItemText::check_once() {
  if (program_.counts) {
    line("const uint32_t ranks = get(block, {});", kCountBytes);
    line("if (ranks == 0 || ranks > call->max_ranks) return 0;");
    line("block += {};", kCountBytes);
  }
  each(true, [&](std::size_t k, const Item& item) {
    line("const uint32_t once{} = get(block, {});", k, item_bytes(item, 1));
    line("block += {};", item_bytes(item, 1));
    check_number(item, fmt::format("once{}", k));
    receive_number(item, fmt::format("once{}", k));
  });
  // A payload's own conditions do not depend on the previous phase, whose items are not available here.
  for (const int k : schedule_.all_read)
    if (!node(k).before) define(k);
  for (const Item& item : program_.items)
    if (of_all(item)) line("if (!({})) return 0;", text_.number(item.where));
}

void ItemText::read_once(const std::string& from) {
  std::size_t at = program_.counts ? kCountBytes : 0;
  each(true, [&](std::size_t, const Item& item) {
    receive_number(item, fmt::format("get({} + {}, {})", from, at, item_bytes(item, 1)));
    at += item_bytes(item, 1);
  });
  if (program_.adds()) line("const uint32_t added = get({}, 2);", from);
  define_all(schedule_.all_read);
}

void ItemText::check_number(const Item& item, const std::string& bits) {
  if (item.is_float) line("if (!is_finite(float_({}))) return 0;", bits);
  if (item.input == kNone)
    line("if ({} != {}) return 0;", bits,
         constant_bits(static_cast<std::size_t>(&item - program_.items.data()), item));
  if (item.bits % 8 != 0) line("if ({} >> {} != 0) return 0;", bits, item.bits);
}

void ItemText::receive_number(const Item& item, const std::string& bits) {
  if (item.input == kNone) return;
  line("const {} b{} = {};", text_.number_type(item.input), item.input, from_bits(item.input, bits));
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

void ItemText::unpack(std::size_t k, const Item& item, bool in_reader) {
  if (item.input == kNone || !item.array) return;
  if (item.coding == Coding::kInts) {
    line("const U v{} = {};", item.input,
         in_rows() ? "row_at(tail, rows, fields, first + i, count)"
                   : "load_u_as(tail, fields + (back + i), count)");
    return known(item.input);
  }
  const Type type = node(item.input).type;
  const std::string at = fmt::format("o{} + i * {} / 8", k, item.bits);
  std::string v = fmt::format("unpack_as<{}>(tail, {}, count)", item.bits, at);
  if (type == Type::kF32) v = fmt::format("float_({})", v);
  if (type == Type::kBool) {
    const auto masks =
        std::count_if(program_.items.begin(), program_.items.begin() + static_cast<std::ptrdiff_t>(k),
                      [&](const Item& other) {
                        return other.array && other.input != kNone && node(other.input).type == Type::kBool;
                      });
    v = in_reader ? fmt::format("unpack_mask_in<{}>(tail, second, words, {}, count)", masks, at)
                  : fmt::format("unpack_mask_as(tail, {}, count)", at);
  }
  line("const {} v{} = {};", text_.value_type(item.input), item.input, v);
  known(item.input);
}

void ItemText::pack(std::size_t k, const Item& item) {
  if (item.coding == Coding::kInts && in_rows())
    return line("put_row(tail, rows, {}, out, first + i, count);", text_.values(item.value));
  if (item.coding == Coding::kInts)
    return line("store_u_as(tail, fields.all + (back + i), {}, count);", text_.values(item.value));
  const Type type = node(item.value).type;
  const std::string at = fmt::format("o{} + i * {} / 8", k, item.bits), v = text_.values(item.value);
  if (type == Type::kBool && item.bits == 1)
    line("pack_mask_as(tail, {}, {}, count);", v, at);
  else
    line("pack_as<{}>(tail, {}({}), {}, count);", item.bits, item.is_float ? "bits_" : "as_u", v, at);
  if (item.is_float) line("peak = max_(peak, select(here, size_bits({}), splat(0U)));", v);
}

// In encode, an item's received value equals the sent node, so expressions over received items are replaced by
// expressions over sent nodes.
int ItemText::sent(int k) const {
  for (const Item& item : program_.items)
    if (item.input == k && item.value != kNone && node(item.value).type == node(k).type) return item.value;
  return k;
}

// An upper bound for the set bits: exact for constants and bit operations, else all bits up to the range's highest
// one.
std::uint32_t ItemText::bits_of(int k) const {
  const Node& n = node(k);
  const auto whole = [&](int of) { return static_cast<std::uint32_t>(node(of).number); };
  if (n.op == Op::kConst) return whole(k);
  if (n.op == Op::kBitOr) return bits_of(n.in[0]) | bits_of(n.in[1]);
  if (n.op == Op::kBitAnd) return bits_of(n.in[0]) & bits_of(n.in[1]);
  return static_cast<std::uint32_t>(std::bit_ceil(static_cast<std::uint64_t>(n.range.high) + 1) - 1);
}

// Decoding often extracts fields that encoding has just combined: follows (node << by) & mask through or, and, and
// shifts by constants to the node that the field came from. Invariant: the value of the expression does not change.
ItemText::Bits ItemText::before_packing(Bits of) const {
  if (const int known = sent(of.node); known != of.node) return before_packing({known, of.by, of.mask});
  const Node& n = node(of.node);
  if (n.stage != Stage::kValue || n.type != Type::kU32) return of;
  const std::uint32_t wanted = of.mask >> of.by;
  if (n.op == Op::kBitOr && (bits_of(n.in[1]) & wanted) == 0)
    return before_packing({n.in[0], of.by, of.mask});
  if (n.op == Op::kBitOr && (bits_of(n.in[0]) & wanted) == 0)
    return before_packing({n.in[1], of.by, of.mask});
  if (n.in[1] == kNone || node(n.in[1]).op != Op::kConst) return of;
  const auto number = static_cast<std::uint32_t>(node(n.in[1]).number);
  if (n.op == Op::kBitAnd && (wanted & ~number) == 0) return before_packing({n.in[0], of.by, of.mask});
  if (n.op == Op::kShiftLeft && of.by + number < 32)
    return before_packing({n.in[0], of.by + number, of.mask});
  if (n.op == Op::kShiftRight && number == of.by && of.mask >> of.by << of.by == of.mask)
    return before_packing({n.in[0], 0, of.mask});
  return of;
}

// Defines `x & constant` by the field's source node, if before_packing() finds one; all other nodes as usual.
void ItemText::define_read(const Nodes& nodes) {
  for (const int k : nodes) {
    const Node& n = node(k);
    const bool masks = n.op == Op::kBitAnd && n.type == Type::kU32 && n.stage == Stage::kValue &&
                       node(n.in[1]).op == Op::kConst;
    const Bits bits = masks ? before_packing({n.in[0], 0, bits_of(n.in[1])}) : Bits{kNone, 0, 0};
    if (masks && bits.node != sent(n.in[0]) && bits.by == 0 && node(bits.node).type == Type::kU32) {
      const bool alone = (bits_of(bits.node) & ~bits.mask) == 0;
      line("const U v{} = {};", k,
           alone ? text_.values(bits.node)
                 : fmt::format("and_({}, {})", text_.values(bits.node), text_.values(n.in[1])));
      known(k);
    }
    define(k);
  }
}

// True if a implies b.
bool ItemText::implies(int a, int b) const {
  a = sent(a), b = sent(b);
  const Node& n = node(a);
  return a == b || (n.op == Op::kBitAnd && (implies(n.in[0], b) || implies(n.in[1], b)));
}

// Proves a condition from ranges, equal nodes, and implications such as `not a or (a and b)`.
bool ItemText::always(int k) const {
  const Node& n = node(sent(k));
  if (n.range.constant()) return n.range.low != 0;
  const auto [a, b, c] = n.in;
  switch (n.op) {
    case Op::kBitAnd:
      return always(a) && always(b);
    case Op::kBitOr:
      return always(a) || always(b) || (node(a).op == Op::kLogicNot && implies(node(a).in[0], b)) ||
             (node(b).op == Op::kLogicNot && implies(node(b).in[0], a));
    case Op::kLessEqual:
      return is_whole(node(a).type) && node(sent(a)).range.high <= node(sent(b)).range.low;
    case Op::kLess:
      return is_whole(node(a).type) && node(sent(a)).range.high < node(sent(b)).range.low;
    default:
      return false;
  }
}

void ItemText::condition_masks(bool sending) {
  each(false, [&](std::size_t k, const Item& item) {
    if (of_values(item) && !(sending && always(item.where))) line("M w{} = splat(false);", k);
  });
}

void ItemText::scan_conditions(bool sending) {
  each(false, [&](std::size_t k, const Item& item) {
    if (of_values(item) && !(sending && always(item.where)))
      line("w{0} = or_(w{0}, and_(here, not_({1})));", k, text_.values(item.where));
  });
}

std::size_t ItemText::looked_up_item() const {
  constexpr unsigned kMaxBits = 4, kMinWork = 3;
  std::size_t found = kNoTable, arrays = 0;
  each(false, [&](std::size_t k, const Item& item) {
    if (!item.array || item.input == kNone) return;
    ++arrays;
    if (item.coding == Coding::kCodes && item.bits <= kMaxBits && node(item.input).type == Type::kU32)
      found = k;
  });
  return arrays == 1 && follows_from_arrays() && schedule_.read.value.size() > kMinWork ? found : kNoTable;
}

bool ItemText::all_computed(const Nodes& work) const {
  return std::all_of(work.begin(), work.end(), [&](int k) {
    return node(k).op == Op::kItem || (node(k).op >= Op::kAdd && node(k).op < Op::kDraw);
  });
}

bool ItemText::follows_from_arrays() const {
  return program_.result != kNone && node(program_.result).stage == Stage::kValue &&
         all_computed(schedule_.read.value);
}

std::vector<std::size_t> ItemText::looked_up_flags() const {
  std::vector<std::size_t> flags;
  bool others = false;
  each(false, [&](std::size_t k, const Item& item) {
    if (!item.array || item.input == kNone) return;
    if (node(item.input).type == Type::kBool && item.bits == 1)
      flags.push_back(k);
    else
      others = true;
  });
  const bool few = flags.size() == 1 || flags.size() == 2;
  return few && !others && follows_from_arrays() ? flags : std::vector<std::size_t>{};
}

// The code of each table entry. Entries for codes that no payload can contain repeat a valid code's entry.
std::string ItemText::codes_in_order(const Item& item) const {
  const unsigned all = (1U << item.bits) - 1;
  const auto most = static_cast<unsigned>(node(item.input).range.high);
  const std::string codes = fmt::format("and_(lanes(), splat({}U))", all);
  return most < all ? fmt::format("min_({}, splat({}U))", codes, most) : codes;
}

void ItemText::table_of(const std::function<void()>& inputs) {
  const std::vector<bool> before = defined_;
  open("const F stands = [&]() __attribute__((always_inline))");
  inputs();
  before_loop(schedule_.read.value);
  define_all(schedule_.read.value);
  line("return {};", text_.values(program_.result));
  close("}();");
  defined_ = before;
}

void ItemText::look_up_table(std::size_t k) {
  const Item& item = program_.items[k];
  table_of([&] {
    line("const {} v{} = {};", text_.value_type(item.input), item.input, codes_in_order(item));
    known(item.input);
  });
}

void ItemText::look_up_flags(const std::vector<std::size_t>& items) {
  table_of([&] {
    for (std::size_t bit = 0; bit < items.size(); ++bit) {
      const int input = program_.items[items[bit]].input;
      line("const M v{} = ne(and_(lanes(), splat({}U)), splat(0U));", input, 1U << bit);
      known(input);
    }
  });
}

std::string ItemText::looked_up(std::size_t k, const std::string& code) const {
  return fmt::format("looked_up<{}>(stands, {})", program_.items[k].bits, code);
}

}  // namespace tithe::lang
