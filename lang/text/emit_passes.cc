// SPDX-License-Identifier: Apache-2.0
// defined_ has the nodes that the generated text declares in its present scope, so define() declares each node once, at
// its first use. Invariant: operands are declared before their users, because the lists of a Schedule are in
// topological order, and code that opens a nested scope restores defined_ when it closes the scope.
#include "lang/text/emit_passes.h"

#include <algorithm>

#include "codec/shared/common/block.h"

namespace tithe::lang {

void PassText::open(const std::string& head) {
  line("{}{}{{", head, head.empty() ? "" : " ");
  ++depth_;
}

void PassText::close(const char* tail) {
  --depth_;
  line("{}", tail);
}

bool PassText::sends_each() const {
  return decodes() || schedule_.passes.empty() ||
         std::any_of(program_.items.begin(), program_.items.end(),
                     [](const Item& item) { return item.array; });
}

std::string PassText::from_bits(int k, const std::string& bits) const {
  const Type type = node(k).type;
  return type == Type::kF32    ? fmt::format("float_({})", bits)
         : type == Type::kBool ? fmt::format("{} != 0", bits)
                               : bits;
}

// ---- Nodes

// Declares node k at its first use in the present scope. Inputs and operators with state have forms of their own.
void PassText::define(int k) {
  const Node& n = node(k);
  if (n.op == Op::kConst || defined_[static_cast<std::size_t>(k)]) return;
  if (!within_floors_.empty() && within_floors_[static_cast<std::size_t>(k)]) return;
  known(k);
  if (!text_.is_declared(k)) return;
  if (const auto floor = floors_.find(k); floor != floors_.end()) return define_floor(floor->second);
  switch (n.op) {
    case Op::kTaken:
      if (of_sixteen_) line("const F v{} = x;", k);
      return;
    case Op::kGrad:
      return line("const F {} = {};", text_.name(k),
                  of_sixteen_ ? "load_as(tail, g + i, count)" : "fetch(call->grad + first + i)");
    case Op::kBefore:
      return line("{}", agreed(k));
    case Op::kAdded:
      return line("const int32_t {} = int32_t({});", text_.name(k),
                  n.index == 0 ? "added" : "call->agreed_ranks");
    case Op::kDraw:
    case Op::kSharedDraw:
      return line("const U {} = {};", text_.name(k), draw(k, n.index));
    case Op::kScan:
      return line("const U v{} = scan({}, c{});", k, text_.values(n.in[0]), k);
    case Op::kRank:
      return line("const U v{} = load_u(t{} + i);", k, n.in[0]);
    case Op::kEntry:
      return line("{}", entry(k));
    case Op::kSums:
      line("uint32_t t{}[{}];", k, n.index);
      return line("add_up<{0}>(t{1}, t{2});", n.index, n.in[0], k);
    case Op::kLevel: {
      const bool of_number = of_sixteen_ && node(n.in[0]).op == Op::kTaken;
      return line("const I {} = level_of{}({}t{}, {}, {});", text_.name(k), of_number ? "_number" : "",
                  of_number ? plain_loop_ ? "tail, " : "Yes(), " : "", k, text_.values(n.in[0]),
                  draw(k, static_cast<unsigned>(block::Steps::fraction_of(n.index))));
    }
    case Op::kDiv:
      if (!by_one(k)) return line("{}", text_.definition(k));
      return line("const D v{} = divided({}, by{});", k, text_.values(n.in[0]), k);
    case Op::kDivide:
      if (!by_one(k)) return line("{}", text_.definition(k));
      return line("const D v{} = divided_or({}, by{}, {});", k, text_.values(n.in[0]), k,
                  text_.values(n.in[2]));
    default:
      line("{}", text_.definition(k));
  }
}

void PassText::define_floor(const FloorText& of) {
  line("const F s{} = {};", of.root, of.sum);
  std::string leaves;
  for (const int k : of.leaves) leaves += fmt::format("{}v{}", leaves.empty() ? "" : ", ", k);
  line("const {0} v{1} = __builtin_expect(clear(s{1}, near{1}), 1) ? {2} : exact{1}({3});",
       text_.value_type(of.root), of.root, of.whole, leaves);
}

void PassText::floors_before_loop(const Nodes& nodes, const Nodes& kept) {
  if (!of_sixteen_) return;
  std::vector<bool> within(defined_.size());
  for (const int root : nodes) {
    auto found = floor_text(program_, text_, root, nodes, kept);
    if (!found) continue;
    for (const std::string& text : found->before) line("{}", text);
    const std::vector<bool> before = defined_;
    std::string leaves;
    for (const int k : found->leaves) {
      leaves += fmt::format("{}{} v{}", leaves.empty() ? "" : ", ", text_.value_type(k), k);
      known(k);
    }
    // One out-of-line function for all copies of the loop body.
    open(fmt::format("const auto exact{} = [=]({}) __attribute__((noinline, cold))", root, leaves));
    define_all(found->inside);
    define(root);
    line("return v{};", root);
    close("};");
    defined_ = before;
    for (const int k : found->alone) within[static_cast<std::size_t>(k)] = true;
    floors_.emplace(root, std::move(*found));
  }
  within_floors_ = std::move(within);
}

void PassText::end_of_floors() {
  floors_.clear();
  within_floors_.clear();
}

void PassText::define_all(const Nodes& nodes) {
  for (const int k : nodes) define(k);
}

void PassText::plan() {
  defined_.assign(defined_.size(), false);
  if (of_sixteen_) line("const uint64_t key = call->key, shared_key = call->shared_key;");
  if (block_is_reported()) line("const size_t block_length = call->block;");
  define_all(schedule_.plan);
  text_.clear_cached();
}

void PassText::context() {
  for (std::size_t k = 0; k < program_.before.size(); ++k)
    if (program_.before[k].input != kNone) line("const uint32_t* const c{0} = call->agreed[{0}];", k);
  define_all(schedule_.all);
}

// A number of the previous phase, from ObjectCall::agreed.
std::string PassText::agreed(int k) const {
  const Node& n = node(k);
  const bool value = n.stage == Stage::kValue;
  std::string bits = fmt::format("c{}[0]", n.index);
  if (value)
    bits = of_sixteen_ ? fmt::format("load_u_as(tail, c{} + (first + i), count)", n.index)
                       : fmt::format("fetch(c{} + first + i)", n.index);
  else if (n.stage == Stage::kBlock && program_.block != 0)
    bits = of_sixteen_ ? fmt::format("c{}[number]", n.index)
                       : fmt::format("c{}[first / {}]", n.index, program_.block);
  if (n.type == Type::kF32) bits = fmt::format("float_({})", bits);
  if (n.type == Type::kBool)
    bits = value && of_sixteen_ ? fmt::format("ne({}, splat(0U))", bits) : fmt::format("{} != 0", bits);
  return fmt::format("const {} {} = {};", value ? text_.value_type(k) : text_.number_type(k), text_.name(k),
                     bits);
}

void PassText::keep_numbers(const Nodes& of) {
  for (const int k : of) {
    const Node& n = node(k);
    const bool shift = n.op == Op::kShiftLeft || n.op == Op::kShiftRight;
    if (n.stage != Stage::kValue || n.op == Op::kConvert || n.op == Op::kLevel) continue;
    for (const int from : n.in) {
      if (from == kNone || node(from).stage == Stage::kValue) continue;
      if (shift && from == n.in[1] && node(from).op == Op::kConst) continue;
      if (const std::string text = text_.keep(from); !text.empty()) line("{}", text);
    }
  }
}

std::string PassText::draw(int k, unsigned bits) const {
  const char* key = node(k).op == Op::kSharedDraw ? "shared_key" : "key";
  if (keeps_draws(bits))
    return fmt::format("draw_kept(tail, second, {}, first + i, {}, word{})", key, bits, k);
  if (draws_own_) return fmt::format("draw_own(word{}, k, call->{}, first + i, {})", k, key, bits);
  return fmt::format("draw({}{}, first + i, {})", of_sixteen_ ? "" : "call->", key, bits);
}

void PassText::before_loop(const Nodes& nodes) {
  for (const int k : nodes) {
    const Node& n = node(k);
    if (n.op == Op::kScan) line("uint32_t c{} = 0;", k);
    if (n.op == Op::kLevel) line("const Steps t{} = steps_of({}, {});", k, text_.number(n.in[1]), n.index);
    if (by_one(k)) line("const By by{} = by_of({});", k, text_.number(n.in[1]));
    if (n.op != Op::kDraw && n.op != Op::kSharedDraw && n.op != Op::kLevel) continue;
    if (of_sixteen_) line("U word{} = splat(0U);", k);
    if (draws_own_) line("U word{}[4];", k);
  }
}

// ---- Loops

void PassText::open_blocks() {
  if (program_.block == 0) {
    open("do");
    line("const size_t first = 0, len = n, number = 0;");
  } else {
    open(fmt::format("for (size_t first = 0, number = 0; first < n; first += {}, ++number)", block_length()));
    line("const size_t len = n - first < {0} ? n - first : {0};", block_length());
  }
}

bool PassText::block_is_reported() const {
  return of_sixteen_ && program_.block_of_params &&
         std::none_of(program_.nodes.begin(), program_.nodes.end(),
                      [](const Node& n) { return is_table(n.op); });
}

void PassText::close_blocks() { close(program_.block == 0 ? "} while (0);" : "}"); }

// A loop body is a generic lambda, which run_body() instantiates for full runs and for the last, shorter one.
void PassText::open_body() {
  open("auto body = [&](auto tail, auto second, size_t i, size_t count) __attribute__((always_inline))");
  outer_ = defined_;
  in_body_ = true;
}

void PassText::close_body() {
  defined_ = outer_;
  in_body_ = false;
  close("};");
}

void PassText::run_body(const char* from, const char* to, const std::string& how) {
  line("{}({}, {}, body, {});", in_pairs() ? "by_pairs" : "by_sixteen", from, to, how);
}

}  // namespace tithe::lang
