// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/emit_cuda_text.h"

#include <algorithm>
#include <set>

namespace tithe::lang {

void CudaText::types() {
  std::set<int> all;  // what either list of passes finds
  for (const auto* list : {&schedule_.look, &schedule_.passes})
    for (const Pass& pass : *list) all.insert(pass.reduce.begin(), pass.reduce.end());
  open("struct Found");
  line("U none;");
  for (const int k : all) line("{} b{};", text_.number_type(k), k);
  close("};");
  const auto of = [&](const char* count) {
    line("U none;");
    for (const int k : all) {
      if (by_sample(node(k))) continue;
      if (is_sum(k) || is_end(k) || is_fold(k)) line("{} s{}{};", text_.number_type(node(k).in[0]), k, count);
      if (is_end(k)) line("U p{}{};", k, count);
      if (counts(k)) line("U n{}{};", k, count);
    }
    close("};");
  };
  open("struct Part");  // of a piece
  of("");
  open("struct Lanes");
  of("[kThreads]");
  if (block() == 0)
    line("DEV uint64_t blocks_of(uint64_t) {{ return 1; }}");
  else
    line("DEV uint64_t blocks_of(uint64_t n) {{ return parts_in(n, {}); }}", block());
  const auto count = [&](const char* name, std::size_t length) {
    if (block() == 0) return line("DEV uint64_t {}(uint64_t n) {{ return parts_in(n, {}); }}", name, length);
    if (!is_long()) return line("DEV uint64_t {}(uint64_t n) {{ return blocks_of(n); }}", name);
    line("DEV uint64_t {}(uint64_t n) {{ return parts_in(n, {}) * {}; }}", name, block(),
         (block() + length - 1) / length);
  };
  count("pieces_of", kPiece);
  count("runs_of", kRun);
}

std::string CudaText::found_of(const std::string& b) const {
  return is_long() ? fmt::format("static_cast<Found*>(call->found)[{}]", b) : "s.found";
}

void CudaText::open_phase(const std::string& name, Unit unit, std::size_t found, const std::string& also) {
  open(fmt::format("DEV void {}(const Call* call, Shared& s, uint64_t at, U thread{}{})", name,
                   also.empty() ? "" : ", ", also));
  line("const size_t n = call->n;");
  plan();
  if (!program_.before.empty()) context();
  const std::size_t length = unit == Unit::kPieces ? kPiece : kRun;
  if (!is_long() || unit == Unit::kBlocks) {
    line("const size_t b = at;");
  } else if (block() == 0) {
    line("const size_t b = 0;");
  } else {
    line("const size_t b = at / {};", (block() + length - 1) / length);
  }
  if (block() == 0) {
    line("const size_t first = 0, len = n;");
  } else {
    line("const size_t first = b * {};", block());
    line("const size_t len = n - first < {0} ? n - first : {0};", block());
  }
  if (!is_long() || unit == Unit::kBlocks) {
    line("const size_t begin = 0, end = len;");
  } else {
    const std::string from = block() == 0
                                 ? fmt::format("at * {}", length)
                                 : fmt::format("at % {} * {}", (block() + length - 1) / length, length);
    line("const size_t begin = {0} < len ? {0} : len;", from);
    line("const size_t end = len - begin < {0} ? len : begin + {0};", length);
  }
  line("static_cast<void>(b), static_cast<void>(begin), static_cast<void>(end), static_cast<void>(s);");
  for (std::size_t p = 0; p < found; ++p)
    for (const int k : passes()[p].reduce) {
      line("const {0} b{1} = {2}.b{1};", text_.number_type(k), k, found_of("b"));
      known(k);
    }
}

void CudaText::one_value() {
  line("const int tail = 0;");
  line("const size_t count = 1;");
  line("static_cast<void>(tail), static_cast<void>(count);");
}

void CudaText::take() {
  one_value();
  line("const F x = taken(call, first + i);");
  line("const float* const g = call->grad + first;");
  line("static_cast<void>(g);");
  line("if (!is_finite(x)) call->answer[0] = 1;");
}

void CudaText::kernel(const std::string& name, const char* common, const std::vector<std::string>& phases) {
  std::string all;
  for (const std::string& phase : phases) all += fmt::format(" PHASE({})", phase);
  line("KERNEL({}, {},{})", name, common, all);
}

// ---- What a pass finds

bool CudaText::finds(std::size_t p) const {
  const Nodes& found = passes()[p].reduce;
  return std::any_of(found.begin(), found.end(), [&](int k) { return !by_sample(node(k)); });
}

// Sums have sixteen lanes. Reductions without an order take all threads.
std::string CudaText::lanes_of(std::size_t p) const {
  const Nodes& found = passes()[p].reduce;
  const bool shaped = std::any_of(found.begin(), found.end(), [&](int k) { return is_sum(k) || is_fold(k); });
  return shaped ? "kLanes" : "kThreads";
}

void CudaText::begin_lane(int k) {
  if (by_sample(node(k))) return;
  const std::string type = text_.number_type(node(k).in[0]);
  if (is_sum(k) || is_end(k)) line("{0} s{1} = {0}(0);", type, k);
  if (is_fold(k)) line("{} s{} = {};", type, k, text_.number(node(k).in[2]));
  if (is_end(k)) line("U p{} = kNowhere;", k);
  if (counts(k)) line("U n{} = 0;", k);
}

void CudaText::end_lane(int k) {
  if (by_sample(node(k))) return;
  if (is_sum(k) || is_end(k) || is_fold(k)) line("s.lanes.s{0}[thread] = s{0};", k);
  if (is_end(k)) line("s.lanes.p{0}[thread] = p{0};", k);
  if (counts(k)) line("s.lanes.n{0}[thread] = n{0};", k);
}

void CudaText::functions_of(const Pass& pass) {
  for (const int k : pass.reduce)
    if (is_fold(k)) function_of(k);
}

void CudaText::find(std::size_t p) {
  if (!finds(p)) return;
  look(p);
  if (!is_long()) {
    open_phase(fmt::format("{}found_{}", prefix_, p), Unit::kBlocks, p);
    line("if (thread != 0) return;");
    end_lanes(p, "Part part;");
    store_found(p);
    close();
    finding_.push_back(fmt::format("{}look_{}", prefix_, p));
    finding_.push_back(fmt::format("{}found_{}", prefix_, p));
    return;
  }
  open_phase(fmt::format("{}part_{}", prefix_, p), Unit::kPieces, p);
  line("if (thread != 0) return;");
  end_lanes(p, "Part& part = static_cast<Part*>(call->parts)[at];");
  close();
  fold(p);
  kernel(fmt::format("tithe_{}look_{}", prefix_, p), "Shared",
         {fmt::format("{}look_{}", prefix_, p), fmt::format("{}part_{}", prefix_, p)});
  kernel(fmt::format("tithe_{}found_{}", prefix_, p), "Shared",
         {fmt::format("{}fold_{}", prefix_, p), fmt::format("{}found_{}", prefix_, p)});
}

void CudaText::look(std::size_t p) {
  const Pass& pass = passes()[p];
  open_phase(fmt::format("{}look_{}", prefix_, p), Unit::kPieces, p);
  line("if (thread >= {}) return;", lanes_of(p));
  define_all(pass.block);
  before_loop(pass.value);
  functions_of(pass);
  for (const int k : pass.reduce) begin_lane(k);
  outer_ = defined_;
  open(fmt::format("for (size_t i = begin + thread; i < end; i += {})", lanes_of(p)));
  take();
  define_all(pass.value);
  for (const int k : pass.reduce)
    if (!by_sample(node(k))) add_value(k);
  close();
  defined_ = outer_;
  for (const int k : pass.reduce) end_lane(k);
  close();
}

void CudaText::add_value(int k) {
  const Node& n = node(k);
  const std::string v = text_.values(n.in[0]);
  if (n.in[1] != kNone) open(fmt::format("if ({})", text_.values(n.in[1])));
  if (is_sum(k)) line("s{0} = add(s{0}, {1});", k, v);
  if (is_fold(k)) line("s{0} = f{0}(s{0}, {1});", k, v);
  if (is_end(k)) line("look_at<{0}>({1}, U(i), s{2}, p{2});", n.op == Op::kLargest, v, k);
  if (counts(k))
    line("n{} += {};", k,
         is_sum(k)          ? "1"
         : n.op == Op::kAll ? fmt::format("!{}", v)
                            : fmt::format("as_u({})", v));
  if (n.in[1] != kNone) close();
}

// One thread puts the lanes together in `part`.
void CudaText::end_lanes(std::size_t p, const char* to) {
  line("{}", to);
  functions_of(passes()[p]);
  for (const int k : passes()[p].reduce) {
    if (by_sample(node(k))) continue;
    if (is_fold(k)) line("part.s{0} = total_by(s.lanes.s{0}, f{0});", k);
    if (is_fold(k) && !is_long())  // the block is one piece
      line("part.s{0} = total_of_piece({1}({2}), part.s{0}, f{0});", k, text_.number_type(k),
           text_.number(node(k).in[2]));
    if (is_sum(k)) line("part.s{0} = total_of(s.lanes.s{0});", k);
    if (is_end(k))
      line("end_of<{0}>(s.lanes.s{1}, s.lanes.p{1}, {2}, part.s{1}, part.p{1});", node(k).op == Op::kLargest,
           k, lanes_of(p));
    if (counts(k)) line("part.n{0} = sum_of(s.lanes.n{0}, {1});", k, lanes_of(p));
  }
}

// Pieces of a block go to sixteen lanes as values do.
void CudaText::fold(std::size_t p) {
  const Pass& pass = passes()[p];
  open_phase(fmt::format("{}fold_{}", prefix_, p), Unit::kBlocks, p);
  line("if (thread >= kLanes) return;");
  line("const size_t pieces = {};",
       block() == 0 ? "pieces_of(n)" : fmt::format("{}", (block() + kPiece - 1) / kPiece));
  line("const Part* const part = static_cast<const Part*>(call->parts) + b * pieces;");
  functions_of(pass);
  for (const int k : pass.reduce) begin_lane(k);
  line("const size_t there = (len + {}) / {};", kPiece - 1, kPiece);
  open("for (size_t j = thread; j < there; j += kLanes)");
  for (const int k : pass.reduce) {
    if (by_sample(node(k))) continue;
    if (is_sum(k)) line("s{0} = add(s{0}, part[j].s{0});", k);
    if (is_fold(k)) line("s{0} = f{0}(s{0}, part[j].s{0});", k);
    if (is_end(k))
      line("look_at<{0}>(part[j].s{1}, part[j].p{1}, s{1}, p{1});", node(k).op == Op::kLargest, k);
    if (counts(k)) line("n{0} += part[j].n{0};", k);
  }
  close();
  for (const int k : pass.reduce) end_lane(k);
  close();
  open_phase(fmt::format("{}found_{}", prefix_, p), Unit::kBlocks, p);
  line("if (thread != 0) return;");
  line("Part part;");
  functions_of(pass);
  for (const int k : pass.reduce) {
    if (by_sample(node(k))) continue;
    if (is_fold(k)) line("part.s{0} = total_by(s.lanes.s{0}, f{0});", k);
    if (is_sum(k)) line("part.s{0} = total_of(s.lanes.s{0});", k);
    if (is_end(k))
      line("end_of<{0}>(s.lanes.s{1}, s.lanes.p{1}, kLanes, part.s{1}, part.p{1});",
           node(k).op == Op::kLargest, k);
    if (counts(k)) line("part.n{0} = sum_of(s.lanes.n{0}, kLanes);", k);
  }
  store_found(p);
  close();
}

void CudaText::store_found(std::size_t p) {
  line("Found& found = {};", found_of("b"));
  for (const int k : passes()[p].reduce) {
    if (by_sample(node(k))) continue;
    const Node& n = node(k);
    const std::string type = text_.number_type(k);
    if (is_sum(k)) {
      line("const {0} t{1} = within(part.s{1}, {0}({2}));", type, k,
           n.type == Type::kF64 ? "0x1.fffffffffffffp1023" : "0x1.fffffep127f");
      if (n.op == Op::kSum) line("found.b{0} = t{0};", k);
      if (n.op == Op::kMean) {
        line("const uint64_t c{} = {};", k, n.in[1] == kNone ? "len" : fmt::format("part.n{}", k));
        line("found.b{0} = c{0} == 0 ? {1}(0) : div_(t{0}, {1}(c{0}));", k, type);
      }
    } else if (is_end(k) || is_fold(k)) {
      line("found.b{0} = part.s{0};", k);
    } else {
      line("found.b{0} = part.n{0}{1};", k, n.op == Op::kCount ? "" : n.op == Op::kAny ? " != 0" : " == 0");
    }
  }
}

void CudaText::place_found() {
  line("of.found = of.scratch;");
  line("of.parts = of.scratch + up8(blocks_of(of.n) * sizeof(Found));");
}

void CudaText::launch_pass(std::size_t p) {
  if (!finds(p)) return;
  line("LAUNCH(tithe_look_{}, pieces_of(call->n));", p);
  line("LAUNCH(tithe_found_{}, blocks_of(call->n));", p);
}

// ---- Items

std::string CudaText::array_bytes(const Item& item) const {
  return item.full != 0 ? fmt::format("{}", item_bytes(item, item.full))
                        : fmt::format("(len * {} + 7) / 8", item.bits);
}

void CudaText::receive_as(const Item& item, const std::string& bits, char of) {
  if (item.input == kNone) return;
  const Type type = node(item.input).type;
  line("const {} {}{} = {};", of == 'b' ? text_.number_type(item.input) : text_.value_type(item.input), of,
       item.input,
       type == Type::kF32    ? fmt::format("float_({})", bits)
       : type == Type::kBool ? fmt::format("{} != 0", bits)
                             : bits);
  known(item.input);
}

void CudaText::hold(bool values) {
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const int where = program_.items[k].where;
    if (where == kNone || (node(where).stage == Stage::kValue) != values) continue;
    line("if ({}!({})) call->answer[{}] = 1;", values || program_.block == 0 ? "" : "first < n && ",
         values ? text_.values(where) : text_.number(where), k + 1);
  }
}

}  // namespace tithe::lang
