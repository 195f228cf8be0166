// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/emit_cuda_tiles.h"

#include <algorithm>

namespace tithe::lang {

namespace {

constexpr std::size_t kMostTile = 2048;   // 16 values per thread; longer blocks are read once per pass
constexpr std::size_t kLanes = 16;        // as in prelude_cuda_types.h
constexpr std::size_t kMostPartials = 8;  // partial results that every thread combines for itself

class TilesText : CudaText {
 public:
  TilesText(const Checked& program, const Schedule& schedule) : CudaText(program, schedule) {
    in_tiles_ = true;
    longest_ = kMostTile;
  }

  std::string run() {
    types();
    tile();
    shared();
    if (!trits())
      line("DEV uint64_t bytes_of(uint64_t n, [[maybe_unused]] U field_bits) {{ return {}; }}", bytes());
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

 private:
  bool decodes() const { return program_.result != kNone; }
  static unsigned codes_in_field(unsigned bits) { return bits <= 8 ? 4 : bits <= 16 ? 2 : 1; }
  static unsigned field_bits(const Item& item) { return item.bits * codes_in_field(item.bits); }
  // Codes of a field shorter than a word are packed in shared memory; trits and int fields have kernels of their own.
  static bool is_coded(const Item& item) { return item.array && item.coding == Coding::kCodes; }
  static bool is_packed(const Item& item) { return is_coded(item) && field_bits(item) != 32; }
  static std::string number_of_fields(const Item& item) {
    return item.bits > 16 ? "kOwn" : fmt::format("kOwn / {}", codes_in_field(item.bits));
  }
  bool takes_part(int k) const { return !by_sample(node(k)); }
  bool adds_up() const {
    return !is_long() &&
           std::any_of(passes().begin(), passes().end(), [&](const Pass& p) { return is_shaped(p); });
  }
  std::size_t own_values() const {
    return is_long() ? kRun / group() : 8 * ((block() + 8 * group() - 1) / (8 * group()));
  }
  Nodes of_pass(std::size_t p, bool shaped) const {
    Nodes some;
    for (const int k : passes()[p].reduce)
      if (in_shape(k) == shaped) some.push_back(k);
    return some;
  }
  // The nodes among `nodes` that these reductions read.
  Nodes read_by(const Nodes& reduce, const Nodes& nodes) const {
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

  // ---- Tiles
  void tile() {
    line("enum : U {{ kOwn = {}, kTile = kGroup * kOwn }};", own_values());
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

  void shared() {
    line("enum {{ kAnswers = {} }};", 1 + program_.items.size());
    open("struct Shared");
    if (!is_long()) {
      line("Found found;");
      open("struct");
      for (const int k : reductions()) partial(k, in_shape(k) ? "[kLanes]" : "[kGroup]");
      line("U none;");
      close("} lanes;");
    }
    if (adds_up()) line("alignas(16) F x[kTile];");
    each([&](std::size_t k, const Item& item) {
      if (!is_packed(item)) return;
      const unsigned bits = field_bits(item);
      line("uint{}_t c{}[kTile / {}];", bits <= 8 ? 8 : bits <= 16 ? 16 : 32, k, codes_in_field(item.bits));
    });
    line("U none;");
    close("};");
    open("struct Own");
    line("F x[kOwn];");
    close("};");
  }

  // Opens a function of a tile in which the results of the first `found` passes are defined.
  void open_tile(const std::string& name, std::size_t found, const char* common = "Shared",
                 const char* own = "Own") {
    line("template <bool kWhole>");
    open(fmt::format("DEV void {}(const Call* call, {}& s, {}& own, const Tile& tile, U thread)", name,
                     common, own));
    line("[[maybe_unused]] const size_t n = call->n, b = tile.b, first = tile.first, len = tile.len;");
    plan();
    if (!program_.before.empty()) context();
    for (std::size_t p = 0; p < found; ++p) {
      if (found_by_all(p)) {
        line("Found found{};", p);
        line("find_{0}(call, s, tile, found{0});", p);
      }
      for (const int k : passes()[p].reduce) {
        line("const {0} b{1} = {2}.b{1};", text_.number_type(k), k,
             found_by_all(p) ? fmt::format("found{}", p) : found_of("b"));
        known(k);
      }
    }
  }
  // The loop over a thread's values x of a tile.
  void open_own(const Nodes& nodes) {
    draws_own_ = block() % 32 == 0;
    before_loop(nodes);
    outer_ = defined_;
    open("ALL for (U k = 0; k < kOwn; ++k)");
    line("const U at = own_value<kGroup>(thread, k);");
    line("if (!kWhole && at >= tile.values) continue;");
    line("[[maybe_unused]] const size_t i = {}at;", is_long() ? "tile.begin + " : "");
  }
  void close_own() {
    close();
    defined_ = outer_;
    draws_own_ = false;
  }
  void tiles_kernel(const char* name, const std::vector<std::string>& phases) {
    std::string all;
    for (const std::string& phase : phases) all += fmt::format(" TILE_PHASE({})", phase);
    line("TILES({}, Shared, Own,{})", name, all);
  }

  // ---- Reductions of a block in one tile. Sums have sixteen lanes in the order of base/fold.h and read the values in
  // shared memory; other reductions start with the values in registers
  std::size_t partials() const { return group() > kMostPartials ? group() / kLanes : group(); }
  bool found_by_all(std::size_t p) const {
    return !is_long() && of_pass(p, true).empty() && partials() <= kMostPartials;
  }

  void find_in_tile(std::size_t p) {
    const Pass& pass = passes()[p];
    const Nodes shaped = of_pass(p, true), others = of_pass(p, false);
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
    const bool rows_first = !others.empty() && group() > kMostPartials;
    if (rows_first) {
      open_phase_of("rows", p);
      rows_of(others, "kGroup");
      close();
    }
    if (!shaped.empty()) add_up(p, shaped);
    open(fmt::format("DEV void find_{}(const Call* call, Shared& s, const Tile& tile, Found& all)", p));
    line("[[maybe_unused]] const size_t n = call->n, len = tile.len;");
    plan();
    line("Part part;");
    end_lanes(p, "kGroup", rows_first ? "kLanes" : "1");
    store_found(p, "all");
    close();
    if (found_by_all(p)) return;
    open_phase_of("found", p);
    line("if (thread == 0) find_{}(call, s, tile, s.found);", p);
    close();
  }
  void open_phase_of(const char* name, std::size_t p) {
    phases_.push_back(fmt::format("{}_{}", name, p));
    open_tile(phases_.back(), p);
  }
  void add_up(std::size_t p, const Nodes& shaped) {
    const Pass& pass = passes()[p];
    open_phase_of("sum", p);
    line("if (thread >= kLanes) return;");
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
    close();
  }

  // ---- Payloads
  // True if encode needs a last loop over the values: not in a phase that sends only the results of its passes.
  bool sends_each() const {
    return decodes() || schedule_.passes.empty() ||
           std::any_of(program_.items.begin(), program_.items.end(),
                       [](const Item& item) { return item.array; });
  }
  // The addresses of tables and of the items of block b: t0, o1, ...
  void places(const char* type) {
    std::string from = fmt::format("call->payload + {}", once_bytes(program_));
    const auto is = [&](char of, std::size_t k) {
      line("[[maybe_unused]] {} const {}{} = {};", type, of, k, from);
    };
    each([&](std::size_t k, const Item& item) {
      if (!item.table) return;
      is('t', k);
      from =
          fmt::format("t{} + (n + {}) / {} * {}", k, program_.block - 1, program_.block, item_bytes(item, 1));
    });
    if (program_.block != 0) from += fmt::format(" + b * {}", block_bytes(program_, program_.block));
    each([&](std::size_t k, const Item& item) {
      if (item.table) return;
      is('o', k);
      from =
          fmt::format("o{} + {}", k, item.array ? array_bytes(item) : fmt::format("{}", item_bytes(item, 1)));
    });
  }
  std::string place(std::size_t k, const Item& item) const {
    return item.table ? fmt::format("t{} + b * {}", k, item_bytes(item, 1)) : fmt::format("o{}", k);
  }
  // The bytes of an array from this tile on, and their number up to the end of the tile or of a padded array.
  std::string array_of(std::size_t k, const Item& item) const {
    const std::string begin = is_long() ? fmt::format(" + tile.begin * {} / 8", item.bits) : "";
    const std::string bytes =
        item.full != 0 ? fmt::format("{}{}", array_bytes(item),
                                     is_long() ? fmt::format(" - tile.begin * {} / 8", item.bits) : "")
                       : fmt::format("(tile.values * {} + 7) / 8", item.bits);
    return fmt::format("o{}{}, {}, thread", k, begin, bytes);
  }

  void send() {
    phases_.emplace_back("send");
    open_tile("send", schedule_.passes.size());
    if (schedule_.passes.empty() || is_long()) line("take_own<kWhole, kGroup>(call, tile, thread, own.x);");
    define_all(schedule_.send.block);
    places("uint8_t*");
    const std::string begins = is_long() ? "thread == 0 && tile.begin == 0" : "thread == 0";
    line("const bool starts = {} && b == 0, writes = {}{};", begins, begins,
         block() == 0 ? "" : " && first < n");
    if (!trits()) line("if (starts) *call->bytes = bytes_of(n, call->field_bits);");
    if (program_.counts) line("if (starts) put(call->payload, 1, {});", kCountBytes);
    if (program_.adds()) line("const U added = 1;");
    each_once([&](std::size_t place, const Item& item) {
      const std::string bits = fmt::format("raw({})", text_.number(item.value));
      line("if (starts) put(call->payload + {}, {}, {});", place, bits, item_bytes(item, 1));
      receive_as(item, bits, 'b');
    });
    define_all(schedule_.all_read);
    each([&](std::size_t k, const Item& item) {
      if (item.array) return;
      const std::string number = text_.number(item.value);
      line("if (writes) put({}, raw({}), {});", place(k, item), number, item_bytes(item, 1));
      if (item.is_float) line("if (writes && !is_finite({})) say(call, 0);", number);
      receive_as(item, fmt::format("raw({})", number), 'b');
    });
    define_all(schedule_.read.block);
    hold(false);
    if (sends_each()) send_values();
    close();
    each([&](std::size_t k, const Item& item) {
      if (!is_packed(item)) return;
      if (phases_.back() == "send") {
        phases_.emplace_back("pack");
        open_tile("pack", 0);
        places("uint8_t*");
      }
      line("pack_fields<{}, kGroup>(s.c{}, {});", item.bits, k, array_of(k, item));
    });
    if (phases_.back() == "pack") close();
  }

  void send_values() {
    Nodes nodes = schedule_.send.value;
    for (const int k : schedule_.read.value)
      if (std::find(nodes.begin(), nodes.end(), k) == nodes.end()) nodes.push_back(k);
    bool finite = false;
    each([&](std::size_t k, const Item& item) {
      if (is_coded(item)) line("U field{}[{}] = {{}};", k, number_of_fields(item));
      if (item.coding == Coding::kInts || item.coding == Coding::kTrits) line("U code{}[kOwn] = {{}};", k);
      finite = finite || (item.array && item.is_float);
    });
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (holds_values(k)) line("bool holds{} = true;", k);
    if (decodes()) line("F sent[kOwn] = {{}};");
    if (finite) line("bool finite = true;");
    open_own(nodes);
    line("[[maybe_unused]] const F x = own.x[k];");
    define_all(schedule_.send.value);
    each([&](std::size_t k, const Item& item) {
      if (!item.array) return;
      const std::string bits = fmt::format("raw({})", text_.values(item.value));
      if (is_coded(item))
        line("put_code<{}>(field{}, k, {});", item.bits, k, bits);
      else
        line("code{}[k] = {};", k, bits);
      if (item.is_float) unless_finite(text_.values(item.value));
      receive_as(item, bits, 'v');
    });
    define_all(schedule_.read.value);
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (holds_values(k)) line("holds{0} = holds{0} & {1};", k, text_.values(program_.items[k].where));
    if (decodes()) line("sent[k] = {};", text_.values(program_.result));
    close_own();
    if (finite) line("if (!finite) say(call, 0);");
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (holds_values(k)) line("if (!holds{}) say(call, {});", k, k + 1);
    if (decodes()) line("leave_own<kWhole, kGroup>(call, tile, thread, own.x, sent);");
    each([&](std::size_t k, const Item& item) {
      if (is_packed(item))
        line("share_fields<{}, kGroup>(s.c{}, thread, field{});", item.bits, k, k);
      else if (is_coded(item))
        line("store_fields<{}, kWhole, kGroup>({}, field{});", item.bits, array_of(k, item), k);
      else if (item.coding == Coding::kTrits)
        line("store_bytes<kWhole, kGroup>(call->codes + first + tile.begin, tile.values, thread, code{});",
             k);
      else if (item.coding == Coding::kInts)
        line("store_own<kWhole, kGroup>(call->ints + first + tile.begin, tile.values, thread, code{});", k);
    });
  }
  bool holds_values(std::size_t k) const {
    const int where = program_.items[k].where;
    return where != kNone && node(where).stage == Stage::kValue;
  }

  // Generates the decoding kernel: out = base + decoded value, one payload per launch.
  void receive() {
    open_tile("receive", 0, "Nothing", "Nothing");
    if (program_.adds()) line("const U added = get(call->payload, 2);");
    places("const uint8_t*");
    line("const bool adds = call->base != nullptr;");
    line("U base[kOwn] = {{}}, out[kOwn];");
    line("if (adds) load_own<kWhole, kGroup>(call->base + first + tile.begin, tile.values, thread, base);");
    each([&](std::size_t k, const Item& item) {
      if (!is_coded(item)) return;
      line("U field{}[{}];", k, number_of_fields(item));
      line("load_fields<{}, kWhole, kGroup>({}, field{});", item.bits, array_of(k, item), k);
    });
    line("if (tile.values == 0) return;");
    each_once([&](std::size_t place, const Item& item) {
      receive_as(item, fmt::format("get(call->payload + {}, {})", place, item_bytes(item, 1)), 'b');
    });
    define_all(schedule_.all_read);
    each([&](std::size_t k, const Item& item) {
      if (!item.array) receive_as(item, fmt::format("get({}, {})", place(k, item), item_bytes(item, 1)), 'b');
    });
    define_all(schedule_.read.block);
    open_own(schedule_.read.value);
    each([&](std::size_t k, const Item& item) {
      if (!item.array) return;
      receive_as(item,
                 is_coded(item)                  ? fmt::format("code_of<{}>(field{}, k)", item.bits, k)
                 : item.coding == Coding::kTrits ? std::string("trit_at(call, i)")
                                                 : std::string("int_at(call, first + i)"),
                 'v');
    });
    define_all(schedule_.read.value);
    line("const F v = {};", text_.values(program_.result));
    line("out[k] = bits_(adds ? add(float_(base[k]), v) : v);");
    close_own();
    line("store_own<kWhole, kGroup>(call->out + first + tile.begin, tile.values, thread, out);");
    close();
  }

  // Bytes of a payload of n values, as payload_bytes (lang/front/passes.h) computes them.
  std::string bytes() const {
    const std::size_t block = program_.block, once = once_bytes(program_);
    if (program_.adds()) return "kIntHead + 4 * words_of(n, field_bits)";
    if (block == 0) {
      std::string all = fmt::format("{}", once);
      each([&](std::size_t, const Item& item) {
        all += item.array ? fmt::format(" + (n * {} + 7) / 8", item.bits)
                          : fmt::format(" + {}", item_bytes(item, 1));
      });
      return all;
    }
    std::size_t tables = 0;
    std::string rest = "0";
    each([&](std::size_t, const Item& item) {
      if (item.table) tables += item_bytes(item, 1);
      if (item.in_block())
        rest += item.array && item.full == 0 ? fmt::format(" + (n % {} * {} + 7) / 8", block, item.bits)
                                             : fmt::format(" + {}", item_bytes(item, item.full));
    });
    return fmt::format("{0} + (n + {1} - 1) / {1} * {2} + n / {1} * {3} + (n % {1} == 0 ? 0 : {4})", once,
                       block, tables, block_bytes(program_, block), rest);
  }

  bool trits() const {
    return std::any_of(program_.items.begin(), program_.items.end(),
                       [](const Item& item) { return item.coding == Coding::kTrits; });
  }
  bool finds_in_pieces() const { return is_long() && !schedule_.passes.empty(); }

  // The layout of the scratch, and its size.
  void scratch() {
    open("HOST uint64_t place_all(Call& of)");
    line("uint8_t* to = of.scratch;");
    if (finds_in_pieces()) {
      place_found();
      line("to = static_cast<uint8_t*>(of.parts) + up8(pieces_of(of.n) * sizeof(Part));");
    }
    if (trits()) {
      line("const uint64_t runs = parts_in(fives_of(of.n), kBytesOf);");
      line("of.places = reinterpret_cast<uint64_t*>(to);");
      line("of.groups = of.places + runs;");
      line("of.keys = reinterpret_cast<U*>(of.groups + runs);");
      line("of.codes = reinterpret_cast<uint8_t*>(of.keys + runs);");
      line("of.fives = of.codes + of.n;");
      line("of.stream = of.payload + {};", head_bytes(program_, 0) + numbers_bytes());
      line("to = of.fives + fives_of(of.n);");
    }
    if (program_.adds()) {
      line("of.ints = reinterpret_cast<U*>(to);");
      line("to = reinterpret_cast<uint8_t*>(of.ints + of.n);");
    }
    line("return up8(uint64_t(to - of.scratch));");
    close();
    open("API uint64_t tithe_scratch(const Call* asked)");
    line("Call of = *asked;");
    line("of.scratch = nullptr;");
    line("return place_all(of);");
    close();
  }
  std::size_t numbers_bytes() const {
    std::size_t bytes = 0;
    each([&](std::size_t, const Item& item) {
      if (!item.array) bytes += item_bytes(item, 1);
    });
    return bytes;
  }

  // Generates the host functions: the scratch layout, and the launches of encode and decode in order.
  void host() {
    scratch();
    const auto begin = [&](const char* name) {
      open(fmt::format("API void {}(const Call* asked, Stream stream)", name));
      line("Call of = *asked;");
      line("const Call* const call = &of;");
      line("place_all(of);");
    };
    begin("tithe_encode");
    if (finds_in_pieces())
      for (std::size_t p = 0; p < schedule_.passes.size(); ++p) launch_pass(p);
    launch_groups("tithe_send");
    if (trits()) {
      line("const uint64_t runs = parts_in(fives_of(of.n), kBytesOf);");
      line("LAUNCH(tithe_fives, runs);");
      line("LAUNCH(tithe_lasts, 1);");
      line("LAUNCH(tithe_codes, runs);");
      line("LAUNCH(tithe_places, 1);");
      line("LAUNCH(tithe_write_codes, runs);");
    } else if (program_.adds()) {
      line("LAUNCH(tithe_words, parts_in(words_of(of.n, of.field_bits), kWordsOf));");
    }
    close();
    line("PLAN(tithe_plan_encode, tithe_scratch, tithe_encode)");
    if (!decodes()) return;
    begin("tithe_decode");
    if (trits()) {
      line("const uint64_t runs = parts_in(codes_in(call), kBytesOf);");
      line("LAUNCH(tithe_count_fives, runs);");
      line("LAUNCH(tithe_places_of_fives, 1);");
      line("LAUNCH(tithe_read_fives, runs);");
    }
    launch_groups("tithe_receive");
    close();
    line("PLAN(tithe_plan_decode, tithe_scratch, tithe_decode)");
  }

  std::vector<std::string> phases_;  // of the kernel that sends
};

}  // namespace

std::string tiles_text(const Checked& program, const Schedule& schedule) {
  return TilesText(program, schedule).run();
}

}  // namespace tithe::lang
