// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/emit_cuda.h"

#include <algorithm>

#include "lang/cuda/emit_cuda_lengths.h"
#include "lang/cuda/emit_cuda_lists.h"
#include "lang/cuda/emit_cuda_text.h"
#include "lang/runtime/prelude.h"

namespace tithe::lang {

namespace {

// Programs and phases that send numbers and fixed-width codes.
class BlocksText : CudaText {
 public:
  using CudaText::CudaText;

  std::string run() {
    types();
    shared();
    for (std::size_t p = 0; p < schedule_.passes.size(); ++p) find(p);
    send();
    pack();
    std::vector<std::string> phases = finding_;
    phases.emplace_back("send");
    phases.emplace_back("pack_block");
    group_kernel("tithe_send", phases);
    if (program_.adds()) kernel("tithe_words", "Shared", {"write_words"});
    if (decodes()) {
      receive();
      group_kernel("tithe_receive", {"receive"});
    }
    host();
    return std::move(out_);
  }

 private:
  void shared() {
    line("enum {{ kAnswers = {} }};", 1 + program_.items.size());
    open("struct Shared");
    line("Found found;");
    if (!is_long()) line("Lanes<kGroup> lanes;");
    each([&](std::size_t k, const Item& item) {
      if (shares(item)) line("uint{}_t c{}[{}];", 8 * code_bytes(item), k, is_long() ? kRun : program_.block);
    });
    close("};");
    line(
        "static_assert(sizeof(Shared) * (kThreads / kGroup) <= 48 * 1024, \"more than a block of threads can "
        "share\");");
  }

  bool decodes() const { return program_.result != kNone; }
  // Codes that a thread block packs in shared memory; trits and int fields have kernels of their own.
  static bool shares(const Item& item) {
    return item.array && item.coding != Coding::kTrits && item.coding != Coding::kInts;
  }
  // True if encode needs a last loop over the values: not in a phase that sends only the results of its passes.
  bool sends_each() const {
    return decodes() || schedule_.passes.empty() ||
           std::any_of(program_.items.begin(), program_.items.end(),
                       [](const Item& item) { return item.array; });
  }

  // The addresses of tables and of the items of block b: t0, o1, ...
  void places(const char* type) {
    std::string from = fmt::format("call->payload + {}", once_bytes(program_));
    each([&](std::size_t k, const Item& item) {
      if (!item.table) return;
      line("{} const t{} = {};", type, k, from);
      from =
          fmt::format("t{} + (n + {}) / {} * {}", k, program_.block - 1, program_.block, item_bytes(item, 1));
    });
    if (program_.block != 0) from += fmt::format(" + b * {}", block_bytes(program_, program_.block));
    each([&](std::size_t k, const Item& item) {
      if (item.table) return;
      line("{} const o{} = {};", type, k, from);
      line("static_cast<void>(o{});", k);
      from = item.array ? fmt::format("o{} + {}", k, array_bytes(item))
                        : fmt::format("o{} + {}", k, item_bytes(item, 1));
    });
  }
  std::string place(std::size_t k, const Item& item) const {
    return item.table ? fmt::format("t{} + b * {}", k, item_bytes(item, 1)) : fmt::format("o{}", k);
  }
  void send() {
    open_phase("send", Unit::kRuns, schedule_.passes.size());
    define_all(schedule_.send.block);
    places("uint8_t*");
    line("const bool writes = thread == 0 && begin == 0{};", program_.block == 0 ? "" : " && first < n");
    if (program_.counts) line("if (thread == 0 && at == 0) put(call->payload, 1, {});", kCountBytes);
    if (program_.adds()) line("const U added = 1;");
    each_once([&](std::size_t place, const Item& item) {
      const std::string bits = fmt::format("raw({})", text_.number(item.value));
      line("if (thread == 0 && at == 0) put(call->payload + {}, {}, {});", place, bits, item_bytes(item, 1));
      receive_as(item, bits, 'b');
    });
    define_all(schedule_.all_read);
    each([&](std::size_t k, const Item& item) {
      if (item.array) return;
      line("if (writes) put({}, raw({}), {});", place(k, item), text_.number(item.value),
           item_bytes(item, 1));
      if (item.is_float) line("if (writes && !is_finite({})) say(call, 0);", text_.number(item.value));
      receive_as(item, fmt::format("raw({})", text_.number(item.value)), 'b');
    });
    define_all(schedule_.read.block);
    hold(false);
    if (decodes()) line("float* const l = call->left == nullptr ? nullptr : call->left + first;");
    if (sends_each()) send_values();
    close();
  }

  void send_values() {
    before_loop(schedule_.send.value);
    before_loop(schedule_.read.value);
    open_values("for (size_t i = begin + thread; i < end; i += kGroup)");
    take();
    define_all(schedule_.send.value);
    each([&](std::size_t k, const Item& item) {
      if (!item.array) return;
      const std::string bits = fmt::format("raw({})", text_.values(item.value));
      if (item.coding == Coding::kTrits)
        line("call->codes[first + i] = uint8_t({});", bits);
      else if (item.coding == Coding::kInts)
        line("call->ints[first + i] = {};", bits);
      else
        line("s.c{}[i - begin] = uint{}_t({});", k, 8 * code_bytes(item), bits);
      if (item.is_float) unless_finite(text_.values(item.value));
      receive_as(item, bits, 'v');
    });
    define_all(schedule_.read.value);
    hold(true);
    if (decodes()) leave();
    close_values();
  }

  void leave() {
    line("const F sent = {};", text_.values(program_.result));
    unless_finite("sent");
    open("if (l != nullptr)");
    line("const F rest = sub(x, sent);");
    line("l[i] = rest;");
    unless_finite("rest");
    close();
  }

  void pack() {
    open_phase("pack_block", Unit::kRuns, 0);
    places("uint8_t*");
    each([&](std::size_t k, const Item& item) {
      if (!shares(item)) return;
      line("if (first < n) pack<{0}>(s.c{1}, end - begin, o{1} + begin * {0} / 8, {2}, thread, kGroup);",
           item.bits, k,
           item.full != 0 ? array_bytes(item) : fmt::format("((end - begin) * {} + 7) / 8", item.bits));
    });
    close();
  }

  // Generates the decoding kernel: out = base + decoded value, one payload per launch.
  void receive() {
    open_phase("receive", Unit::kRuns, 0);
    line("if (begin >= end) return;");
    if (program_.adds()) line("const U added = get(call->payload, 2);");
    each_once([&](std::size_t place, const Item& item) {
      receive_as(item, fmt::format("get(call->payload + {}, {})", place, item_bytes(item, 1)), 'b');
    });
    define_all(schedule_.all_read);
    places("const uint8_t*");
    each([&](std::size_t k, const Item& item) {
      if (!item.array) receive_as(item, fmt::format("get({}, {})", place(k, item), item_bytes(item, 1)), 'b');
    });
    define_all(schedule_.read.block);
    before_loop(schedule_.read.value);
    outer_ = defined_;
    open("for (size_t i = begin + thread; i < end; i += kGroup)");
    one_value();
    each([&](std::size_t k, const Item& item) {
      if (item.array)
        receive_as(item,
                   item.coding == Coding::kTrits  ? std::string("trit_at(call, i)")
                   : item.coding == Coding::kInts ? std::string("int_at(call, first + i)")
                                                  : fmt::format("code_at<{}>(o{}, i)", item.bits, k),
                   'v');
    });
    define_all(schedule_.read.value);
    line("const F v = {};", text_.values(program_.result));
    line("call->out[first + i] = call->base == nullptr ? v : add(call->base[first + i], v);");
    close();
    defined_ = outer_;
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
    if (!trits()) {
      line("DEV uint64_t bytes_of(uint64_t n, U field_bits) {{");
      line("  static_cast<void>(field_bits);");
      line("  return {};", bytes());
      line("}}");
      line("DEV void tell(const Call* call, Shared&, uint64_t, U thread) {{");
      line("  if (thread == 0) *call->bytes = bytes_of(call->n, call->field_bits);");
      line("}}");
      kernel("tithe_tell", "Shared", {"tell"});
    }
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
    } else {
      if (program_.adds()) line("LAUNCH(tithe_words, parts_in(words_of(of.n, of.field_bits), kWordsOf));");
      line("LAUNCH(tithe_tell, 1);");
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
};

}  // namespace

namespace {

// Renames kernels and functions to tithe_NAME_send and so on.
std::string named(std::string text, std::string_view name) {
  constexpr std::string_view kFront = "tithe_";
  for (std::size_t at = text.find(kFront); at != std::string::npos; at = text.find(kFront, at + 1))
    text.insert(at + kFront.size(), fmt::format("{}_", name));
  return fmt::format("\n// ---- Phase {0}\nnamespace phase_{0} {{\n{1}}}  // namespace phase_{0}\n", name,
                     text);
}

}  // namespace

std::string cuda_file(const Combination& of) { return cuda_file({{{}, &of}}); }

std::string cuda_file(const std::vector<NamedPhase>& phases) {
  std::string text =
      "// Generated by tithe from a program in the codec language.\n"
      "// nvcc -std=c++17 --fmad=false -ftz=false -prec-div=true -prec-sqrt=true\n";
  for (const char* part : {kPreludeCudaTypes, kPreludeScalars, kPreludeCuda, kPreludeCudaBytes}) text += part;
  const auto any = [&](bool (*of)(const Checked&)) {
    return std::any_of(phases.begin(), phases.end(),
                       [&](const NamedPhase& phase) { return of(phase.of->program); });
  };
  if (any([](const Checked& p) { return p.sends_pairs; })) text += kPreludeCudaLists;
  if (any(has_lengths) || any([](const Checked& p) { return p.varies(); })) text += kPreludeCudaLengths;
  if (any([](const Checked& p) { return !has_lengths(p) && p.varies(); })) text += kPreludeCudaTrits;
  if (any([](const Checked& p) { return p.adds(); })) text += kPreludeCudaInts;
  for (const NamedPhase& phase : phases) {
    const Checked& program = phase.of->program;
    const Schedule& schedule = phase.of->schedule;
    const std::string body = program.sends_pairs    ? lists_text(program, schedule)
                             : has_lengths(program) ? lengths_text(program, schedule)
                                                    : BlocksText(program, schedule).run();
    text += phase.name.empty() ? body : named(body, phase.name);
  }
  return text;
}

}  // namespace tithe::lang
