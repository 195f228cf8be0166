// SPDX-License-Identifier: Apache-2.0
#include "lang/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "lang/passes.h"
#include "lang/scope.h"
#include "tithe/codec.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMostCombinations = 256;
constexpr double kMostBlock = 1U << 20;  // values

class Checker : Scope {
 public:
  using Scope::Scope;

  Checked run() {
    plan();
    block();
    for (const Let& l : file_.encode) let(l, Part::kEncode);
    if (file_.pairs)
      pairs(*file_.pairs);
    else
      send();
    if (problems_.any()) return std::move(program());
    for (const Binding& b : names_)
      if (!b.used && !b.known && !b.shapes && !b.value.bad() && b.part != Part::kPlan)
        problems_.add(b.name.at, fmt::format("'{}' is never used", b.name.text), "leave it out");
    for (const Node& n : program().nodes) program().passes = std::max(program().passes, n.pass);
    return std::move(program());
  }

  Checked run_claim(const Claim& claim) {
    plan();
    const Value v = build_.as(expr(*claim.value, Part::kPlan), Type::kF64, "what is claimed");
    program().result = v.node;
    return std::move(program());
  }

 private:
  void plan() {
    for (std::size_t k = 0; k < file_.params.size(); ++k) {
      const Param& p = file_.params[k];
      const double value = program().params[k];
      Node node{.op = Op::kConst, .type = Type::kI32, .number = value, .range = {value, value}};
      if (!p.whole)
        node = {.op = Op::kParam,
                .type = Type::kF64,
                .index = static_cast<unsigned>(k),
                .range = {p.low, p.high}};
      bind(p.name, build_.input(node, p.name.at), Part::kPlan);
    }
    for (const Let& l : file_.plan) let(l, Part::kPlan);
  }

  void block() {
    if (!file_.block) return;
    const Value v = build_.as(expr(*file_.block, Part::kPlan), Type::kI32, "the length of a block");
    if (v.bad()) return;
    const Range r = build_.of(v).range;
    if (!r.constant() || r.low < 1 || r.high > kMostBlock)
      build_.bad(file_.block->at, fmt::format("the length of a block is a constant, 1 .. {}", kMostBlock));
    else
      program().block = static_cast<std::size_t>(r.low);
  }

  // ---- What is sent

  void send() {
    for (const SendItem& s : file_.send) item(s);
    check_lengths();
    for (std::size_t k = 0; k < file_.send.size(); ++k) {
      const SendItem& s = file_.send[k];
      if (!s.where) continue;
      const Value v = build_.as(expr(*s.where, Part::kDecode), Type::kBool, "what stands behind 'where'");
      if (k < program().items.size()) program().items[k].where = v.node;
    }
    const std::size_t before = names_.size();
    for (Binding& b : names_) b.used = b.part == Part::kDecode ? false : b.used;
    for (const Let& l : file_.decode) let(l, Part::kDecode);
    const Value v = build_.as(expr(*file_.result, Part::kDecode), Type::kF32, "what is decoded");
    program().result = v.node;
    if (problems_.any()) return;
    for (std::size_t k = 0; k < before; ++k)
      if (names_[k].part == Part::kDecode && !names_[k].used && !names_[k].known && !names_[k].shapes &&
          !names_[k].value.bad()) {
        problems_.add(names_[k].name.at,
                      fmt::format("'{}' is sent, and decode does not use it", names_[k].name.text),
                      "leave it out");
        names_[k].used = true;
      }
  }

  void item(const SendItem& s) {
    program().items.push_back({.name = std::string(s.name.text),
                               .at = s.name.at,
                               .once = s.once,
                               .table = s.table,
                               .is_float = s.is_float,
                               .array = s.array,
                               .bits = s.bits});
    Item& it = program().items.back();
    stands_well(s, it);
    if (s.per != 0) return lengths(s, it);
    Value v = s.value
                  ? expr(*s.value, Part::kEncode)
                  : name(Expr{.kind = ExprKind::kName, .at = s.name.at, .text = s.name.text}, Part::kEncode);
    if (!width(s, it)) v = {.at = v.at};
    Type type = Type::kF32;
    if (s.places)
      type = Type::kBool;
    else if (!s.is_float)
      type = !v.bad() && !v.literal && build_.of(v).type != Type::kF32 ? build_.of(v).type : Type::kU32;
    v = build_.as(v, type, fmt::format("'{}'", s.name.text));
    if (v.bad()) return bind(s.name, v, Part::kDecode);
    it.value = v.node;
    const Node node = build_.of(v);
    fits(s, it, node);
    if (node.stage == Stage::kPlan && it.coding == Coding::kCodes) {
      bind(s.name, v, Part::kDecode);
      names_.back().known = true;
      return;
    }
    const Value seen = build_.input(reads(it, type), s.name.at);
    it.input = seen.node;
    bind(s.name, seen, Part::kDecode);
  }

  // What the receiver reads of an item whose values have this type.
  Node reads(const Item& it, Type type) {
    constexpr double kMost = std::numeric_limits<float>::max();
    Node read{.op = Op::kItem, .decode = true};
    read.type = it.is_float ? Type::kF32 : type == Type::kBool ? Type::kBool : Type::kU32;
    read.stage = it.array ? Stage::kValue : it.once ? Stage::kAll : Stage::kBlock;
    read.index = static_cast<unsigned>(program().items.size() - 1);
    read.range = it.is_float ? Range{-kMost, kMost} : Range{0, most_of(it)};
    return read;
  }

  static double most_of(const Item& it) {
    return it.coding == Coding::kTrits ? 2 : std::ldexp(1.0, static_cast<int>(it.bits)) - 1;
  }

  // Where it stands among the others, and what kinds there are.
  void stands_well(const SendItem& s, Item& it) {
    const std::size_t count = program().items.size();
    const Item* above = count > 1 ? &program().items[count - 2] : nullptr;
    const auto refuse = [&](const char* what, const char* help = "") {
      problems_.add(s.type_at, what, help);
    };
    if (s.once && above != nullptr && !above->once)
      problems_.add(s.name.at, "what is sent once stands in front of the rest");
    if (s.table && above != nullptr && above->in_block())
      problems_.add(s.name.at, "a table stands in front of the blocks");
    if (s.once && s.array) refuse("'once' is for one number");
    if (s.table && s.array) refuse("a table has one number of each block");
    if (program().block == 0 && (s.table || s.full))
      refuse("there is one block here, of all values", "give blocks a length: block 1024");
    if (s.trits) it.coding = Coding::kTrits;
    if (s.places) it.coding = Coding::kPlaces;
    if (s.full || s.places) it.full = program().block;
    if (!s.full) return;
    if (s.is_float) refuse("whole numbers fill a short block with zeros, floats do not", "f32[]");
  }

  // The bits of its codes: one number, or one for each value that follows from what stands in front of it.
  bool width(const SendItem& s, Item& it) {
    if (!s.width) return true;
    Value w = expr(*s.width, Part::kDecode);
    for (Binding& b : names_) b.shapes = b.shapes || (b.used && b.part == Part::kDecode);
    if (w.literal) w = build_.as(w, Type::kI32, "the number of bits");
    if (w.bad()) return false;
    if (build_.of(w).stage != Stage::kValue) {
      it.bits = bits_of(w);
      return it.bits != 0;
    }
    if (is_float(build_.of(w).type))
      return build_.bad(w.at, "the number of bits is a whole one").node != kNone;
    if (!s.array || s.full)
      return build_.bad(w.at, "there is one width for each value", "u<...>[]").node != kNone;
    w = build_.call("u32", {w}, nullptr, true, w.at);
    if (w.bad()) return false;
    const Range range = build_.of(w).range;
    if (range.high > 32)
      return build_
                 .bad(w.at, fmt::format("this can be {}, and a code has at most 32 bits", text(range)),
                      "min(..., 32)")
                 .node != kNone;
    it.coding = Coding::kWidths;
    it.width = w.node;
    it.bits = std::max(1U, static_cast<unsigned>(range.high));
    return true;
  }

  unsigned bits_of(const Value& width) {
    const Range r = build_.of(width).range;
    if (r.constant() && r.low >= 1 && r.low <= 32 && r.low == std::floor(r.low))
      return static_cast<unsigned>(r.low);
    build_.bad(width.at, "the number of bits is a constant, 1 .. 32, or one for each value",
               "a parameter that is int or one of several numbers");
    return 0;
  }

  // The bytes of each so many values' blocks, for readers that start there.
  void lengths(const SendItem& s, Item& it) {
    const auto block = static_cast<double>(program().block);
    it.coding = Coding::kBytes;
    if (!s.table || s.is_float || s.value || s.where || s.bits == 0)
      problems_.add(s.type_at, "'per' is for a table of the bytes that so many values take",
                    "table NAME: u16 per 1024");
    else if (!(s.per >= 1) || s.per > kMostBlock || s.per != std::floor(s.per) ||
             std::fmod(s.per, std::max(block, 1.0)) != 0)
      problems_.add(s.type_at, fmt::format("a whole number of blocks is wanted, of {} values each", block));
    else
      it.per = static_cast<std::size_t>(s.per);
  }

  void check_lengths() {
    for (const Item& it : program().items) {
      if (it.coding != Coding::kBytes || problems_.any()) continue;
      const std::size_t blocks = it.per / program().block;
      const auto most = static_cast<double>(blocks * block_bytes(program(), program().block));
      if (!program().varies())
        problems_.add(it.at, "all blocks have the same bytes here", "leave it out");
      else if (most > most_of(it))
        problems_.add(
            it.at, fmt::format("they can take {} bytes, and u{} holds 0 .. {}", most, it.bits, most_of(it)));
    }
  }

  void fits(const SendItem& s, const Item& it, const Node& node) {
    if (s.once && node.stage > Stage::kAll)
      problems_.add(s.name.at, "'once' is for what is known before the blocks",
                    "leave out 'once': it is sent with each block");
    if (!s.array && node.stage == Stage::kValue)
      problems_.add(s.type_at, "there is one of it for each value, and room for one",
                    fmt::format("{}[]", it.is_float ? "f32" : fmt::format("u{}", it.bits)));
    if (it.is_float || (node.range.low >= 0 && node.range.high <= most_of(it))) return;
    const std::string type = s.trits ? "a trit" : fmt::format("u{}", it.bits);
    problems_.add(
        s.name.at,
        fmt::format("'{}' can be {}, and {} holds 0 .. {}", it.name, text(node.range), type, most_of(it)),
        "clamp it, add what it lacks, or send it in more bits");
  }

  void pairs(const SendPairs& p) {
    program().sends_pairs = true;
    const Value where = build_.as(expr(*p.where, Part::kEncode), Type::kBool, "what stands behind 'where'");
    program().pairs.where = where.node;
    const auto count = [&](const ExprPtr& e, int& node) {
      if (!e) return;
      const Value v = build_.as(expr(*e, Part::kPlan), Type::kF64, "how many are sent");
      node = v.node;
      if (!v.bad() && !(build_.of(v).range.low >= 0))
        build_.bad(e->at, fmt::format("this can be {}", text(build_.of(v).range)), "max(0, ...)");
    };
    count(p.most, program().pairs.most);
    count(p.keep, program().pairs.keep);
    if (!p.slots) return;
    constexpr double kMostSlots = 16;
    count(p.slots, program().pairs.slots);
    if (const int k = program().pairs.slots; k != kNone && program().node(k).range.high > kMostSlots)
      build_.bad(p.slots->at, fmt::format("this can be {}, and 16 slots for each value are the most",
                                          text(program().node(k).range)));
    if (!(p.per >= 1) || p.per > kMostBlock || p.per != std::floor(p.per))
      build_.bad(p.slots->at, fmt::format("slots are 'per' 1 .. {} values", kMostBlock));
    else
      program().pairs.per = static_cast<std::size_t>(p.per);
  }
};

bool all_numbers(const std::vector<Name>& words) {
  return std::all_of(words.begin(), words.end(),
                     [](const Name& w) { return w.text[0] >= '0' && w.text[0] <= '9'; });
}

void check_param(const Param& p, Problems& problems) {
  if (p.words.empty()) {
    if (!(p.low <= p.fallback && p.fallback <= p.high))
      problems.add(p.name.at, fmt::format("'{}' is {} where none is given, and must lie in {}", p.name.text,
                                          p.fallback, text({p.low, p.high})));
    if (p.whole && (p.low != std::floor(p.low) || p.high != std::floor(p.high) ||
                    p.fallback != std::floor(p.fallback) || p.high - p.low >= kMostCombinations))
      problems.add(p.name.at, "whole numbers are wanted, and not more than 256 of them",
                   "param NAME: int = 4 in 2 .. 8");
  }
  for (std::size_t k = 0; k < p.words.size(); ++k)
    for (std::size_t j = 0; j < k; ++j)
      if (p.words[j].text == p.words[k].text)
        problems.add(p.words[k].at, fmt::format("'{}' stands here twice", p.words[k].text));
}

}  // namespace

std::vector<double> values_of(const Param& param) {
  std::vector<double> all;
  if (!param.whole) return all;
  if (param.words.empty())
    for (double v = param.low; v <= param.high; ++v) all.push_back(v);
  const bool numbers = all_numbers(param.words);
  for (std::size_t k = 0; k < param.words.size(); ++k) {
    double v = static_cast<double>(k);
    if (numbers)
      std::from_chars(param.words[k].text.data(), param.words[k].text.data() + param.words[k].text.size(), v);
    all.push_back(v);
  }
  return all;
}

std::vector<Checked> check(const File& file, Problems& problems) {
  if (file.params.size() > kMaxParams)
    problems.add(file.params[kMaxParams].name.at,
                 fmt::format("a codec has at most {} parameters", kMaxParams));
  double combinations = 1;
  for (const Param& p : file.params) {
    check_param(p, problems);
    if (p.whole) combinations *= static_cast<double>(values_of(p).size());
  }
  if (combinations > kMostCombinations)
    problems.add(file.name.at,
                 fmt::format("its whole numbers and words combine in {} ways, and {} are allowed",
                             combinations, kMostCombinations));
  std::vector<Checked> all;
  if (problems.any()) return all;
  std::vector<std::size_t> turn(file.params.size(), 0);
  for (std::size_t c = 0; c < static_cast<std::size_t>(combinations); ++c) {
    std::size_t rest = c;
    std::vector<double> params(file.params.size());
    for (std::size_t k = file.params.size(); k-- > 0;) {
      const std::vector<double> values = values_of(file.params[k]);
      params[k] = values.empty() ? file.params[k].fallback : values[rest % values.size()];
      if (!values.empty()) rest /= values.size();
    }
    all.push_back(Checker(file, params, problems).run());
    if (problems.any()) return {};
  }
  for (const Claim& claim : file.claims) {
    if (claim.name.text != "unbiased" && claim.name.text != "exact" && claim.name.text != "contraction")
      problems.add(claim.name.at, fmt::format("nobody tests '{}'", claim.name.text),
                   "claim unbiased, exact, or contraction and a bound");
    else if (claim.value)
      for (std::size_t c = 0; c < all.size() && !problems.any(); ++c)
        check_claim(file, claim, all[c], problems);
  }
  return all;
}

Checked check_claim(const File& file, const Claim& claim, const Checked& of, Problems& problems) {
  return Checker(file, of.params, problems).run_claim(claim);
}

}  // namespace tithe::lang
