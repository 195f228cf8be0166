// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/emit_cuda_text.h"

#include <algorithm>
#include <bit>
#include <set>

#include "lang/cuda/emit_cuda_lengths.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kOwnValues = 16;  // values per thread, if no sixteen threads add in a fixed order
// Bytes of shared memory per thread block, so that several fit a multiprocessor.
constexpr std::size_t kGroupsShare = 24U << 10;

}  // namespace

std::size_t shared_bytes(const Checked& program) {
  const std::size_t length = program.block == 0 || program.block > kPiece ? kRun : program.block;
  std::size_t shared = 0;
  for (const Item& item : program.items)
    if (item.array && item.coding != Coding::kInts) shared += length * code_bytes(item);
  if (has_lengths(program)) shared += length * program.items.size() + block_bytes(program, length);
  return shared;
}

// A reduction in the order of base/fold.h uses sixteen threads. In a tile each thread has eight values per row of a
// group; elsewhere a group that reduces has no further threads, and other threads have kOwnValues values.
std::size_t CudaText::group() const {
  if (is_long()) return kThreads;
  bool shaped = false;
  for (const auto* list : {&schedule_.look, &schedule_.passes})
    shaped = shaped || std::any_of(list->begin(), list->end(), [&](const Pass& p) { return is_shaped(p); });
  if (in_tiles_)
    return std::clamp(std::bit_ceil((block() + 7) / 8), shaped ? kLanes : std::size_t{4}, kThreads);
  const std::size_t threads = std::bit_ceil((block() + kOwnValues - 1) / kOwnValues);
  std::size_t group = shaped ? kLanes : std::clamp(threads, kLanes, kThreads);
  while (group < kThreads && kThreads / group * shared_bytes(program_) > kGroupsShare) group *= 2;
  return group;
}

Nodes CudaText::reductions() const {
  std::set<int> all;  // of either list of passes
  for (const auto* list : {&schedule_.look, &schedule_.passes})
    for (const Pass& pass : *list) all.insert(pass.reduce.begin(), pass.reduce.end());
  return {all.begin(), all.end()};
}

void CudaText::types() {
  open("struct Found");
  if (reductions().empty()) line("U none;");
  for (const int k : reductions()) line("{} {};", text_.number_type(k), text_.name(k));
  close("};");
  const auto of = [&](const char* count) {
    line("U none;");
    for (const int k : reductions()) partial(k, count);
    close("};");
  };
  open("struct Part");  // of a piece
  of("");
  if (!in_tiles_ || is_long()) {
    line("template <U kOf>");
    open("struct Lanes");
    of("[kOf]");
    line("template <U kOf>");
    open("struct Looking");
    line("Lanes<kOf> lanes;");
    close("};");
  }
  line("enum {{ kGroup = {} }};  // threads that work on a block of the program", group());
  line("DEV uint64_t of_groups(uint64_t groups) {{ return parts_in(groups, kThreads / kGroup); }}");
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

// Defines b (the block), first and len (its values), and begin and end (this thread block's part of them).
void CudaText::open_phase(const std::string& name, Unit unit, std::size_t found, const std::string& also) {
  open(fmt::format("DEV void {}(const Call* call, {}& s, uint64_t at, U thread{}{})", name, shared_,
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
  for (std::size_t p = 0; p < found; ++p)
    for (const int k : passes()[p].reduce) {
      line("const {0} {1} = {2}.{1};", text_.number_type(k), text_.name(k), found_of("b"));
      known(k);
    }
}

void CudaText::take() {
  line("const F x = taken(call, first + i);");
  unless_finite("x");
}

void CudaText::open_values(const std::string& loop) {
  line("bool finite = true;");
  outer_ = defined_;
  open(loop);
}
void CudaText::close_values() {
  close();
  defined_ = outer_;
  line("if (!finite) say(call, 0);");
}
void CudaText::unless_finite(const std::string& value) { line("finite = finite & is_finite({});", value); }

void CudaText::kernel(const std::string& name, const char* common, const std::vector<std::string>& phases) {
  std::string all;
  for (const std::string& phase : phases) all += fmt::format(" PHASE({})", phase);
  line("KERNEL({}, {},{})", name, common, all);
}

void CudaText::group_kernel(const std::string& name, const std::vector<std::string>& phases) {
  std::string all;
  for (const std::string& phase : phases) all += fmt::format(" PHASE({})", phase);
  line("GROUPS({}, Shared, kGroup, runs_of,{})", name, all);
}

void CudaText::launch_groups(const std::string& name) {
  line("LAUNCH({}, of_groups(runs_of(call->n)));", name);
}

// ---- Reductions

void CudaText::partial(int k, const std::string& count) {
  if (by_sample(node(k))) return;
  if (is_sum(k) || is_end(k) || is_fold(k)) line("{} s{}{};", text_.number_type(node(k).in[0]), k, count);
  if (has_place(k)) line("U p{}{};", k, count);
  if (counts(k)) line("U n{}{};", k, count);
}

bool CudaText::finds(std::size_t p) const {
  const Nodes& found = passes()[p].reduce;
  return std::any_of(found.begin(), found.end(), [&](int k) { return !by_sample(node(k)); });
}

bool CudaText::is_shaped(const Pass& pass) const {
  return std::any_of(pass.reduce.begin(), pass.reduce.end(), [&](int k) { return in_shape(k); });
}

// Sums have sixteen lanes. Order-independent reductions use all threads of a group.
std::string CudaText::lanes_of(std::size_t p) const {
  return is_shaped(passes()[p]) ? "kLanes" : is_long() ? "kThreads" : "kGroup";
}

void CudaText::begin_lane(int k) {
  if (by_sample(node(k))) return;
  const std::string type = text_.number_type(node(k).in[0]);
  if (is_sum(k) || is_end(k)) line("{0} s{1} = {0}(0);", type, k);
  if (is_fold(k)) line("{} s{} = {};", type, k, text_.number(node(k).in[2]));
  if (has_place(k)) line("U p{} = kNowhere;", k);
  if (counts(k)) line("U n{} = 0;", k);
}

void CudaText::end_lane(int k) {
  if (by_sample(node(k))) return;
  if (is_sum(k) || is_end(k) || is_fold(k)) line("s.lanes.s{0}[thread] = s{0};", k);
  if (has_place(k)) line("s.lanes.p{0}[thread] = p{0};", k);
  if (counts(k)) line("s.lanes.n{0}[thread] = n{0};", k);
}

void CudaText::functions_of(const Pass& pass) {
  for (const int k : pass.reduce)
    if (is_fold(k)) function_of(k);
}

void CudaText::find(std::size_t p) {
  if (!finds(p)) return;
  const std::string lanes = lanes_of(p);
  const bool rows_first = lanes != "kLanes" && (is_long() || group() > kLanes);
  if (is_long()) shared_ = fmt::format("Looking<{}>", lanes);
  look(p);
  if (rows_first) rows(p);
  open_phase(fmt::format("{}{}_{}", prefix_, is_long() ? "part" : "found", p),
             is_long() ? Unit::kPieces : Unit::kBlocks, p);
  line("if (thread != 0) return;");
  line("{}", is_long() ? "Part& part = static_cast<Part*>(call->parts)[at];" : "Part part;");
  end_lanes(p, lanes, rows_first ? "kLanes" : "1");
  if (!is_long()) line("Found& found = s.found;");
  if (!is_long()) store_found(p);
  close();
  std::string all;
  for (const char* phase : {"look", "rows", is_long() ? "part" : "found"}) {
    if (phase == std::string_view("rows") && !rows_first) continue;
    const std::string name = fmt::format("{}{}_{}", prefix_, phase, p);
    all += fmt::format(" PHASE({})", name);
    if (!is_long()) finding_.push_back(name);
  }
  if (!is_long()) return;
  line("GROUPS(tithe_{}look_{}, {}, {}, pieces_of,{})", prefix_, p, shared_, lanes, all);
  shared_ = "Looking<kLanes>";
  fold(p);
  line("GROUPS(tithe_{0}found_{1}, {2}, kLanes, blocks_of, PHASE({0}fold_{1}) PHASE({0}found_{1}))", prefix_,
       p, shared_);
  shared_ = "Shared";
}

// Combines order-independent lanes: each thread combines sixteen into the first of these.
void CudaText::rows(std::size_t p) {
  open_phase(fmt::format("{}rows_{}", prefix_, p), is_long() ? Unit::kPieces : Unit::kBlocks, p);
  rows_of(passes()[p].reduce, lanes_of(p));
  close();
}

void CudaText::rows_of(const Nodes& reduce, const std::string& lanes) {
  line("const U from = kLanes * thread;");
  line("if (from >= {}) return;", lanes);
  for (const int k : reduce) {
    if (has_place(k)) {
      line("{} s{};", text_.number_type(node(k).in[0]), k);
      line("U p{};", k);
      line("end_of<{0}>(s.lanes.s{1} + from, s.lanes.p{1} + from, kLanes, 1, s{1}, p{1});",
           node(k).op == Op::kLargest, k);
      line("s.lanes.s{0}[from] = s{0}, s.lanes.p{0}[from] = p{0};", k);
    } else if (is_end(k)) {
      line("s.lanes.s{0}[from] = max_lane(s.lanes.s{0} + from, kLanes, 1);", k);
    } else if (counts(k)) {
      line("s.lanes.n{0}[from] = sum_of(s.lanes.n{0} + from, kLanes, 1);", k);
    }
  }
}

void CudaText::look(std::size_t p) {
  const Pass& pass = passes()[p];
  open_phase(fmt::format("{}look_{}", prefix_, p), Unit::kPieces, p);
  line("if (thread >= {}) return;", lanes_of(p));
  define_all(pass.block);
  before_loop(pass.value);
  functions_of(pass);
  for (const int k : pass.reduce) begin_lane(k);
  open_values(fmt::format("UNROLL for (size_t i = begin + thread; i < end; i += {})", lanes_of(p)));
  take();
  define_all(pass.value);
  for (const int k : pass.reduce)
    if (!by_sample(node(k))) add_value(k);
  close_values();
  for (const int k : pass.reduce) end_lane(k);
  close();
}

void CudaText::add_value(int k) {
  const Node& n = node(k);
  const std::string v = text_.values(n.in[0]);
  if (n.in[1] != kNone) open(fmt::format("if ({})", text_.values(n.in[1])));
  if (is_sum(k)) line("s{0} = add(s{0}, {1});", k, v);
  if (is_fold(k)) line("s{0} = f{0}(s{0}, {1});", k, v);
  if (has_place(k))
    line("look_at<{0}>({1}, U(i), s{2}, p{2});", n.op == Op::kLargest, v, k);
  else if (is_end(k))
    line("s{0} = max_(s{0}, {1});", k, v);
  if (counts(k))
    line("n{} += {};", k,
         is_sum(k)          ? "1"
         : n.op == Op::kAll ? fmt::format("!{}", v)
                            : fmt::format("as_u({})", v));
  if (n.in[1] != kNone) close();
}

// One thread combines the lanes into `part`.
void CudaText::end_lanes(std::size_t p, const std::string& lanes, const char* by) {
  functions_of(passes()[p]);
  for (const int k : passes()[p].reduce) {
    if (by_sample(node(k))) continue;
    if (is_fold(k)) line("part.s{0} = total_by(s.lanes.s{0}, f{0});", k);
    if (is_fold(k) && !is_long())  // the block is one piece
      line("part.s{0} = total_of_piece({1}({2}), part.s{0}, f{0});", k, text_.number_type(k),
           text_.number(node(k).in[2]));
    if (is_sum(k)) line("part.s{0} = total_of(s.lanes.s{0});", k);
    if (has_place(k))
      line("end_of<{0}>(s.lanes.s{1}, s.lanes.p{1}, {2}, {3}, part.s{1}, part.p{1});",
           node(k).op == Op::kLargest, k, lanes, by);
    else if (is_end(k))
      line("part.s{0} = max_lane(s.lanes.s{0}, {1}, {2});", k, lanes, by);
    if (counts(k) && in_shape(k))
      line("part.n{0} = sum_of(s.lanes.n{0}, kLanes, 1);", k);
    else if (counts(k))
      line("part.n{0} = sum_of(s.lanes.n{0}, {1}, {2});", k, lanes, by);
  }
}

// The pieces of a block are distributed over sixteen lanes, like values.
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
  open("UNROLL for (size_t j = thread; j < there; j += kLanes)");
  for (const int k : pass.reduce) {
    if (by_sample(node(k))) continue;
    if (is_sum(k)) line("s{0} = add(s{0}, part[j].s{0});", k);
    if (is_fold(k)) line("s{0} = f{0}(s{0}, part[j].s{0});", k);
    if (has_place(k))
      line("look_at<{0}>(part[j].s{1}, part[j].p{1}, s{1}, p{1});", node(k).op == Op::kLargest, k);
    else if (is_end(k))
      line("s{0} = max_(s{0}, part[j].s{0});", k);
    if (counts(k)) line("n{0} += part[j].n{0};", k);
  }
  close();
  for (const int k : pass.reduce) end_lane(k);
  close();
  open_phase(fmt::format("{}found_{}", prefix_, p), Unit::kBlocks, p);
  line("if (thread != 0) return;");
  line("Part part;");
  line("Found& found = {};", found_of("b"));
  end_lanes(p, "kLanes", "1");
  store_found(p);
  close();
}

void CudaText::store_found(std::size_t p) {
  for (const int k : passes()[p].reduce) {
    if (by_sample(node(k))) continue;
    const Node& n = node(k);
    const std::string type = text_.number_type(k), to = "found." + text_.name(k);
    if (is_sum(k)) {
      line("const {0} t{1} = within(part.s{1}, {0}({2}));", type, k,
           n.type == Type::kF64 ? "0x1.fffffffffffffp1023" : "0x1.fffffep127f");
      if (n.op == Op::kSum) line("{} = t{};", to, k);
      if (n.op == Op::kMean) {
        line("const uint64_t c{} = {};", k, n.in[1] == kNone ? "len" : fmt::format("part.n{}", k));
        line("{0} = c{1} == 0 ? {2}(0) : div_(t{1}, {2}(c{1}));", to, k, type);
      }
    } else if (is_end(k) || is_fold(k)) {
      line("{} = part.s{};", to, k);
    } else {
      line("{} = part.n{}{};", to, k, n.op == Op::kCount ? "" : n.op == Op::kAny ? " != 0" : " == 0");
    }
  }
}

void CudaText::scratch_size() {
  open("API uint64_t tithe_scratch(const Call* host_call)");
  line("Call of = *host_call;");
  line("of.scratch = nullptr;");
  line("return place_all(of);");
  close();
}

void CudaText::open_host(const char* name) {
  open(fmt::format("API void {}(const Call* host_call, Stream stream)", name));
  line("Call of = *host_call;");
  line("const Call* const call = &of;");
  line("place_all(of);");
}

void CudaText::place_found() {
  line("of.found = of.scratch;");
  line("of.parts = of.scratch + up8(blocks_of(of.n) * sizeof(Found));");
}

void CudaText::launch_pass(std::size_t p) {
  if (!finds(p)) return;
  line("LAUNCH(tithe_look_{}, parts_in(pieces_of(call->n), kThreads / {}));", p, lanes_of(p));
  line("LAUNCH(tithe_found_{}, parts_in(blocks_of(call->n), kThreads / kLanes));", p);
}

}  // namespace tithe::lang
