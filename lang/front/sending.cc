// SPDX-License-Identifier: Apache-2.0
// An item has up to two nodes: Item::value, which encode sends, and Item::input, the received item, which decode reads
// under the item's name. An item that the receiver can compute has no input. Invariant: the range of `value` fits the
// item's type, so encode loses no bits; the range of `input` is that of the type, or of the sum of all ranks, so decode
// is total for every payload.
#include "lang/front/sending.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/shared/int_sum/int_fields.h"
#include "lang/front/passes.h"

namespace tithe::lang {

namespace {

double max_of(const Item& it) {
  return it.coding == Coding::kTrits ? 2 : std::ldexp(1.0, static_cast<int>(it.bits)) - 1;
}

}  // namespace

// If encode's value is of stage plan, the receiver computes it itself and only checks the payload (Binding::known).
void Sending::add_item(const SendItem& s) {
  program().items.push_back({.name = std::string(s.name.text),
                             .at = s.name.at,
                             .once = s.once,
                             .table = s.table,
                             .is_float = s.is_float,
                             .array = s.array,
                             .bits = s.bits});
  Item& it = program().items.back();
  check_position(s, it);
  check_phase(s);
  if (s.per) return add_lengths(s, it);
  Value v = s.value
                ? expr(*s.value, Part::kEncode)
                : name(Expr{.kind = ExprKind::kName, .at = s.name.at, .text = s.name.text}, Part::kEncode);
  if (s.ints) return add_ints(s, it, v);
  if (!set_width(s, it)) v = {.at = v.at};
  Type type = Type::kF32;
  if (s.places)
    type = Type::kBool;
  else if (!s.is_float)
    type = !v.bad() && !v.literal && build_.of(v).type != Type::kF32 ? build_.of(v).type : Type::kU32;
  v = build_.as(v, type, fmt::format("'{}'", s.name.text));
  if (v.bad()) return bind(s.name, v, Part::kDecode);
  it.value = v.node;
  build_.call_it(v.node, s.name.text);
  const Node node = build_.of(v);
  check_range(s, it, node);
  if (node.stage == Stage::kPlan && it.coding == Coding::kCodes) {
    bind(s.name, v, Part::kDecode);
    names_.back().known = true;
    return;
  }
  const Value seen = build_.input(input_of(it, type), s.name.at);
  it.input = seen.node;
  bind(s.name, seen, Part::kDecode);
}

// An integer per value. The payload holds unsigned distances from the minimum, which add up without a sign bit.
void Sending::add_ints(const SendItem& s, Item& it, Value v) {
  constexpr double kRanks = int_fields::kMaxWorkers;
  constexpr unsigned kRoom = 0xffffU / int_fields::kMaxWorkers;  // a field has 16 bits at most
  constexpr double kMaxTop = kRoom;
  it.coding = Coding::kInts;
  if (v.literal) v = build_.as(v, Type::kI32, fmt::format("'{}'", s.name.text));
  if (v.bad()) return bind(s.name, v, Part::kDecode);
  if (!is_whole(build_.of(v).type))
    return bind(s.name,
                build_.bad(s.name.at,
                           fmt::format("'{}' is {}; only whole numbers can be summed", s.name.text,
                                       lang::name(build_.of(v).type)),
                           "i32(clamp(round(...), -7, 7)), or stochastic_level"),
                Part::kDecode);
  const Range range = build_.of(v).range;
  const double top = range.high - range.low;
  if (!(top >= 1 && top <= kMaxTop && std::fabs(range.low) <= 0x1p20))
    return bind(
        s.name,
        build_.bad(s.name.at,
                   fmt::format("'{}' can be {}; in a sum of {} ranks it must have 2 to {} different values",
                               s.name.text, text(range), kRanks, kMaxTop + 1),
                   "clamp it"),
        Part::kDecode);
  it.low = range.low;
  it.top = static_cast<unsigned>(top);
  v = build_.call("i32", {v}, nullptr, false, v.at);
  v = build_.call("u32", {build_.binary("-", v, build_.literal(it.low, true, v.at), v.at)}, nullptr, false,
                  v.at);
  it.value = v.node;
  Node read{.op = Op::kItem, .type = Type::kU32, .stage = Stage::kValue, .decode = true};
  read.range = {0, top * kRanks};
  const Value seen = build_.input(read, s.name.at);
  it.input = seen.node;
  bind(s.name, sum_of(it, seen, {.op = Op::kAdded, .stage = Stage::kAll, .decode = true}), Part::kDecode);
}

// The sum that added-up fields represent: fields + added * low, with `added` ranks.
Value Sending::sum_of(const Item& it, Value fields, Node added) {
  constexpr double kRanks = int_fields::kMaxWorkers;
  added.type = Type::kI32;
  added.range = {1, kRanks};
  const double low = it.low, high = low + it.top;
  const Value least = build_.binary("*", build_.input(added, it.at), build_.literal(low, true, it.at), it.at);
  const Value sum = build_.binary("+", build_.call("i32", {fields}, nullptr, false, it.at), least, it.at);
  build_.program.nodes.back().range = {std::min(low, low * kRanks), std::max(high, high * kRanks)};
  return sum;
}

// Only items whose payloads combine under the phase's law are allowed.
void Sending::check_phase(const SendItem& s) {
  const auto refuse = [&](const std::string& what, const char* help) {
    problems_.add(s.type_at, what, help);
  };
  const Law law = program().law;
  const bool fixed = !s.ints && !s.trits && !s.places && !s.per;
  if (s.ints && law != Law::kSum)
    refuse("'int[]' requires a phase by sum", "phase NAME by sum");
  else if (s.ints && !s.array)
    refuse("this item has one element per value", "int[]");
  else if (law == Law::kSum && s.is_float)
    refuse("floats cannot be summed: their sum depends on the order of ranks",
           "send whole numbers: NAME: int[]");
  else if (law == Law::kSum && !s.ints)
    refuse("an item with a fixed number of bits cannot be summed", "NAME: int[]");
  else if (law == Law::kSum && program().items.size() > 1)
    refuse("a phase can sum only one array", "send the other items in another phase");
  else if (law == Law::kMax && !fixed)
    refuse("a maximum requires items of the same size on all ranks", "f32, u8, or u8[]");
  if (s.where && law == Law::kSum)
    problems_.add(s.where->at, "a summed item cannot have 'where': its range is known", "remove it");
}

// The node with which the receiver reads an item of this type.
Node Sending::input_of(const Item& it, Type type) {
  constexpr double kMaxFloat = std::numeric_limits<float>::max();
  Node read{.op = Op::kItem, .decode = true};
  read.type = it.is_float ? Type::kF32 : type == Type::kBool ? Type::kBool : Type::kU32;
  read.stage = it.array ? Stage::kValue : it.once ? Stage::kAll : Stage::kBlock;
  read.index = static_cast<unsigned>(program().items.size() - 1);
  read.range = it.is_float ? Range{-kMaxFloat, kMaxFloat} : Range{0, max_of(it)};
  return read;
}

// The order of the items: sent once, then tables, then blocks.
void Sending::check_position(const SendItem& s, Item& it) {
  const std::size_t count = program().items.size();
  const Item* above = count > 1 ? &program().items[count - 2] : nullptr;
  const auto refuse = [&](const char* what, const char* help = "") { problems_.add(s.type_at, what, help); };
  if (s.once && above != nullptr && !above->once)
    problems_.add(s.name.at, "items with 'once' must precede the other items");
  if (s.table && above != nullptr && above->in_block())
    problems_.add(s.name.at, "a table must precede the items of blocks");
  if (s.once && s.array) refuse("an item with 'once' must be one number");
  if (s.table && s.array) refuse("an entry of a table must be one number per block");
  if (program().block == 0 && (s.table || s.full))
    refuse("the program has one block of all values", "give blocks a length: block 1024");
  if (s.trits) it.coding = Coding::kTrits;
  if (s.places) it.coding = Coding::kPlaces;
  if (s.full || s.places) it.full = program().block;
  if (!s.full) return;
  if (s.is_float) refuse("a short block is padded with zeros, which floats do not allow", "f32[]");
}

// The width of an item's codes: a constant, or one per value computed from the items before it.
bool Sending::set_width(const SendItem& s, Item& it) {
  if (!s.width) return true;
  Value w = expr(*s.width, Part::kDecode);
  for (Binding& b : names_) b.shapes = b.shapes || (b.used && b.part == Part::kDecode);
  if (w.literal) w = build_.as(w, Type::kI32, "the number of bits");
  const auto refuse = [&](std::string what, std::string help = {}) {
    build_.bad(w.at, std::move(what), std::move(help));
    return false;
  };
  if (w.bad()) return false;
  if (build_.of(w).before)
    return refuse("the number of bits must follow from items of the same payload",
                  "use an item above it in this phase");
  if (build_.of(w).stage != Stage::kValue) {
    it.bits = bits_of(w);
    return it.bits != 0;
  }
  if (is_float(build_.of(w).type)) return refuse("the number of bits must be a whole number");
  if (!s.array || s.full) return refuse("the width has one element per value", "u<...>[]");
  w = build_.call("u32", {w}, nullptr, true, w.at);
  if (w.bad()) return false;
  const Range range = build_.of(w).range;
  if (range.high > 32)
    return refuse(fmt::format("this can be {}; a code has at most 32 bits", text(range)), "min(..., 32)");
  if (program().law == Law::kMax) return refuse("a maximum requires items of the same size on all ranks");
  it.coding = Coding::kWidths;
  it.width = w.node;
  it.bits = std::max(1U, static_cast<unsigned>(range.high));
  return true;
}

unsigned Sending::bits_of(const Value& width) {
  const Range r = build_.of(width).range;
  if (r.constant() && r.low >= 1 && r.low <= 32 && r.low == std::floor(r.low))
    return static_cast<unsigned>(r.low);
  build_.bad(width.at, "the number of bits must be a constant, 1 .. 32, or one per value",
             "use an int parameter, or one of several numbers");
  return 0;
}

// A table of byte counts, one entry per `per` values, which lets a reader start at any of its groups.
void Sending::add_lengths(const SendItem& s, Item& it) {
  const auto block = static_cast<double>(program().block);
  it.coding = Coding::kBytes;
  if (!s.table || s.is_float || s.value || s.where || s.bits == 0)
    problems_.add(s.type_at, "'per' is only for tables of byte counts", "table NAME: u16 per 1024");
  else if (const double per = *s.per; !(per >= 1) || per > kMaxBlock || per != std::floor(per) ||
                                      std::fmod(per, std::max(block, 1.0)) != 0)
    problems_.add(s.type_at, fmt::format("this must be a multiple of the block length {}", block),
                  fmt::format("table NAME: u16 per {}", std::max(block, 1.0)));
  else
    it.per = static_cast<std::size_t>(per);
}

void Sending::check_lengths() {
  for (const Item& it : program().items) {
    if (it.coding != Coding::kBytes || problems_.any()) continue;
    const std::size_t blocks = it.per / program().block;
    const auto most = static_cast<double>(blocks * block_bytes(program(), program().block));
    if (!program().varies())
      problems_.add(it.at, "all blocks have the same number of bytes", "remove it");
    else if (most > max_of(it))
      problems_.add(it.at,
                    fmt::format("the byte count can be {}; u{} holds 0 .. {}", most, it.bits, max_of(it)));
  }
}

void Sending::check_range(const SendItem& s, const Item& it, const Node& node) {
  if (s.once && node.stage > Stage::kAll)
    problems_.add(s.name.at, "an item with 'once' must be known before the blocks",
                  "remove 'once': the item is sent with each block");
  if (!s.array && node.stage == Stage::kValue)
    problems_.add(s.type_at, "the value has one element per value, but the item holds one",
                  fmt::format("{}[]", it.is_float ? "f32" : fmt::format("u{}", it.bits)));
  if (it.is_float || (node.range.low >= 0 && node.range.high <= max_of(it))) return;
  const std::string type = s.trits ? "a trit" : fmt::format("u{}", it.bits);
  problems_.add(s.name.at,
                fmt::format("'{}' can be {}; {} holds 0 .. {}", it.name, text(node.range), type, max_of(it)),
                "clamp it, add an offset, or send it in more bits");
}

bool Sending::is_sent(const SendItem& s) {
  if (!s.when) return true;
  const Value v = build_.as(expr(*s.when, Part::kPlan), Type::kBool, "the condition after 'when'");
  if (v.bad()) return true;
  const Range range = build_.of(v).range;
  if (!range.constant())
    build_.bad(s.when->at, "the condition after 'when' must depend only on word and int parameters",
               "'where' states a condition on the item");
  else if (program().law != Law::kDecode || s.per)
    build_.bad(s.when->at,
               "an item with 'when' requires a phase by decode, and must not be a table of bytes");
  return range.low != 0;
}

void Sending::omit_item(const std::vector<SendItem>& all) {
  std::vector<Item> sent;
  std::vector<unsigned> place;
  for (std::size_t k = 0; k < all.size() && k < program().items.size(); ++k) {
    const Item& item = program().items[k];
    place.push_back(static_cast<unsigned>(sent.size()));
    if (is_sent(all[k])) {
      sent.push_back(item);
    } else if (item.input != kNone) {
      Node& read = program().nodes[static_cast<std::size_t>(item.input)];
      read = {.op = Op::kConst, .type = read.type, .decode = true};
    }
  }
  if (sent.empty() && !problems_.any()) build_.bad(all[0].name.at, "with some settings no item is sent");
  for (Node& node : program().nodes)
    if (node.op == Op::kItem) node.index = place[node.index];
  program().items = std::move(sent);
}

// A condition applies to each single payload and to the combined payload; a maximum mixes payloads of several ranks.
void Sending::add_condition(std::size_t k, const ExprPtr& e) {
  const Value v = build_.as(expr(*e, Part::kDecode), Type::kBool, "the condition after 'where'");
  if (v.bad()) return;
  program().items[k].where = v.node;
  if (build_.of(v).before)
    build_.bad(e->at, "'where' checks one payload, which does not contain items of the previous phase",
               "remove it");
  if (program().law != Law::kMax) return;
  std::vector<bool> reads(program().nodes.size());
  reads[static_cast<std::size_t>(v.node)] = true;
  for (std::size_t j = program().nodes.size(); j-- > 0;) {
    if (!reads[j]) continue;
    const Node& node = program().nodes[j];
    if (node.op == Op::kItem && static_cast<int>(j) != program().items[k].input)
      return static_cast<void>(build_.bad(
          e->at, "this condition may fail for maxima, because each maximum can come from another rank",
          "use only the item itself"));
    for (const int from : node.in)
      if (from != kNone) reads[static_cast<std::size_t>(from)] = true;
  }
}

// Pairs have no decode section: the decoded values are those at the indices, and 0 elsewhere.
void Sending::add_pairs(const SendPairs& p) {
  program().sends_pairs = true;
  program().sends_indices = p.indices;
  if (p.indices && program().law != Law::kLeader)
    problems_.add(p.at, "indices without values require a phase by leader",
                  "use phase NAME by leader, or send pairs");
  if (!p.indices && !(program().law == Law::kDecode && file_.phases.size() == 1))
    problems_.add(p.at, "pairs require a codec of one phase",
                  "send indices where ..., and in the next phase values at indices");
  if (p.indices && p.slots) problems_.add(p.at, "indices require a limit 'at most'");
  const Value where = build_.as(expr(*p.where, Part::kEncode), Type::kBool, "the condition after 'where'");
  program().pairs.where = where.node;
  const auto count = [&](const ExprPtr& e, int& node) {
    if (!e) return;
    const Value v = build_.as(expr(*e, Part::kPlan), Type::kF64, "the number of sent values");
    node = v.node;
    if (!v.bad() && !(build_.of(v).range.low >= 0))
      build_.bad(e->at, fmt::format("this can be {}", text(build_.of(v).range)), "max(0, ...)");
  };
  count(p.most, program().pairs.most);
  count(p.keep, program().pairs.keep);
  if (!p.slots) return;
  constexpr double kMaxSlots = 16;
  count(p.slots, program().pairs.slots);
  if (const int k = program().pairs.slots; k != kNone && program().node(k).range.high > kMaxSlots)
    build_.bad(p.slots->at, fmt::format("this can be {}; at most 16 slots per value are allowed",
                                        text(program().node(k).range)));
  if (!(p.per >= 1) || p.per > kMaxBlock || p.per != std::floor(p.per))
    build_.bad(p.slots->at, fmt::format("slots must be 'per' 1 .. {} values", kMaxBlock));
  else
    program().pairs.per = static_cast<std::size_t>(p.per);
}

}  // namespace tithe::lang
