// SPDX-License-Identifier: Apache-2.0
// Each phase of a tile has two instances; the one for whole tiles (kWhole) has no bounds checks. If a tile holds a
// whole block, sixteen lanes add sums and folds from shared memory (s.x), in the order of base/fold.h, and each thread
// computes the other reductions of the values in its registers (own.x).
#include "lang/cuda/emit_cuda_tiles.h"

#include "lang/cuda/emit_cuda_tiles_text.h"

namespace tithe::lang {

std::string TilesText::run() {
  types();
  tile();
  shared();
  if (!trits()) bytes();
  for (std::size_t p = 0; p < schedule_.passes.size(); ++p) {
    if (is_long())
      find(p);
    else
      find_in_tile(p);
  }
  send();
  tiles_kernel("tithe_send", phases_);
  if (program_.adds()) kernel("tithe_words", "Nothing", {"write_words"});
  if (decodes()) {
    receive();
    line("TILES(tithe_receive, Nothing, Nothing, TILE_PHASE(receive))");
  }
  host();
  return std::move(out_);
}

void TilesText::tile() {
  line("enum : U {{ kOwn = {}, kTile = kGroup * kOwn }};", own_values());
  line("// The tile of group `at` of the grid.");
  open("DEV Tile tile_of(const Call* call, uint64_t at)");
  const std::size_t runs = (block() + kRun - 1) / kRun;
  line("Tile t = {{}};");
  if (block() == 0) {
    line("t.len = call->n;");
  } else {
    line("t.b = at{};", is_long() ? fmt::format(" / {}", runs) : "");
    line("t.first = t.b * {};", block());
    line("t.len = min_<size_t>(call->n - t.first, {});", block());
  }
  if (is_long())
    line("t.begin = min_<size_t>(at{} * kTile, t.len);", block() == 0 ? "" : fmt::format(" % {}", runs));
  line("t.values = U(min_<size_t>(t.len - t.begin, kTile));");
  line("return t;");
  close();
}

void TilesText::shared() {
  line("enum {{ kAnswers = {} }};", 1 + program_.items.size());
  open("struct Shared");
  if (!is_long() && !schedule_.passes.empty()) {
    line("Found found;");
    open("struct");
    for (const int k : reductions()) partial(k, in_shape(k) ? "[kLanes]" : "[kGroup]");
    close("} lanes;");
  }
  if (adds_up()) line("alignas(16) F x[kTile];");
  each([&](std::size_t k, const Item& item) {
    if (!is_packed(item)) return;
    const unsigned bits = field_bits(item);
    line("uint{}_t c{}[kTile / {}];", bits <= 8 ? 8 : bits <= 16 ? 16 : 32, k, codes_in_field(item.bits));
  });
  close("};");
  open("struct Own");
  line("F x[kOwn];");
  close("};");
}

void TilesText::tile_numbers() {
  line("const size_t n = call->n;");
  line("const size_t b = tile.b;");
  line("const size_t first = tile.first;");
  line("const size_t len = tile.len;");
}

void TilesText::open_tile(const std::string& name, std::size_t found, const char* common, const char* own) {
  line("template <bool kWhole>");
  open(fmt::format("DEV void {}(const Call* call, {}& s, {}& own, const Tile& tile, U thread)", name, common,
                   own));
  tile_numbers();
  plan();
  if (!program_.before.empty()) context();
  for (std::size_t p = 0; p < found; ++p) {
    if (found_by_all(p)) {
      line("Found found{};", p);
      line("find_{0}(call, s, tile, found{0});", p);
    }
    for (const int k : passes()[p].reduce) {
      line("const {0} {1} = {2}.{1};", text_.number_type(k), text_.name(k),
           found_by_all(p) ? fmt::format("found{}", p) : found_of("b"));
      known(k);
    }
  }
}

void TilesText::open_own(const Nodes& nodes) {
  draws_own_ = block() % 32 == 0;
  before_loop(nodes);
  outer_ = defined_;
  open("ALL for (U k = 0; k < kOwn; ++k)");
  line("const U at = own_value<kGroup>(thread, k);");
  line("if (!kWhole && at >= tile.values) continue;");
  line("const size_t i = {}at;", is_long() ? "tile.begin + " : "");
}

void TilesText::close_own() {
  close();
  defined_ = outer_;
  draws_own_ = false;
}

void TilesText::tiles_kernel(const char* name, const std::vector<std::string>& phases) {
  std::string all;
  for (const std::string& phase : phases) all += fmt::format(" TILE_PHASE({})", phase);
  line("TILES({}, Shared, Own,{})", name, all);
}

Nodes TilesText::read_by(const Nodes& reduce, const Nodes& nodes) const {
  std::vector<bool> need(program_.nodes.size());
  const auto mark = [&](int k) {
    for (const int from : node(k).in)
      if (from != kNone) need[static_cast<std::size_t>(from)] = true;
  };
  for (const int k : reduce) mark(k);
  Nodes some;
  for (std::size_t j = nodes.size(); j-- > 0;)
    if (need[static_cast<std::size_t>(nodes[j])]) {
      some.insert(some.begin(), nodes[j]);
      mark(nodes[j]);
    }
  return some;
}

void TilesText::find_in_tile(std::size_t p) {
  const Pass& pass = passes()[p];
  const Nodes shaped = of_pass(p, true), others = of_pass(p, false);
  line("// {}each thread reduces its own.", p == 0 ? "Loads the values; " : "");
  open_phase_of("look", p);
  if (p == 0) line("take_own<kWhole, kGroup>(call, tile, thread, own.x);");
  if (p == 0 && adds_up())
    line("ALL for (U k = 0; k < kOwn; ++k) s.x[own_value<kGroup>(thread, k)] = own.x[k];");
  if (!others.empty()) {
    define_all(pass.block);
    for (const int k : others) begin_lane(k);
    const Nodes nodes = read_by(others, pass.value);
    open_own(nodes);
    line("const F x = own.x[k];");
    define_all(nodes);
    for (const int k : others) add_value(k);
    close_own();
    for (const int k : others) end_lane(k);
  }
  close();
  const bool rows_first = !others.empty() && group() > kMaxPartials;
  if (!shaped.empty() || rows_first) {
    line("// Sixteen lanes{}.",
         shaped.empty() ? ": the partial results" : " add up, in the order of base/fold.h");
    open_phase_of("lanes", p);
    line("if (thread >= kLanes) return;");
    if (!shaped.empty()) add_up(p, shaped);
    if (rows_first) rows_of(others, "kGroup");
    close();
  }
  line("// The results of pass {}.", p);
  open(fmt::format("DEV void find_{}(const Call* call, Shared& s, const Tile& tile, Found& found)", p));
  tile_numbers();
  plan();
  line("Part part;");
  end_lanes(p, "kGroup", rows_first ? "kLanes" : "1");
  store_found(p);
  close();
  if (found_by_all(p)) return;
  open_phase_of("found", p);
  line("if (thread == 0) find_{}(call, s, tile, s.found);", p);
  close();
}

void TilesText::open_phase_of(const char* name, std::size_t p) {
  phases_.push_back(fmt::format("{}_{}", name, p));
  open_tile(phases_.back(), p);
}

void TilesText::add_up(std::size_t p, const Nodes& shaped) {
  const Pass& pass = passes()[p];
  define_all(pass.block);
  const Nodes nodes = read_by(shaped, pass.value);
  before_loop(nodes);
  functions_of(pass);
  for (const int k : shaped) begin_lane(k);
  outer_ = defined_;
  open("UNROLL for (U i = thread; i < (kWhole ? U(kTile) : tile.values); i += kLanes)");
  line("const F x = s.x[i];");
  define_all(nodes);
  for (const int k : shaped) add_value(k);
  close();
  defined_ = outer_;
  for (const int k : shaped) end_lane(k);
}

std::string tiles_text(const Checked& program, const Schedule& schedule) {
  return TilesText(program, schedule).run();
}

}  // namespace tithe::lang
