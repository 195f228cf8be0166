// SPDX-License-Identifier: Apache-2.0
// Reading blocks of variable size, and the launches.
#include "lang/cuda/emit_cuda_lengths_text.h"

namespace tithe::lang {

std::string LengthsText::read_from() const { return "call->payload + head_of(n) + call->places[b]"; }

// Reads the items one after the other: each offset follows from the items before it.
void LengthsText::read() {
  open_phase("start", Unit::kBlocks, 0);
  line("if (thread == 0) s.size = 0;");
  close();
  reading_.emplace_back("start");
  each([&](std::size_t k, const Item& item) {
    if (!item.in_block()) return;
    if (!item.array) {
      open_phase(fmt::format("read_{}", k), Unit::kBlocks, 0);
      line("if (thread != 0) return;");
      line("s.o{} = s.size;", k);
      line("s.v{0} = get({1} + s.o{0}, {2});", k, read_from(), item_bytes(item, 1));
      line("s.size += {};", item_bytes(item, 1));
      close();
      reading_.push_back(fmt::format("read_{}", k));
      return;
    }
    if (item.coding == Coding::kPlaces) return read_places(k, item);
    if (item.coding == Coding::kWidths) find_widths(k, item);
    read_codes(k, item);
  });
}

void LengthsText::read_places(std::size_t k, const Item& item) {
  const std::size_t head = count_bytes(item.full);
  const unsigned bits = place_bits(item.full);
  open_phase(fmt::format("clear_{}", k), Unit::kBlocks, 0);
  line("for (size_t i = thread; i < len; i += kGroup) s.c{}[i] = 0;", k);
  line("if (thread != 0) return;");
  line("s.o{} = s.size;", k);
  line("s.all{0} = get({1} + s.o{0}, {2});", k, read_from(), head);
  line("s.size += {} + (s.all{} * {} + 7) / 8;", head, k, bits);
  close();
  open_phase(fmt::format("read_{}", k), Unit::kBlocks, 0);
  line("const uint8_t* const from = {} + s.o{} + {};", read_from(), k, head);
  line("for (U j = thread; j < s.all{0}; j += kGroup) s.c{0}[bits_at(from, j * {1}, {1})] = 1;", k, bits);
  close();
  reading_.push_back(fmt::format("clear_{}", k));
  reading_.push_back(fmt::format("read_{}", k));
}

// Defines the numbers of a block that precede item `below`.
void LengthsText::receive_numbers(std::size_t below) {
  std::size_t at = 0;
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const Item& item = program_.items[k];
    if (item.once) {
      receive_as(item, fmt::format("get(call->payload + {}, {})", at, item_bytes(item, 1)), 'b');
      at += item_bytes(item, 1);
    }
  }
  define_all(schedule_.all_read);
  each([&](std::size_t k, const Item& item) {
    if (item.array || item.coding == Coding::kBytes || (item.in_block() && k >= below)) return;
    receive_as(item,
               item.table ? fmt::format("get(call->payload + table_{}(n) + b * {}, {})", k,
                                        item_bytes(item, 1), item_bytes(item, 1))
                          : fmt::format("s.v{}", k),
               'b');
  });
}

void LengthsText::receive_codes(std::size_t below) {
  arrays([&](std::size_t k, const Item& item) {
    if (k < below) receive_as(item, fmt::format("U(s.c{}[i])", k), 'v');
  });
}

void LengthsText::find_widths(std::size_t k, const Item& item) {
  const Pass& pass = schedule_.widths[k];
  open_phase(fmt::format("widths_{}", k), Unit::kBlocks, 0);
  receive_numbers(k);
  define_all(pass.block);
  line("U own = 0;");
  outer_ = defined_;
  open("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i)");
  receive_codes(k);
  define_all(pass.value);
  line("s.w{}[i] = uint8_t({});", k, text_.values(item.width));
  line("own += s.w{}[i];", k);
  close();
  defined_ = outer_;
  line("s.own{}[thread] = own;", k);
  close();
  reading_.push_back(fmt::format("widths_{}", k));
}

void LengthsText::read_codes(std::size_t k, const Item& item) {
  if (item.coding != Coding::kWidths) reading_.push_back(fmt::format("own_{}", k));
  open_phase(fmt::format("scan_{}", k), Unit::kBlocks, 0);
  line("if (thread != 0) return;");
  line("U at_byte = s.size;");
  scan_own(k, item);
  line("s.size = at_byte;");
  close();
  open_phase(fmt::format("read_{}", k), Unit::kBlocks, 0);
  line("const uint8_t* const from = {} + s.o{};", read_from(), k);
  line("U bit = s.own{}[thread];", k);
  open("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i)");
  const std::string bits =
      item.coding == Coding::kWidths ? fmt::format("s.w{}[i]", k) : fmt::format("{}", item.bits);
  line("s.c{}[i] = uint{}_t(bits_at(from, bit, {}));", k, 8 * code_bytes(item), bits);
  line("bit += {};", bits);
  close();
  close();
  reading_.push_back(fmt::format("scan_{}", k));
  reading_.push_back(fmt::format("read_{}", k));
}

void LengthsText::receive() {
  open_phase("receive", Unit::kBlocks, 0);
  receive_numbers(program_.items.size());
  define_all(schedule_.read.block);
  before_loop(schedule_.read.value);
  outer_ = defined_;
  open("for (size_t i = begin + thread; i < end; i += kGroup)");
  receive_codes(program_.items.size());
  define_all(schedule_.read.value);
  line("const F v = {};", text_.values(program_.result));
  line("call->out[first + i] = call->base == nullptr ? v : add(call->base[first + i], v);");
  close();
  defined_ = outer_;
  close();
}

// ---- Kernels
void LengthsText::kernels() {
  std::vector<std::string> own;
  arrays([&](std::size_t k, const Item&) { own.push_back(fmt::format("own_{}", k)); });
  std::vector<std::string> phases = finding_;
  phases.emplace_back("measure");
  phases.insert(phases.end(), own.begin(), own.end());
  for (const char* last : {"offsets", "tell_size"}) phases.emplace_back(last);
  group_kernel("tithe_measure", phases);
  phases = finding_;
  phases.emplace_back("send");
  phases.insert(phases.end(), own.begin(), own.end());
  for (const char* last : {"offsets", "no_words", "words", "copy_words"}) phases.emplace_back(last);
  group_kernel("tithe_send", phases);
  // The offset of each block of a group.
  open("DEV void begin_group(const Call* call, Shared&, uint64_t at, U thread)");
  line("const uint64_t b = at * group_of(call->n);");
  line("if (thread == 0) call->places[b] = call->groups[at];");
  close();
  open("DEV void next_block(const Call* call, Shared& s, uint64_t at, U thread)");
  line("if (thread == 0 && (at + 1) % group_of(call->n) != 0 && at + 1 < blocks_of(call->n))");
  line("  call->places[at + 1] = call->places[at] + s.size;");
  close();
  std::string all;
  for (const std::string& phase : reading_) all += fmt::format(" STEP({}, walked, blocks_of, step)", phase);
  line(
      "DEV uint64_t walked(const Call* call, uint64_t group, uint64_t step) {{ return group * "
      "group_of(call->n) + step; }}");
  line("GROUPS(tithe_walk, Shared, kGroup, groups_of, PHASE(begin_group)");
  line("  for (uint64_t step = 0; step < group_of(call->n); ++step) {{");
  line("   {} STEP(next_block, walked, blocks_of, step)", all);
  line("  }})");
  std::vector<std::string> reads = reading_;
  reads.emplace_back("receive");
  group_kernel("tithe_receive", reads);
  // The offset of each group: one thread block.
  if (table() != nullptr) {
    open("DEV void group_bytes(const Call* call, Scan&, uint64_t, U thread)");
    line("for (uint64_t k = thread; k < groups_of(call->n); k += kThreads)");
    line("  call->keys[k] = get(call->payload + table_{0}(call->n) + k * {1}, {1});", table_at(),
         item_bytes(*table(), 1));
    close();
  }
  line(
      "DEV uint64_t scanned(const Call* call, bool decode) {{ return decode ? groups_of(call->n) : "
      "blocks_of(call->n); }}");
  for (const bool decode : {false, true}) {
    const char* const name = decode ? "groups" : "blocks";
    open(fmt::format("DEV void scan_own_{}(const Call* call, Scan& s, uint64_t, U thread)", name));
    line("scan_slice(call->keys, scanned(call, {}), s, thread);", decode);
    close();
    open(fmt::format("DEV void scan_rest_{}(const Call* call, Scan& s, uint64_t, U thread)", name));
    line("const uint64_t end = scan_places(call->keys, call->{}, scanned(call, {}), s, thread);",
         decode ? "groups" : "places", decode);
    if (decode)
      line("static_cast<void>(end);");
    else
      line("if (thread == kThreads - 1) *call->bytes = head_of(call->n) + end;");
    close();
  }
  kernel("tithe_places", "Scan", {"scan_own_blocks", "scan_before", "scan_rest_blocks"});
  if (table() != nullptr)
    kernel("tithe_groups", "Scan", {"group_bytes", "scan_own_groups", "scan_before", "scan_rest_groups"});
  else
    line(
        "DEV void one_group(const Call* call, Scan&, uint64_t, U thread) {{ if (thread == 0) call->groups[0] "
        "= 0; }}\n"
        "KERNEL(tithe_groups, Scan, PHASE(one_group))");
}

// Generates the host functions. Encode: reduce over all blocks, measure, scan to offsets, send. Decode: offsets of
// groups, walk the blocks of each group, receive.
void LengthsText::host() {
  open("HOST uint64_t place_all(Call& of)");
  line("const uint64_t blocks = blocks_of(of.n);");
  line("uint8_t* to = of.scratch;");
  line("of.found = to;");
  line("of.parts = to += up8(sizeof(All));");
  line("of.places = reinterpret_cast<uint64_t*>(to += 8 * blocks * {});", schedule_.looked.reduce.size());
  line("of.groups = reinterpret_cast<uint64_t*>(to += 8 * blocks);");
  line("of.keys = reinterpret_cast<U*>(to += 8 * groups_of(of.n));");
  line("return uint64_t(to - of.scratch) + up8(4 * blocks);");
  close();
  open("API uint64_t tithe_scratch(const Call* host_call)");
  line("Call of = *host_call;");
  line("of.scratch = nullptr;");
  line("return place_all(of);");
  close();
  const auto begin = [&] {
    line("Call of = *host_call;");
    line("const Call* const call = &of;");
    line("place_all(of);");
  };
  open("API void tithe_encode(const Call* host_call, Stream stream)");
  begin();
  if (looks()) {
    launch_groups("tithe_number");
    line("LAUNCH(tithe_all, 1);");
  }
  launch_groups("tithe_measure");
  if (table() != nullptr) line("LAUNCH(tithe_group, parts_in(groups_of(of.n), kThreads));");
  line("LAUNCH(tithe_places, 1);");
  launch_groups("tithe_send");
  close();
  open("API void tithe_decode(const Call* host_call, Stream stream)");
  begin();
  line("if (of.n == 0) return;");
  line("LAUNCH(tithe_groups, 1);");
  line("LAUNCH(tithe_walk, of_groups(groups_of(of.n)));");
  launch_groups("tithe_receive");
  close();
  line("PLAN(tithe_plan_encode, tithe_scratch, tithe_encode)");
  line("PLAN(tithe_plan_decode, tithe_scratch, tithe_decode)");
}

}  // namespace tithe::lang
