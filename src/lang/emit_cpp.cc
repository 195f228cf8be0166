// SPDX-License-Identifier: Apache-2.0
#include "lang/emit_cpp.h"

#include <xxhash.h>

#include "lang/emit_passes.h"
#include "lang/object.h"
#include "lang/prelude.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kDecodeRun = 1024;  // values; a multiple of 32, for draws that two runs of 16 share

class Emitter : PassText {
 public:
  using PassText::PassText;

  std::string run() {
    encode();
    check();
    decode();
    return std::move(out_);
  }

 private:
  // Calls of(k, item) for the items of a block, or for those that are sent once.
  template <typename Of>
  void each(bool once, const Of& of) const {
    for (std::size_t k = 0; k < program_.items.size(); ++k)
      if (program_.items[k].once == once) of(k, program_.items[k]);
  }

  // Where each item of a block begins: o0, o1, ... `next` is behind the last.
  void places(const char* type) {
    std::string at = "block";
    each(false, [&](std::size_t k, const Item& item) {
      if (item.table) return;
      line("{} const o{} = {};", type, k, at);
      at = item.array ? fmt::format("o{} + (len * {} + 7) / 8", k, item.bits)
                      : fmt::format("o{} + {}", k, item_bytes(item, 1));
    });
    line("{} const next = {};", type, at);
  }

  // Where each table begins, from `from` on: t0, t1, ...; behind the last of them.
  std::string tables(const char* type, std::string from) {
    each(false, [&](std::size_t k, const Item& item) {
      if (!item.table) return;
      line("{} const t{} = {};", type, k, from);
      from =
          fmt::format("t{} + (n + {}) / {} * {}", k, program_.block - 1, program_.block, item_bytes(item, 1));
    });
    return from;
  }
  // Where a number stands.
  std::string place(std::size_t k, const Item& item) const {
    return item.table ? fmt::format("t{} + first / {} * {}", k, program_.block, item_bytes(item, 1))
                      : fmt::format("o{}", k);
  }

  // What was sent as the receiver sees it.
  std::string sent_number(const Item& item, const std::string& bits) const {
    const Type type = node(item.input).type;
    return type == Type::kF32    ? fmt::format("float_({})", bits)
           : type == Type::kBool ? fmt::format("{} != 0", bits)
                                 : bits;
  }
  void receive_number(const Item& item, const std::string& bits) {
    if (item.input == kNone) return;
    line("const {} b{} = {};", text_.number_type(item.input), item.input, sent_number(item, bits));
    known(item.input);
  }
  void receive_values(const Item& item) {
    if (item.input == kNone) return;
    const Type to = node(item.input).type, from = node(item.value).type;
    const std::string v = text_.values(item.value);
    line("const {} v{} = {};", text_.value_type(item.input), item.input,
         to == Type::kU32 && from != Type::kU32 ? fmt::format("as_u({})", v) : v);
    known(item.input);
  }
  void unpack(std::size_t k, const Item& item) {
    if (item.input == kNone || !item.array) return;
    const Type type = node(item.input).type;
    const std::string at = fmt::format("o{} + i * {} / 8", k, item.bits);
    std::string v = fmt::format("unpack_as<{}>(tail, {}, count)", item.bits, at);
    if (type == Type::kF32) v = fmt::format("float_({})", v);
    if (type == Type::kBool) v = fmt::format("unpack_mask_as(tail, {}, count)", at);
    line("const {} v{} = {};", text_.value_type(item.input), item.input, v);
    known(item.input);
  }
  void pack(std::size_t k, const Item& item) {
    const Type type = node(item.value).type;
    const std::string at = fmt::format("o{} + i * {} / 8", k, item.bits), v = text_.values(item.value);
    if (type == Type::kBool && item.bits == 1)
      line("pack_mask_as(tail, {}, {}, count);", v, at);
    else
      line("pack_as<{}>(tail, {}({}), {}, count);", item.bits, item.is_float ? "bits_" : "as_u", v, at);
    if (item.is_float) line("peak = max_(peak, select(here, size_bits({}), splat(0U)));", v);
  }
  // Of a block's numbers, or of what is known before them; false where it is said of each value.
  bool of_block(const Item& item) const {
    return item.where != kNone && node(item.where).stage != Stage::kValue;
  }
  bool of_values(const Item& item) const { return item.where != kNone && !of_block(item); }
  void condition_masks() {
    each(false, [&](std::size_t k, const Item& item) {
      if (of_values(item)) line("M w{} = splat(false);", k);
    });
  }
  void look_at_conditions() {
    each(false, [&](std::size_t k, const Item& item) {
      if (of_values(item)) line("w{0} = or_(w{0}, and_(here, not_({1})));", k, text_.values(item.where));
    });
  }

  void encode() {
    line("template <int kResidual>");
    open(
        "static void encode_as(const Call* call, const float* grad, const float* residual, float* left, "
        "uint8_t* out, Answer* answer)");
    line("const size_t n = call->n;");
    line("bool finite = true;");
    plan();
    line("uint8_t* block = out;");
    each(true, [&](std::size_t, const Item& item) {
      line("put(block, raw({}), {});", text_.number(item.value), item_bytes(item, 1));
      line("block += {};", item_bytes(item, 1));
    });
    if (const std::string behind = tables("uint8_t*", "block"); behind != "block")
      line("block = {};", behind);
    open_blocks();
    line("const float* const g = grad + first;");
    line("const float* const r = kResidual ? residual + first : nullptr;");
    line("float* const l = left == nullptr ? nullptr : left + first;");
    places("uint8_t*");
    line("U peak = splat(0U);");
    for (std::size_t p = 0; p < schedule_.passes.size(); ++p) pass(schedule_.passes[p], p == 0);
    encode_numbers();
    encode_values();
    line("block = next;");
    close_blocks();
    line("answer->finite = finite;");
    close();
    open(
        "static void encode(const Call* call, const float* grad, const float* residual, float* left, "
        "uint8_t* out, Answer* answer)");
    line("if (residual != nullptr) return encode_as<1>(call, grad, residual, left, out, answer);");
    line("encode_as<0>(call, grad, residual, left, out, answer);");
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
      if (of_block(program_.items[k])) {
        open(fmt::format("if (finite && !({}))", text_.number(program_.items[k].where)));
        line("answer->broken = {};", k + 1);
        line("answer->block = {};", program_.block == 0 ? "0" : fmt::format("first / {}", program_.block));
        line("return;");
        close();
      }
  }

  // Sends, decodes what is sent, and leaves the rest.
  void encode_values() {
    condition_masks();
    open("");
    before_loop(schedule_.send.value);
    before_loop(schedule_.read.value);
    open_body();
    line("const F x = take<kResidual>(tail, g, r, i, count);");
    line("const M here = valid(tail, count);");
    if (schedule_.passes.empty()) line("peak = max_(peak, size_bits(x));");
    define_all(schedule_.send.value);
    each(false, [&](std::size_t k, const Item& item) {
      if (!item.array) return;
      pack(k, item);
      receive_values(item);
    });
    define_all(schedule_.read.value);
    look_at_conditions();
    line("const F sent = {};", text_.values(program_.result));
    line("peak = max_(peak, select(here, size_bits(sent), splat(0U)));");
    open("if (l != nullptr)");
    line("const F rest = sub(x, sent);");
    line("store_as(tail, l + i, rest, count);");
    line("peak = max_(peak, select(here, size_bits(rest), splat(0U)));");
    close();
    close_body();
    run_body("0", "len");
    close();
    line("finite = finite && lanes_most(peak) < 0x7f800000U;");
    each(false, [&](std::size_t k, const Item& item) {
      if (!of_values(item)) return;
      open(fmt::format("if (finite && any_of(w{}))", k));
      line("answer->broken = {};", k + 1);
      line("answer->block = {};", program_.block == 0 ? "0" : fmt::format("first / {}", program_.block));
      line("return;");
      close();
    });
  }

  void read_numbers(const Pass& of) {
    each(false, [&](std::size_t k, const Item& item) {
      if (!item.array) receive_number(item, fmt::format("get({}, {})", place(k, item), item_bytes(item, 1)));
    });
    define_all(of.block);
  }

  void check() {
    open("static int check(const Call* call, const uint8_t* block)");
    line("const size_t n = call->n;");
    plan();
    each(true, [&](std::size_t, const Item& item) {
      line("if (get(block, {}) != raw({})) return 0;", item_bytes(item, 1), text_.number(item.value));
      line("block += {};", item_bytes(item, 1));
    });
    if (const std::string behind = tables("const uint8_t*", "block"); behind != "block")
      line("block = {};", behind);
    open_blocks();
    places("const uint8_t*");
    bool values = false;
    each(false, [&](std::size_t k, const Item& item) {
      values = values || of_values(item) || (item.array && item.is_float && item.input != kNone);
      if (item.array) return line("if (!ends_clean(o{}, len, {})) return 0;", k, item.bits);
      const std::string bits = fmt::format("get({}, {})", place(k, item), item_bytes(item, 1));
      if (item.is_float) line("if (!is_finite(float_({}))) return 0;", bits);
      if (item.input == kNone) line("if ({} != raw({})) return 0;", bits, text_.number(item.value));
      if (item.bits % 8 != 0) line("if ({} >> {} != 0) return 0;", bits, item.bits);
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
    line("U peak = splat(0U);");
    condition_masks();
    open("");
    before_loop(schedule_.check.value);
    open_body();
    line("const M here = valid(tail, count);");
    each(false, [&](std::size_t k, const Item& item) {
      unpack(k, item);
      if (item.array && item.is_float && item.input != kNone)
        line("peak = max_(peak, size_bits(v{}));", item.input);
    });
    define_all(schedule_.check.value);
    look_at_conditions();
    close_body();
    run_body("0", "len");
    close();
    line("if (lanes_most(peak) >= 0x7f800000U) return 0;");
    each(false, [&](std::size_t k, const Item& item) {
      if (of_values(item)) line("if (any_of(w{})) return 0;", k);
    });
  }

  void decode() {
    open(
        "static void decode(const Call* call, const uint8_t* const* payloads, size_t payload_count, "
        "const float* base, float divide, float* out)");
    line("const size_t n = call->n;");
    plan();
    std::size_t tables_of_block = 0;
    each(false, [&](std::size_t, const Item& item) {
      if (item.table) tables_of_block += item_bytes(item, 1);
    });
    line("size_t at = {};", once_bytes(program_));
    if (tables_of_block != 0)
      line("at += (n + {}) / {} * {};", program_.block - 1, program_.block, tables_of_block);
    open_blocks();
    line("size_t end = 0;");
    open("for (size_t begin = 0; begin < len; begin = end)");
    line("end = len - begin < {0} ? len : begin + {0};", kDecodeRun);
    line("const float* onto = base == nullptr ? nullptr : base + first;");
    line("float* const to = out + first;");
    open("for (size_t p = 0; p < payload_count; ++p)");
    line("const uint8_t* const block = payloads[p] + at;");
    places("const uint8_t*");
    tables("const uint8_t*", fmt::format("payloads[p] + {}", once_bytes(program_)));
    read_numbers(schedule_.read);
    before_loop(schedule_.read.value);
    line("auto run = [&](auto adds) __attribute__((always_inline)) {{");
    open_body();
    each(false, [&](std::size_t k, const Item& item) { unpack(k, item); });
    define_all(schedule_.read.value);
    line("F v = {};", text_.values(program_.result));
    line("if constexpr (decltype(adds)::value) v = add(load_as(tail, onto + i, count), v);");
    line("store_as(tail, to + i, v, count);");
    close_body();
    run_body("begin", "end");
    line("}};");
    line("if (onto != nullptr) run(Yes()); else run(No());");
    line("onto = to;");
    close();
    line("if (divide != 1.0f) divide_all(to + begin, end - begin, divide);");
    close();
    std::string bytes = "0";
    each(false, [&](std::size_t, const Item& item) {
      if (item.table) return;
      bytes += item.array ? fmt::format(" + (len * {} + 7) / 8", item.bits)
                          : fmt::format(" + {}", item_bytes(item, 1));
    });
    line("at += {};", bytes);
    close_blocks();
    close();
  }
};

std::string prelude() {
  std::string all;
  for (const char* const* part : kPrelude) all += *part;
  return all;
}

std::uint64_t hash_of(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

std::uint64_t key_of(const std::string& text) {
  static const std::uint64_t kFront = hash_of(prelude());
  return hash_of(fmt::format("{} {:016x}\n{}", kObjectInterface, kFront, text));
}

}  // namespace

CppBody emit_cpp(const Checked& program, const Schedule& schedule) {
  CppBody body{.text = Emitter(program, schedule).run()};
  body.key = key_of(body.text);
  return body;
}

std::string cpp_file(std::span<const CppBody> bodies, const std::string& symbol) {
  std::string out = "// Made by tithe of a program in the codec language.\n";
  out += prelude();
  for (std::size_t k = 0; k < bodies.size(); ++k)
    out += fmt::format("\nnamespace {{\nnamespace p{} {{\n{}}}\n}}\n", k, bodies[k].text);
  out += fmt::format(
      "\nextern \"C\" __attribute__((visibility(\"default\"))) const Object {0}[{1}];\n"
      "extern \"C\" const Object {0}[{1}] = {{\n",
      symbol, bodies.size() + 1);
  for (std::size_t k = 0; k < bodies.size(); ++k)
    out += fmt::format("    {{{}, {}, 0x{:016x}ULL, p{}::encode, p{}::check, p{}::decode}},\n",
                       kObjectInterface, bodies[k].combination, bodies[k].key, k, k, k);
  return out + "    {0, 0, 0, nullptr, nullptr, nullptr}};\n";
}

}  // namespace tithe::lang
