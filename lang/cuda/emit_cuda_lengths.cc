// SPDX-License-Identifier: Apache-2.0
// A group of threads encodes a block in shared memory. Each thread owns a contiguous range of the block's values
// (own_from) and counts their bits; one thread turns the counts into offsets; then all threads add their codes to the
// block's words by atomic or. measure() and send() are instances of one function, so the measured size is the sent
// size.
#include "lang/cuda/emit_cuda_lengths.h"

#include "lang/cuda/emit_cuda_lengths_text.h"

namespace tithe::lang {

std::string LengthsText::run() {
  types();
  shared();
  places();
  numbers_of_all();
  for (std::size_t p = 0; p < schedule_.passes.size(); ++p) find(p);
  send();
  offsets();
  write();
  read();
  receive();
  kernels();
  host();
  return std::move(out_);
}

void LengthsText::shared() {
  line("enum {{ kAnswers = {} }};", 1 + program_.items.size());
  open("struct Shared");
  line("Found found;");
  line("Lanes<kGroup> lanes;");
  line("U size;");  // bytes of the block
  each([&](std::size_t k, const Item& item) {
    if (item.in_block()) line("U o{};", k);  // bytes before the item
    if (item.in_block() && !item.array) line("U v{};", k);
    if (!item.array) return;
    line("uint{}_t c{}[{}];", 8 * code_bytes(item), k, program_.block);
    if (item.coding == Coding::kWidths) line("uint8_t w{}[{}];", k, program_.block);
    line("U own{}[kGroup], all{};", k, k);  // bits, or places, of each thread's values; of all
  });
  line("U words[{}];", (block_bytes(program_, program_.block) + 3) / 4 + 2);
  close("};");
  line(
      "static_assert(sizeof(Shared) * (kThreads / kGroup) <= 48 * 1024, \"more than a block of threads can "
      "share\");");
  line("// The values of thread t: from own_from(t) to own_from(t + 1).");
  line("DEV size_t own_from(size_t len, U thread) {{ return len * thread / kGroup; }}");
}

// The addresses of tables and of the first block.
void LengthsText::places() {
  std::string from = fmt::format("{}", once_bytes(program_));
  for (std::size_t k = 0; k < program_.items.size(); ++k) {
    const Item& item = program_.items[k];
    if (!item.table) continue;
    line("DEV uint64_t table_{}(uint64_t n) {{ static_cast<void>(n); return {}; }}", k, from);
    const std::size_t per = item.per != 0 ? item.per : program_.block;
    from = fmt::format("table_{}(n) + (n + {}) / {} * {}", k, per - 1, per, item_bytes(item, 1));
  }
  line("DEV uint64_t head_of(uint64_t n) {{ static_cast<void>(n); return {}; }}", from);
  const std::size_t per = table() != nullptr ? table()->per / program_.block : 0;
  line("// Blocks that a reader walks one after the other, and how many such groups there are.");
  line("DEV uint64_t group_of(uint64_t n) {{ return {}; }}",
       per != 0 ? fmt::format("n * 0 + {}", per) : "blocks_of(n)");
  line("DEV uint64_t groups_of(uint64_t n) {{ return parts_in(blocks_of(n), group_of(n)); }}");
}

// ---- Encode

// The codes of a block's values, and their widths. With `last`, also the residual.
void LengthsText::send() {
  open_sending("send_as", "bool last");
  define_all(schedule_.send.block);
  line("const bool writes = last && thread == 0 && first < n;");
  each_once([&](std::size_t at, const Item& item) {
    const std::string value = text_.number(item.value);
    line("if (last && thread == 0 && at == 0) put(call->payload + {}, raw({}), {});", at, value,
         item_bytes(item, 1));
    if (item.is_float) line("if (!is_finite({})) say(call, 0);", value);
    receive_as(item, fmt::format("raw({})", value), 'b');
  });
  define_all(schedule_.all_read);
  each([&](std::size_t k, const Item& item) {
    if (item.array || item.coding == Coding::kBytes) return;
    const std::string value = text_.number(item.value);
    if (item.table)
      line("if (writes) put(call->payload + table_{}(n) + b * {}, raw({}), {});", k, item_bytes(item, 1),
           value, item_bytes(item, 1));
    else
      line("if (thread == 0) s.v{} = raw({});", k, value);
    if (item.is_float) line("if (first < n && !is_finite({})) say(call, 0);", value);
    receive_as(item, fmt::format("raw({})", value), 'b');
  });
  define_all(schedule_.read.block);
  for (const Pass& pass : schedule_.widths) define_all(pass.block);
  hold(false);
  before_loop(schedule_.send.value);
  before_loop(schedule_.read.value);
  open_values("for (size_t i = begin + thread; i < end; i += kGroup)");
  take();
  define_all(schedule_.send.value);
  arrays([&](std::size_t k, const Item& item) {
    line("U code{} = raw({});", k, text_.values(item.value));
    if (item.coding == Coding::kWidths) {
      define_all(schedule_.widths[k].value);
      line("s.w{}[i] = uint8_t({});", k, text_.values(item.width));
      line("code{0} &= U((uint64_t(1) << s.w{0}[i]) - 1);", k);
    }
    line("s.c{0}[i] = uint{1}_t(code{0});", k, 8 * code_bytes(item));
    if (item.is_float) unless_finite(text_.values(item.value));
    receive_as(item, fmt::format("code{}", k), 'v');
  });
  define_all(schedule_.read.value);
  hold(true);
  line("const F sent = {}, rest = sub(x, sent);", text_.values(program_.result));
  line("finite = finite & is_finite(sent) & (call->left == nullptr || is_finite(rest));");
  line("if (last && call->left != nullptr) call->left[first + i] = rest;");
  close_values();
  close();
  line(
      "DEV void measure(const Call* call, Shared& s, uint64_t at, U thread) {{ send_as(call, s, at, thread, "
      "false); }}");
  line(
      "DEV void send(const Call* call, Shared& s, uint64_t at, U thread) {{ send_as(call, s, at, thread, "
      "true); }}");
}

// The number of bits that each thread's values take.
void LengthsText::own_bits(std::size_t k, const Item& item) {
  open_phase(fmt::format("own_{}", k), Unit::kBlocks, 0);
  line("U own = 0;");
  line("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i) own += {};",
       item.coding == Coding::kWidths   ? fmt::format("s.w{}[i]", k)
       : item.coding == Coding::kPlaces ? fmt::format("s.c{}[i]", k)
                                        : fmt::format("{}", item.bits));
  line("s.own{}[thread] = own;", k);
  close();
}

// One thread computes the offset of each thread's values, and the total bytes.
void LengthsText::scan_own(std::size_t k, const Item& item) {
  line("U all{} = 0;", k);
  open("for (U t = 0; t < kGroup; ++t)");
  line("const U own = s.own{}[t];", k);
  line("s.own{0}[t] = all{0};", k);
  line("all{} += own;", k);
  close();
  line("s.all{0} = all{0};", k);
  line("s.o{} = at_byte;", k);
  line("at_byte += {};",
       item.coding == Coding::kPlaces
           ? fmt::format("{} + (all{} * {} + 7) / 8", count_bytes(item.full), k, place_bits(item.full))
       : item.coding == Coding::kWidths ? fmt::format("(all{} + 7) / 8", k)
                                        : fmt::format("U({})", array_bytes(item)));
}

void LengthsText::offsets() {
  arrays([&](std::size_t k, const Item& item) { own_bits(k, item); });
  open_phase("offsets", Unit::kBlocks, 0);
  line("if (thread != 0) return;");
  line("U at_byte = 0;");
  each([&](std::size_t k, const Item& item) {
    if (!item.in_block()) return;
    if (item.array) return scan_own(k, item);
    line("s.o{} = at_byte;", k);
    line("at_byte += {};", item_bytes(item, 1));
  });
  line("s.size = first < n ? at_byte : 0;");
  close();
  open("DEV void tell_size(const Call* call, Shared& s, uint64_t at, U thread)");
  line("if (thread == 0) call->keys[at] = s.size;");
  close();
}

// Threads assemble a block's bytes in shared memory.
void LengthsText::write() {
  open("DEV void no_words(const Call*, Shared& s, uint64_t, U thread)");
  line("for (U j = thread; j < sizeof s.words / 4; j += kGroup) s.words[j] = 0;");
  close();
  open_phase("words", Unit::kBlocks, 0);
  each([&](std::size_t k, const Item& item) {
    if (!item.in_block()) return;
    if (!item.array)
      return line("if (thread == 0) or_bits(s.words, 8 * s.o{0}, s.v{0}, {1});", k, 8 * item_bytes(item, 1));
    open("");
    if (item.coding == Coding::kPlaces) {
      line("if (thread == 0) or_bits(s.words, 8 * s.o{0}, s.all{0}, {1});", k, 8 * count_bytes(item.full));
      line("U bit = 8 * s.o{0} + {1} + {2} * s.own{0}[thread];", k, 8 * count_bytes(item.full),
           place_bits(item.full));
    } else {
      line("U bit = 8 * s.o{0} + s.own{0}[thread];", k);
    }
    open("for (size_t i = own_from(len, thread); i < own_from(len, thread + 1); ++i)");
    if (item.coding == Coding::kPlaces) {
      line("if (s.c{}[i] == 0) continue;", k);
      line("or_bits(s.words, bit, U(i), {});", place_bits(item.full));
      line("bit += {};", place_bits(item.full));
    } else {
      const std::string bits =
          item.coding == Coding::kWidths ? fmt::format("s.w{}[i]", k) : fmt::format("{}", item.bits);
      line("or_bits(s.words, bit, s.c{}[i], {});", k, bits);
      line("bit += {};", bits);
    }
    close();
    close();
  });
  close();
  open("DEV void copy_words(const Call* call, Shared& s, uint64_t at, U thread)");
  line("uint8_t* const to = call->payload + head_of(call->n) + call->places[at];");
  line("for (U j = thread; j < s.size; j += kGroup) to[j] = uint8_t(s.words[j / 4] >> (8 * (j % 4)));");
  close();
  if (table() == nullptr) return;
  open("DEV void sum_group(const Call* call, Shared&, uint64_t at, U thread)");
  line(
      "const uint64_t group = at * kThreads + thread, from = group * group_of(call->n), blocks = "
      "blocks_of(call->n);");
  line("if (group >= groups_of(call->n) || call->n == 0) return;");
  line("U sum = 0;");
  line("for (uint64_t b = from; b < from + group_of(call->n) && b < blocks; ++b) sum += call->keys[b];");
  line("put(call->payload + table_{0}(call->n) + group * {1}, sum, {1});", table_at(),
       item_bytes(*table(), 1));
  close();
  kernel("tithe_group", "Shared", {"sum_group"});
}

std::string lengths_text(const Checked& program, const Schedule& schedule) {
  return LengthsText(program, schedule).run();
}

}  // namespace tithe::lang
