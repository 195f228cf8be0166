// SPDX-License-Identifier: Apache-2.0
// Payloads of tiles, and the functions that launch their kernels.
#include "lang/cuda/emit_cuda_tiles_text.h"

namespace tithe::lang {

void TilesText::places(const char* type) {
  std::string from = fmt::format("call->payload + {}", once_bytes(program_));
  const auto is = [&](char of, std::size_t k) { line("{} const {}{} = {};", type, of, k, from); };
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

std::string TilesText::place(std::size_t k, const Item& item) const {
  return item.table ? fmt::format("t{} + b * {}", k, item_bytes(item, 1)) : fmt::format("o{}", k);
}

std::string TilesText::array_of(std::size_t k, const Item& item) const {
  const std::string begin = is_long() ? fmt::format(" + tile.begin * {} / 8", item.bits) : "";
  const std::string bytes =
      item.full != 0 ? fmt::format("{}{}", array_bytes(item),
                                   is_long() ? fmt::format(" - tile.begin * {} / 8", item.bits) : "")
                     : fmt::format("(tile.values * {} + 7) / 8", item.bits);
  return fmt::format("o{}{}, {}, thread", k, begin, bytes);
}

void TilesText::send() {
  phases_.emplace_back("send");
  line("// The block's numbers, the codes, and the residual.");
  open_tile("send", schedule_.passes.size());
  if (schedule_.passes.empty() || is_long()) line("take_own<kWhole, kGroup>(call, tile, thread, own.x);");
  define_all(schedule_.send.block);
  places("uint8_t*");
  const std::string begins = is_long() ? "thread == 0 && tile.begin == 0" : "thread == 0";
  line("const bool starts = {} && b == 0;", begins);
  line("const bool writes = {}{};", begins, block() == 0 ? "" : " && first < n");
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
      line("// Codes become words of the payload.");
      open_tile("pack", 0);
      places("uint8_t*");
    }
    line("pack_fields<{}, kGroup>(s.c{}, {});", item.bits, k, array_of(k, item));
  });
  if (phases_.back() == "pack") close();
}

// The loop over a thread's own values encodes and checks them, and decodes them for the residual; then their codes are
// stored.
void TilesText::send_values() {
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
    if (of_values(program_.items[k])) line("bool holds{} = true;", k);
  if (decodes()) line("F sent[kOwn] = {{}};");
  if (finite) line("bool finite = true;");
  open_own(nodes);
  line("const F x = own.x[k];");
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
    if (of_values(program_.items[k]))
      line("holds{0} = holds{0} & {1};", k, text_.values(program_.items[k].where));
  if (decodes()) line("sent[k] = {};", text_.values(program_.result));
  close_own();
  if (finite) line("if (!finite) say(call, 0);");
  for (std::size_t k = 0; k < program_.items.size(); ++k)
    if (of_values(program_.items[k])) line("if (!holds{}) say(call, {});", k, k + 1);
  if (decodes()) line("leave_own<kWhole, kGroup>(call, tile, thread, own.x, sent);");
  each([&](std::size_t k, const Item& item) {
    if (is_packed(item))
      line("share_fields<{}, kGroup>(s.c{}, thread, field{});", item.bits, k, k);
    else if (is_coded(item))
      line("store_fields<{}, kWhole, kGroup>({}, field{});", item.bits, array_of(k, item), k);
    else if (item.coding == Coding::kTrits)
      line("store_bytes<kWhole, kGroup>(call->codes + first + tile.begin, tile.values, thread, code{});", k);
    else if (item.coding == Coding::kInts)
      line("store_own<kWhole, kGroup>(call->ints + first + tile.begin, tile.values, thread, code{});", k);
  });
}

void TilesText::receive() {
  line("// out = base + decoded values.");
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
  line("out[k] = bits_(adds ? add(float_(base[k]), {0}) : {0});", text_.values(program_.result));
  close_own();
  line("store_own<kWhole, kGroup>(call->out + first + tile.begin, tile.values, thread, out);");
  close();
}

void TilesText::bytes() {
  open("DEV uint64_t bytes_of(uint64_t n, U field_bits)");
  const std::size_t block = program_.block == 0 ? 1 : program_.block;
  line("const uint64_t rest = {};", program_.block == 0 ? "n" : fmt::format("n % {}", block));
  std::size_t tables = 0, numbers = 0;
  std::string all = fmt::format("{}", once_bytes(program_));
  each([&](std::size_t, const Item& item) {
    if (item.table)
      tables += item_bytes(item, 1);
    else if (item.array && item.full == 0)
      all += fmt::format(" + (rest * {} + 7) / 8", item.bits);
    else
      numbers += item_bytes(item, item.array ? item.full : 1);
  });
  if (numbers != 0)
    all +=
        program_.block == 0 ? fmt::format(" + {}", numbers) : fmt::format(" + (rest == 0 ? 0 : {})", numbers);
  if (tables != 0) all += fmt::format(" + (n + {}) / {} * {}", block - 1, block, tables);
  if (program_.block != 0) all += fmt::format(" + n / {} * {}", block, block_bytes(program_, block));
  line("return {};", program_.adds() ? "kIntHead + 4 * words_of(n, field_bits)" : all);
  close();
}

std::size_t TilesText::numbers_bytes() const {
  std::size_t bytes = 0;
  each([&](std::size_t, const Item& item) {
    if (!item.array) bytes += item_bytes(item, 1);
  });
  return bytes;
}

void TilesText::scratch() {
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
  scratch_size();
}

void TilesText::host() {
  scratch();
  open_host("tithe_encode");
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
  open_host("tithe_decode");
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

}  // namespace tithe::lang
