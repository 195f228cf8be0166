// SPDX-License-Identifier: Apache-2.0
#include "lang/cpp/emit_cpp.h"

#include <algorithm>
#include <cmath>

#include "lang/cpp/emit_bounds.h"
#include "lang/cpp/emit_items.h"
#include "lang/cpp/flat_payload.h"
#include "lang/runtime/object.h"

namespace tithe::lang {

namespace {

// In values; a multiple of 32, since two runs of 16 share a random word.
constexpr std::size_t kDecodeRun = 4096;
// Values of int fields, which are unpacked before the loop; the same as in the prelude's Fields.
constexpr std::size_t kFieldRun = 1024;
// While a block is sent, the values this far behind its end are prefetched. Between shorter blocks the hardware
// prefetcher suffices, and with longer ones prefetching was slower.
constexpr std::size_t kAhead = 128, kMinAhead = 256, kMaxAhead = 1024;

class Emitter : ItemText {
 public:
  using ItemText::decodes;
  using ItemText::ItemText;

  std::string run() {
    encode();
    if (checks()) check();
    if (decodes()) decode();
    return std::move(out_);
  }

  bool checks() const { return !program_.adds(); }

 private:
  // Generates encode: encode_as has a copy for each combination of with or without a residual, and with or without
  // residual output. Per block: the passes, the block's numbers, then the last loop.
  void encode() {
    line("template <int kResidual, bool kLeaves>");
    open(
        "static void encode_as(const Call* call, const float* grad, const float* residual, float* left, "
        "uint8_t* out, Answer* answer)");
    line("const size_t n = call->n;");
    line("bool finite = true;");
    plan();
    for (const Pass& of : schedule_.passes) keep_numbers(of.value);
    keep_numbers(schedule_.send.value);
    keep_numbers(schedule_.read.value);
    context();
    line("uint8_t* block = out;");
    if (decodes()) line("alignas(64) float nowhere[{}];", unwanted_fit() ? program_.block : 16);
    if (program_.adds()) {
      line("const uint32_t added = 1;");
      if (in_rows()) line("const Rows rows = rows_of(call);");
    }
    if (in_fields()) {
      line("Fields fields;");
      line("fields.call = call, fields.out = out, fields.begun = 0, fields.held = 0;");
    }
    write_once();
    if (const std::string behind = tables("uint8_t*", "block"); behind != "block")
      line("block = {};", behind);
    open_blocks();
    line("const float* const g = grad + first;");
    line("const float* const r = kResidual ? residual + first : nullptr;");
    line("float* const l = {};", decodes() ? "left == nullptr ? nullptr : left + first" : "nullptr");
    places("uint8_t*");
    line("U peak = splat(0U);");
    line("F odd[2] = {{splat(0.0f), splat(0.0f)}};");
    for (std::size_t p = 0; p < schedule_.passes.size(); ++p) pass(schedule_.passes[p], p == 0);
    encode_numbers();
    if (sends_each()) encode_values();
    line("block = next;");
    close_blocks();
    if (in_fields()) line("if (fields.held != 0) fields.send(fields.held);");
    line("answer->finite = finite;");
    close();
    open(
        "static void encode(const Call* call, const float* grad, const float* residual, float* left, "
        "uint8_t* out, Answer* answer)");
    line("if (residual != nullptr) return encode_as<1, true>(call, grad, residual, left, out, answer);");
    if (decodes())
      line("if (left != nullptr) return encode_as<0, true>(call, grad, residual, left, out, answer);");
    line("encode_as<0, false>(call, grad, residual, left, out, answer);");
    close();
  }

  // Ends an `if`: the block violates the `where` of item k.
  void report_broken(std::size_t k) {
    line("answer->broken = {};", k + 1);
    line("answer->block = number;");
    line("return;");
    close();
  }

  void encode_numbers() {
    define_all(schedule_.send.block);
    each(false, [&](std::size_t k, const Item& item) {
      if (item.array) return;
      const std::string bits = fmt::format("raw({})", text_.number(item.value));
      line("put({}, {}, {});", place(k, item), bits, item_bytes(item, 1));
      if (item.is_float) line("finite = finite && is_finite({});", text_.number(item.value));
      receive_number(item, bits);
    });
    define_all(schedule_.read.block);
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (of_block(program_.items[k]) && !always(program_.items[k].where)) {
        open(fmt::format("if (finite && !({}))", text_.number(program_.items[k].where)));
        report_broken(k);
      }
  }

  // The condition under which no residual of this block can overflow: the largest input plus the largest sent
  // magnitude is finite. Empty if no bound is known before the values are computed.
  std::string none_too_large(std::size_t table) const {
    if (!decodes() || !found_peak_) return {};
    const std::string taken = "float_(max_lanes(peak))";
    if (table != kNoTable) return fmt::format("all_finite(size_bits(add(abs_(stands), splat({}))))", taken);
    const std::string sent = largest_float(program_, text_, program_.result);
    return sent.empty() ? "" : fmt::format("is_finite({} + {})", taken, sent);
  }

  // If the caller wants no residuals, they are written to a buffer on the stack, so the loop is the same. 0: one
  // block of all values.
  bool unwanted_fit() const { return !block_is_reported() && program_.block - 1 < kDecodeRun; }

  // x minus the sent value, or x if no value is sent.
  std::string rest(std::size_t table) const {
    const Node& sent = node(program_.result);
    const bool some = table == kNoTable && sent.stage == Stage::kValue && sent.op == Op::kSelect &&
                      node(sent.in[2]).op == Op::kConst && node(sent.in[2]).number == 0 &&
                      !std::signbit(node(sent.in[2]).number);
    return some ? fmt::format("select({}, sub(x, {}), x)", text_.values(sent.in[0]), text_.values(sent.in[1]))
                : "sub(x, sent)";
  }

  // Checks the values' conditions and writes the residual. `plain`: none_too_large() holds, so no check for overflow
  // is needed.
  void leave(std::size_t table, bool plain) {
    const std::string sent = table == kNoTable ? text_.values(program_.result)
                                               : looked_up(table, text_.values(program_.items[table].input));
    line("const F sent = {};", sent);
    if (plain) {
      open("if constexpr (kLeaves)");
      line("const F rest = {};", rest(table));
      line("store_as(tail, to + {}, rest, count);", unwanted_fit() ? "i" : "(i & step)");
      line("if (tail.value) odd[0] = seen(odd[0], select(here, l == nullptr ? sent : rest, splat(0.0f)));");
      close("} else if (tail.value) {");
      line("  odd[0] = seen(odd[0], select(here, sent, splat(0.0f)));");
      line("}}");
      return;
    }
    // If the sent value is not finite, neither is the residual, so checking the residual suffices.
    open("if (kLeaves && l != nullptr)");
    line("const F rest = sub(x, sent);");
    line("store_as(tail, l + i, rest, count);");
    line("odd[second.value] = seen(odd[second.value], select(here, rest, splat(0.0f)));");
    close("} else {");
    line("  odd[second.value] = seen(odd[second.value], select(here, sent, splat(0.0f)));");
    line("}}");
  }

  // Runs the body over a block; with int fields in parts of kFieldRun.
  void run_over_block(const std::string& plain) {
    if (!in_fields()) return run_body("0", "len", plain);
    open(fmt::format("for (size_t piece = 0; piece < len; piece += {})", kFieldRun));
    line("const size_t end = len - piece < {0} ? len : piece + {0};", kFieldRun);
    line("back = fields.back(piece);");
    run_body("piece", "end");
    line("fields.add(end - piece);");
    close();
  }

  Nodes read_by_items() const {
    Nodes nodes = {program_.result};
    for (const Item& item : program_.items) nodes.insert(nodes.end(), {item.value, item.where});
    return nodes;
  }

  // The last loop of encode: sends the values, decodes them, and writes the residual.
  void encode_values() {
    condition_masks(true);
    open("");
    const std::size_t table = looked_up_item();
    const bool ahead = !schedule_.passes.empty() &&
                       (block_is_reported() || (program_.block >= kMinAhead && program_.block <= kMaxAhead));
    if (table != kNoTable) look_up_table(table);
    if (ahead) {
      const std::string fits =
          block_is_reported()
              ? fmt::format("block_length < {} || block_length > {} ? n : ", kMinAhead, kMaxAhead)
              : "";
      line("const float* const soon = grad + ahead_of({}first + {} + {}, n);", fits, block_length(), kAhead);
      line("const float* const then = kResidual && call->asks_for_residual ? r + (soon - g) : soon;");
    }
    const Nodes& read = table != kNoTable ? schedule_.check.value : schedule_.read.value;
    Nodes both;
    std::set_union(schedule_.send.value.begin(), schedule_.send.value.end(), read.begin(), read.end(),
                   std::back_inserter(both));
    before_loop(both);
    if (in_fields()) line("size_t back = 0;");
    floors_before_loop(both, read_by_items());
    std::string plain = none_too_large(table);
    plain_loop_ = !plain.empty();
    if (plain_loop_) {
      std::string above;  // whether a value may exceed the scale of its level
      for (const int k : both) {
        if (node(k).op != Op::kLevel || node(node(k).in[0]).op != Op::kTaken) continue;
        plain += fmt::format(" && t{}.lift == 1.0f", k);
        if (!reaches_peak(node(k).in[1]))
          above += fmt::format("{}!(float_(max_lanes(peak)) <= t{}.scale)", above.empty() ? "" : " || ", k);
      }
      if (!above.empty()) plain += in_pairs() ? ", " + above : fmt::format(" && !({})", above);
      line("float* const to = l == nullptr ? nowhere : l;");
      if (!unwanted_fit()) line("const size_t step = l == nullptr ? 0 : ~size_t(0);");
    }
    open_body();
    if (ahead) {
      line("__builtin_prefetch(soon + i);");
      line("if (kResidual) __builtin_prefetch(then + i);");
    }
    line("const F x = take<kResidual>(tail, g, r, i, count);");
    line("const auto here = valid(tail, count);");
    if (schedule_.passes.empty()) line("peak = max_(peak, size_bits(x));");
    define_all(schedule_.send.value);
    each(false, [&](std::size_t k, const Item& item) {
      if (!item.array) return;
      pack(k, item);
      receive_values(item);
    });
    define_read(read);
    scan_conditions(true);
    if (decodes()) leave(table, plain_loop_);
    close_body();
    end_of_floors();
    run_over_block(plain_loop_ ? plain : "true");
    plain_loop_ = false;
    close();
    line("finite = finite && all_finite(peak) && none_odd(add(odd[0], odd[1]));");
    each(false, [&](std::size_t k, const Item& item) {
      if (!of_values(item) || always(item.where)) return;
      open(fmt::format("if (finite && any_of(w{}))", k));
      report_broken(k);
    });
  }

  void check() {
    open("static int check(const Call* call, const uint8_t* block)");
    line("const size_t n = call->n;");
    plan();
    keep_numbers(schedule_.check.value);
    check_once();
    if (const std::string behind = tables("const uint8_t*", "block"); behind != "block")
      line("block = {};", behind);
    open_blocks();
    places("const uint8_t*");
    bool values = false;
    each(false, [&](std::size_t k, const Item& item) {
      values = values || of_values(item) || (item.array && item.is_float && item.input != kNone);
      if (item.array) return line("if (!ends_clean(o{}, len, {})) return 0;", k, item.bits);
      check_number(item, fmt::format("get({}, {})", place(k, item), item_bytes(item, 1)));
    });
    read_numbers(schedule_.check);
    for (const Item& item : program_.items)
      if (of_block(item)) line("if (!({})) return 0;", text_.number(item.where));
    if (values) check_values();
    line("block = next;");
    close_blocks();
    line("return 1;");
    close();
  }

  void check_values() {
    line("size_t checked = 0;");
    if (checks_bits())
      check_words();
    else if (const std::size_t halves = checked_halves(); halves != kNoTable)
      check_halves(halves);
    line("U peak = splat(0U);");
    condition_masks();
    open("");
    before_loop(schedule_.check.value);
    open_body();
    line("const auto here = valid(tail, count);");
    each(false, [&](std::size_t k, const Item& item) {
      unpack(k, item);
      if (item.array && item.is_float && item.input != kNone)
        line("peak = max_(peak, size_bits(v{}));", item.input);
    });
    define_all(schedule_.check.value);
    scan_conditions();
    close_body();
    run_body("checked", "len");
    close();
    line("if (!all_finite(peak)) return 0;");
    each(false, [&](std::size_t k, const Item& item) {
      if (of_values(item)) line("if (any_of(w{})) return 0;", k);
    });
  }

  // Generates decode: each run of values adds four payloads at a time to the output while it is in the cache.
  void decode() {
    open(
        "static void decode(const Call* call, const uint8_t* const* payloads, size_t payload_count, "
        "const float* base, float divide, float* out)");
    line("const size_t n = call->n;");
    plan();
    keep_numbers(schedule_.read.value);
    context();
    const std::size_t run = in_fields() ? kFieldRun : kDecodeRun;
    if (in_fields()) line("uint32_t unpacked[4][{}];", kFieldRun + 16);
    if (in_rows()) line("const Rows rows = rows_of(call);");
    std::size_t tables_of_block = 0;
    each(false, [&](std::size_t, const Item& item) {
      if (item.table) tables_of_block += item_bytes(item, 1);
    });
    line("size_t at = {};", once_bytes(program_));
    if (tables_of_block != 0) line("at += (n + {0} - 1) / {0} * {1};", block_length(), tables_of_block);
    open_blocks();
    line("size_t end = 0;");
    open("for (size_t begin = 0; begin < len; begin = end)");
    line("end = len - begin < {0} ? len : begin + {0};", run);
    line("const float* onto = base == nullptr ? nullptr : base + first;");
    line("float* const to = out + first;");
    reader();
    line("size_t p = 0;");
    line("if (onto == nullptr) put_first(begin, end, to, reader(p++)), onto = to;");
    line("for (; p + 4 <= payload_count; p += 4, onto = to)");
    const bool two = std::any_of(program_.items.begin(), program_.items.end(), [&](const Item& item) {
      return item.array && item.input != kNone && node(item.input).type == Type::kBool;
    });
    line("  add_all<{}>(begin, end, onto, to, reader(p), reader(p + 1), reader(p + 2), reader(p + 3));", two);
    line("for (; p < payload_count; ++p, onto = to) add_all<{}>(begin, end, onto, to, reader(p));", two);
    line("if (divide != 1.0f) divide_all(to + begin, end - begin, divide);");
    close();
    std::string bytes = "0";
    each(false, [&](std::size_t, const Item& item) {
      if (item.table || item.coding == Coding::kInts) return;
      bytes += item.array ? fmt::format(" + (len * {} + 7) / 8", item.bits)
                          : fmt::format(" + {}", item_bytes(item, 1));
    });
    line("at += {};", bytes);
    close_blocks();
    close();
  }

  // reader(p) holds the numbers of payload p's block and decodes its values. Up to four readers are in use at a time.
  void reader() {
    const std::size_t table = looked_up_item();
    const std::vector<std::size_t> flags = looked_up_flags();
    open("auto reader = [&](size_t p) __attribute__((always_inline))");
    line("const uint8_t* const block = payloads[p] + at;");
    read_once("payloads[p]");
    if (in_rows()) line("const uint8_t* const fields = payloads[p];");
    if (in_fields()) {
      line("uint32_t* const fields = unpacked[p % 4];");
      line("const size_t from = (first + begin) / 16 * 16, back = first - from;");
      line("call->unpack(payloads[p], from, first + end - from, call->field_bits, fields);");
    }
    places("const uint8_t*");
    tables("const uint8_t*", fmt::format("payloads[p] + {}", once_bytes(program_)));
    read_numbers(schedule_.read);
    if (table != kNoTable)
      look_up_table(table);
    else if (!flags.empty())
      look_up_flags(flags);
    else
      before_loop(schedule_.read.value);
    open(
        "return [=](auto tail, auto second, Words& words, size_t i, size_t count) "
        "__attribute__((always_inline))");
    if (flags.empty()) each(false, [&](std::size_t k, const Item& item) { unpack(k, item, true); });
    if (!flags.empty()) {
      line("return flagged<{}>(stands, tail, second, words, o{} + i / 8, o{} + i / 8, count);", flags.size(),
           flags.front(), flags.back());
    } else if (table != kNoTable) {
      line("return {};", looked_up(table, text_.values(program_.items[table].input)));
    } else {
      define_all(schedule_.read.value);
      line("return {};", text_.values(program_.result));
    }
    close("};");
    close("};");
  }
};

}  // namespace

CppBody emit_cpp(const Checked& program, const Schedule& schedule) {
  const Checked flat = flat_program(program);
  Emitter emitter(flat, schedule);
  CppBody body{.text = emitter.run(), .checks = emitter.checks(), .decodes = emitter.decodes()};
  body.key = cpp_key(body.text);
  return body;
}

}  // namespace tithe::lang
