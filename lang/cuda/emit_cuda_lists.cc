// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/emit_cuda_lists.h"

#include "lang/cuda/emit_cuda_text.h"

namespace tithe::lang {

namespace {

class ListsText : CudaText {
 public:
  using CudaText::CudaText;

  std::string run() {
    types();
    line("enum {{ kAnswers = 1 }};");
    open("struct Shared");
    line("Rows<U> mine;");
    close("};");
    for (std::size_t p = 0; p < schedule_.passes.size(); ++p) {
      find(p);
      for (const int k : schedule_.passes[p].reduce)
        if (by_sample(node(k))) threshold(k, p);
    }
    mark();
    limit();
    if (slots()) table();
    host();
    return std::move(out_);
  }

 private:
  bool slots() const { return program_.pairs.slots != kNone; }

  // The magnitudes of the sample, and the threshold found in them (codec/shared/sparse/select.h).
  void threshold(int k, std::size_t p) {
    const Node& n = node(k);
    open_phase(fmt::format("sample_{}", k), Unit::kRuns, p);
    line("const uint64_t lines = sample_lines(n, {}, {});", text_.number(n.in[0]), text_.number(n.in[1]));
    line("const uint64_t sampled = lines == 0 ? n : lines * kLine;");
    open("for (size_t i = begin + thread; i < end && i < sampled; i += kThreads)");
    line("const size_t from = lines == 0 ? i : sample_line(n, lines, call->key, i / kLine) + i % kLine;");
    line("call->keys[i] = (bits_(taken(call, from)) & 0x7fffffffU) + 1;");
    close();
    line("if (thread == 0 && at == 0) want(call->state, sampled, sample_rank(n, lines, {}));",
         text_.number(n.in[0]));
    close();
    kernel(fmt::format("tithe_sample_{}", k), "Shared", {fmt::format("sample_{}", k)});
    open_phase(fmt::format("reached_{}", k), Unit::kBlocks, 0);
    line("if (thread != 0) return;");
    line("const U least = n == 0 ? 1 : call->state->least - 1;");
    line("{}.{} = float_(least == 0 ? 1 : least);", found_of("0"), text_.name(k));
    close();
    kernel(fmt::format("tithe_reached_{}", k), "Shared", {fmt::format("reached_{}", k)});
  }

  // Computes the values' keys and counts the selected ones.
  void mark() {
    open_phase("mark", Unit::kRuns, schedule_.passes.size());
    define_all(schedule_.send.block);
    before_loop(schedule_.send.value);
    line("U mine = 0;");
    open_values("for (size_t i = begin + thread; i < end; i += kThreads)");
    take();
    define_all(schedule_.send.value);
    line("const bool goes = {};", text_.values(program_.pairs.where));
    line("call->keys[i] = goes ? (bits_(x) & 0x7fffffffU) + 1 : 0;");
    line("mine += as_u(goes);");
    close_values();
    line("s.mine.of[thread] = mine;");
    close();
    line(
        "DEV void mark_rows(const Call*, Shared& s, uint64_t, U thread) {{ put_rows<Adds>(s.mine, thread); "
        "}}");
    open("DEV void marked(const Call* call, Shared& s, uint64_t, U thread)");
    line("if (thread == 0) atomic_add(&call->state->total, all_of<Adds>(s.mine));");
    close();
    kernel("tithe_mark", "Shared", {"mark", "mark_rows", "marked"});
  }

  // If more values are selected than `at most`, keeps the largest ones.
  void limit() {
    open_phase("limit", Unit::kBlocks, schedule_.passes.size());
    line("if (thread != 0) return;");
    const auto count = [&](const char* name, int k, const char* otherwise) {
      if (k == kNone) return line("const uint64_t {} = {};", name, otherwise);
      line("const uint64_t {} = at_most({}, {});", name, text_.number(k), otherwise);
    };
    count("most", program_.pairs.most, "n");
    count("keep", program_.pairs.keep, "most");
    line("if (call->state->total > most) want(call->state, n, keep);");
    close();
    kernel("tithe_limit", "Shared", {"limit"});
  }

  // The last of the values that share a slot is sent.
  void table() {
    const std::size_t per = program_.pairs.per;
    open("DEV U slots_of(const Call* call, uint64_t length)");
    line("const size_t n = call->n;");
    line("static_cast<void>(n);");
    plan();
    line("const D slots = ceil(mul({}, D(length)));", text_.number(program_.pairs.slots));
    line("return slots > 1.0 ? U(slots) : 1;");
    close();
    open("DEV uint64_t slots_of_all(const Call* call)");
    line("return (call->n + {0} - 1) / {0} * slots_of(call, {0});", per);
    close();
    open("DEV U* slot_of(const Call* call, size_t i)");
    line("const size_t table = i / {}, first = table * {};", per, per);
    line("const size_t length = call->n - first < {0} ? call->n - first : {0};", per);
    line("return call->table + table * slots_of(call, {}) +", per);
    line("       hashed_to(U(i), U(mix64(call->key) >> 32), slots_of(call, length));");
    close();
    open("DEV void empty_slots(const Call* call, Shared&, uint64_t at, U thread)");
    line("const uint64_t all = slots_of_all(call);");
    line(
        "for (uint64_t j = at * {0} + thread; j < all && j < (at + 1) * {0}; j += kThreads) call->table[j] = "
        "0;",
        kRun);
    close();
    kernel("tithe_empty_slots", "Shared", {"empty_slots"});
    open_phase("put_in_slots", Unit::kRuns, 0);
    open("for (size_t i = begin + thread; i < end; i += kThreads)");
    line("if (call->keys[i] != 0) atomic_max(slot_of(call, i), U(i) + 1);");
    close();
    close();
    kernel("tithe_put_in_slots", "Shared", {"put_in_slots"});
    open_phase("keep_last", Unit::kRuns, 0);
    open("for (size_t i = begin + thread; i < end; i += kThreads)");
    line("if (call->keys[i] != 0 && *slot_of(call, i) != U(i) + 1) call->keys[i] = 0;");
    close();
    close();
    kernel("tithe_keep_last", "Shared", {"keep_last"});
  }

  // Generates the host functions. Encode: passes, keys, selection by slots or by radix selection, counts, scan,
  // write. Decode: copy the base, then scatter the pairs.
  void host() {
    open("HOST uint64_t place_all(Call& of)");
    place_found();
    line("uint8_t* to = static_cast<uint8_t*>(of.parts) + up8(pieces_of(of.n) * sizeof(Part));");
    line("of.state = reinterpret_cast<State*>(to);");
    line("of.keys = reinterpret_cast<U*>(to += up8(sizeof(State)));");
    line("of.tally = reinterpret_cast<U*>(to += up8(4 * of.n));");
    line("of.table = reinterpret_cast<U*>(to += 8 * runs_of(of.n));");
    line("return uint64_t(to - of.scratch){};", slots() ? " + up8(4 * slots_of_all(&of))" : "");
    close();
    open("API uint64_t tithe_scratch(const Call* host_call)");
    line("Call of = *host_call;");
    line("of.scratch = nullptr;");
    line("return place_all(of);");
    close();
    open("API void tithe_encode(const Call* host_call, Stream stream)");
    line("Call of = *host_call;");
    line("const Call* const call = &of;");
    line("place_all(of);");
    line("const uint64_t runs = runs_of(of.n);");
    for (std::size_t p = 0; p < schedule_.passes.size(); ++p) {
      launch_pass(p);
      for (const int k : schedule_.passes[p].reduce) {
        if (!by_sample(node(k))) continue;
        line("LAUNCH(tithe_sample_{}, runs);", k);
        line("select_key(call, runs, stream);");
        line("LAUNCH(tithe_reached_{}, 1);", k);
      }
    }
    line("LAUNCH(tithe_all_go, 1);");
    line("LAUNCH(tithe_mark, runs);");
    if (slots()) {
      line("LAUNCH(tithe_empty_slots, parts_in(slots_of_all(call), {}));", kRun);
      line("LAUNCH(tithe_put_in_slots, runs);");
      line("LAUNCH(tithe_keep_last, runs);");
    } else {
      line("LAUNCH(tithe_limit, 1);");
      line("select_key(call, runs, stream);");
    }
    line("LAUNCH(tithe_tally, runs);");
    line("LAUNCH(tithe_scan, 1);");
    line("LAUNCH(tithe_write, runs);");
    close();
    open("API void tithe_decode(const Call* call, Stream stream)");
    line("LAUNCH(tithe_base, runs_of(call->n));");
    line("LAUNCH(tithe_scatter, runs_of((call->payload_bytes - 4) / 8));");
    close();
    line("PLAN(tithe_plan_encode, tithe_scratch, tithe_encode)");
    line("PLAN(tithe_plan_decode, tithe_scratch, tithe_decode)");
  }
};

}  // namespace

std::string lists_text(const Checked& program, const Schedule& schedule) {
  return ListsText(program, schedule).run();
}

}  // namespace tithe::lang
