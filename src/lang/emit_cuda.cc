// SPDX-License-Identifier: Apache-2.0
#include "lang/emit_cuda.h"

#include <algorithm>

#include "codec/sparse/sparse.h"
#include "lang/emit_cuda_lengths.h"
#include "lang/emit_cuda_lists.h"
#include "lang/emit_cuda_text.h"
#include "lang/prelude.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMostShared = 40U << 10;  // of codes; a block of threads can have 48 KB

// Programs that send numbers and codes of a fixed size.
class BlocksText : CudaText {
 public:
  using CudaText::CudaText;

  std::string run() {
    types();
    shared();
    for (std::size_t p = 0; p < schedule_.passes.size(); ++p) find(p);
    send();
    pack();
    receive();
    std::vector<std::string> phases = finding_;
    phases.emplace_back("send");
    phases.emplace_back("pack");
    kernel("tithe_send", "Shared", phases);
    kernel("tithe_receive", "Shared", {"receive"});
    host();
    return std::move(out_);
  }

 private:
  void shared() {
    line("enum {{ kAnswers = {} }};", 1 + program_.items.size());
    open("struct Shared");
    if (!is_long()) line("Found found;");
    line("Lanes lanes;");
    each([&](std::size_t k, const Item& item) {
      if (item.array && item.coding != Coding::kTrits)
        line("uint{}_t c{}[{}];", 8 * code_bytes(item), k, is_long() ? kRun : program_.block);
    });
    close("};");
    line("static_assert(sizeof(Shared) <= 48 * 1024, \"more than a block of threads can share\");");
  }

  // Where tables and the items of block b begin: t0, o1, ...
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
    std::size_t at = 0;
    for (const Item& item : program_.items)
      if (item.once) {
        line("if (thread == 0 && at == 0) put(call->payload + {}, raw({}), {});", at,
             text_.number(item.value), item_bytes(item, 1));
        at += item_bytes(item, 1);
      }
    each([&](std::size_t k, const Item& item) {
      if (item.array) return;
      line("if (writes) put({}, raw({}), {});", place(k, item), text_.number(item.value),
           item_bytes(item, 1));
      if (item.is_float) line("if (writes && !is_finite({})) call->answer[0] = 1;", text_.number(item.value));
      receive_as(item, fmt::format("raw({})", text_.number(item.value)), 'b');
    });
    define_all(schedule_.read.block);
    hold(false);
    line("float* const l = call->left == nullptr ? nullptr : call->left + first;");
    before_loop(schedule_.send.value);
    before_loop(schedule_.read.value);
    outer_ = defined_;
    open("for (size_t i = begin + thread; i < end; i += kThreads)");
    take();
    define_all(schedule_.send.value);
    each([&](std::size_t k, const Item& item) {
      if (!item.array) return;
      const std::string bits = fmt::format("raw({})", text_.values(item.value));
      if (item.coding == Coding::kTrits)
        line("call->codes[first + i] = uint8_t({});", bits);
      else
        line("s.c{}[i - begin] = uint{}_t({});", k, 8 * code_bytes(item), bits);
      if (item.is_float) line("if (!is_finite({})) call->answer[0] = 1;", text_.values(item.value));
      receive_as(item, bits, 'v');
    });
    define_all(schedule_.read.value);
    hold(true);
    line("const F sent = {};", text_.values(program_.result));
    line("if (!is_finite(sent)) call->answer[0] = 1;");
    open("if (l != nullptr)");
    line("const F rest = sub(x, sent);");
    line("l[i] = rest;");
    line("if (!is_finite(rest)) call->answer[0] = 1;");
    close();
    close();
    defined_ = outer_;
    close();
  }

  void pack() {
    open_phase("pack", Unit::kRuns, 0);
    places("uint8_t*");
    each([&](std::size_t k, const Item& item) {
      if (!item.array || item.coding == Coding::kTrits) return;
      line("if (first < n) pack<{0}>(s.c{1}, end - begin, o{1} + begin * {0} / 8, {2}, thread);", item.bits,
           k, item.full != 0 ? array_bytes(item) : fmt::format("((end - begin) * {} + 7) / 8", item.bits));
    });
    close();
  }

  void receive() {
    open_phase("receive", Unit::kRuns, 0);
    line("if (begin >= end) return;");
    places("const uint8_t*");
    each([&](std::size_t k, const Item& item) {
      if (!item.array) receive_as(item, fmt::format("get({}, {})", place(k, item), item_bytes(item, 1)), 'b');
    });
    define_all(schedule_.read.block);
    before_loop(schedule_.read.value);
    outer_ = defined_;
    open("for (size_t i = begin + thread; i < end; i += kThreads)");
    each([&](std::size_t k, const Item& item) {
      if (item.array)
        receive_as(item,
                   item.coding == Coding::kTrits ? std::string("trit_at(call, i)")
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

  // Bytes of a payload of n values, as payload_bytes (lang/passes.h) has it.
  std::string bytes() const {
    const std::size_t block = program_.block, once = once_bytes(program_);
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

  // Where everything stands in the scratch; its bytes.
  void scratch() {
    open("static uint64_t place_all(Call& of)");
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

  void host() {
    if (!trits()) {
      line("DEV uint64_t bytes_of(uint64_t n) {{ return {}; }}", bytes());
      line("DEV void tell(const Call* call, Shared&, uint64_t, U thread) {{");
      line("  if (thread == 0) *call->bytes = bytes_of(call->n);");
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
    line("LAUNCH(tithe_send, runs_of(call->n));");
    if (trits()) {
      line("const uint64_t runs = parts_in(fives_of(of.n), kBytesOf);");
      line("LAUNCH(tithe_fives, runs);");
      line("LAUNCH(tithe_lasts, 1);");
      line("LAUNCH(tithe_codes, runs);");
      line("LAUNCH(tithe_places, 1);");
      line("LAUNCH(tithe_write_codes, runs);");
    } else {
      line("LAUNCH(tithe_tell, 1);");
    }
    close();
    begin("tithe_decode");
    if (trits()) {
      line("const uint64_t runs = parts_in(codes_in(call), kBytesOf);");
      line("LAUNCH(tithe_count_fives, runs);");
      line("LAUNCH(tithe_places_of_fives, 1);");
      line("LAUNCH(tithe_read_fives, runs);");
    }
    line("LAUNCH(tithe_receive, runs_of(call->n));");
    close();
  }
};

bool looks_first(const Checked& program) {
  return std::any_of(program.nodes.begin(), program.nodes.end(),
                     [](const Node& node) { return node.stage == Stage::kAll; });
}

// Blocks begin where those before them end, or wait for what is found of all of them.
bool has_lengths(const Checked& program) {
  return looks_first(program) ||
         std::any_of(program.items.begin(), program.items.end(), [](const Item& item) {
           return item.coding == Coding::kWidths || item.coding == Coding::kPlaces ||
                  item.coding == Coding::kBytes;
         });
}

// Of programs that send trits: one array, behind numbers, of all values.
bool sends_trits_alone(const Checked& program) {
  std::size_t arrays = 0;
  for (const Item& item : program.items) arrays += item.array ? 1U : 0U;
  return program.block == 0 && arrays == 1 && program.items.back().array;
}

const char* no_blocks(const Checked& program, const Schedule& schedule) {
  const bool is_long = program.block == 0 || program.block > kPiece;
  const std::size_t length = is_long ? kRun : program.block;
  std::size_t shared = 0;
  for (const Item& item : program.items) {
    if (item.coding == Coding::kTrits && !sends_trits_alone(program))
      return "it sends trits of blocks, or beside other codes, and no kernels are made of that";
    if (item.full != 0 && item.coding == Coding::kCodes && is_long)
      return "it fills up blocks of more than 8192 values, and no kernels are made of that";
    if (item.array) shared += length * code_bytes(item);
  }
  if (has_lengths(program)) {
    if (is_long)
      return "blocks of different lengths have more than 8192 values, and no kernels are made of that";
    shared += length * program.items.size() + block_bytes(program, length);
  }
  if (shared > kMostShared) return "the codes of a block are more than a block of threads can share";
  for (const auto* passes : {&schedule.look, &schedule.passes})
    for (const Pass& pass : *passes)
      for (const int k : pass.reduce)
        if (program.node(k).op == Op::kThreshold)
          return "it samples a threshold and sends no pairs, and no kernels are made of that";
  return nullptr;
}

// What goes through a block's values in order, or keeps a table of them.
const char* no_order(const Checked& program) {
  for (const Node& node : program.nodes) {
    if (node.op == Op::kScan) return "it uses scan, and no kernels are made of that";
    if (node.op == Op::kHistogram) return "it uses histogram, and no kernels are made of that";
    if (node.op == Op::kSort) return "it uses sort, and no kernels are made of that";
    if (node.op == Op::kOrder) return "it uses rank, and no kernels are made of that";
  }
  return nullptr;
}

}  // namespace

const char* no_kernels(const Combination& of, const Settings& settings) {
  if (of.before != nullptr || of.program.law != Law::kDecode)
    return "no kernels are made yet of what is agreed on in phases";
  if (const char* why = no_order(of.program)) return why;
  if (!of.program.sends_pairs) return no_blocks(of.program, of.schedule);
  if (!sparse::form_of(settings, of.form).plain())
    return "kernels write values=fp32 and indices=u32, and no other form of a list yet";
  return nullptr;
}

std::string cuda_file(const Combination& of) {
  const Checked& program = of.program;
  std::string text =
      "// Made by tithe of a program in the codec language: compiled and emulated; no GPU has run it.\n"
      "// nvcc -std=c++17 --fmad=false -ftz=false -prec-div=true -prec-sqrt=true\n";
  text += kPreludeCuda;
  text += kPreludeCudaBytes;
  if (program.sends_pairs) return text + kPreludeCudaLists + lists_text(program, of.schedule);
  if (has_lengths(program)) return text + kPreludeCudaLengths + lengths_text(program, of.schedule);
  if (program.varies()) text = text + kPreludeCudaLengths + kPreludeCudaTrits;
  return text + BlocksText(program, of.schedule).run();
}

}  // namespace tithe::lang
