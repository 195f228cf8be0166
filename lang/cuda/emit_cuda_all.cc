// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/emit_cuda_all.h"

namespace tithe::lang {

// Kernel tithe_number runs the first passes on each block and stores the numbers to be reduced; tithe_all reduces
// them.
void AllText::numbers_of_all() {
  open("struct All");
  line("U none;");
  for (const int k : schedule_.looked.reduce) line("{} b{};", text_.number_type(k), k);
  close("};");
  if (!looks()) return;
  passes_ = &schedule_.look;
  prefix_ = "first_";
  for (std::size_t p = 0; p < schedule_.look.size(); ++p) find(p);
  std::vector<std::string> phases = std::move(finding_);
  finding_.clear();
  open_phase("number", Unit::kBlocks, schedule_.look.size());
  line("if (thread != 0 || first >= n) return;");
  define_all(schedule_.looked.block);
  std::size_t r = 0;
  for (const int k : schedule_.looked.reduce) {
    const int in = node(k).in[0];
    line("static_cast<{}*>(call->parts)[{} * blocks_of(n) * {} + b] = {};", text_.number_type(in), r++,
         numbers_in_8(in), text_.number(in));
  }
  close();
  phases.emplace_back("number");
  group_kernel("tithe_number", phases);
  passes_ = &schedule_.passes;
  prefix_.clear();
  add_numbers();
  end_numbers();
  line("KERNEL(tithe_all, Gather, PHASE(no_numbers)");
  line("  for (uint64_t piece = 0; piece < parts_in(blocks_of(call->n), {}); ++piece) {{", kPiece);
  line("    const uint64_t at = piece;");
  line("    PHASE(add_numbers) PHASE(end_piece)");
  line("  }} PHASE(end_numbers))");
}

// Sixteen threads of a single thread block reduce the numbers of all blocks, piece by piece.
void AllText::add_numbers() {
  open("struct Gather");
  for (const int k : schedule_.looked.reduce) {
    const std::string type = text_.number_type(node(k).in[0]);
    if (is_sum(k)) line("{} s{}[kLanes], piece{}[kLanes];", type, k, k);
    if (is_end(k)) line("{} s{}[kLanes]; U p{}[kLanes];", type, k, k);
    if (counts(k)) line("U n{}[kLanes];", k);
  }
  line("U none;");
  close("};");
  open("DEV void no_numbers(const Call*, Gather& s, uint64_t, U thread)");
  line("if (thread >= kLanes) return;");
  line("if (thread == 0) s.none = 0;");
  for (const int k : schedule_.looked.reduce) {
    if (is_sum(k)) line("s.piece{}[thread] = 0;", k);
    if (is_end(k)) line("s.s{}[thread] = 0, s.p{}[thread] = kNowhere;", k, k);
    if (counts(k)) line("s.n{}[thread] = 0;", k);
  }
  close();
  const auto number = [&](std::size_t r, int k) {
    line("const {} v{} = static_cast<const {}*>(call->parts)[{} * blocks * {} + j];",
         text_.number_type(node(k).in[0]), k, text_.number_type(node(k).in[0]), r,
         numbers_in_8(node(k).in[0]));
  };
  open("DEV void add_numbers(const Call* call, Gather& s, uint64_t at, U thread)");
  line("if (thread >= kLanes) return;");
  line("const uint64_t blocks = call->n == 0 ? 0 : blocks_of(call->n);");
  line("const uint64_t end = blocks < (at + 1) * {0} ? blocks : (at + 1) * {0};", kPiece);
  for (const int k : schedule_.looked.reduce)
    if (is_sum(k)) line("s.s{}[thread] = 0;", k);
  open(fmt::format("for (uint64_t j = at * {} + thread; j < end; j += kLanes)", kPiece));
  std::size_t r = 0;
  for (const int k : schedule_.looked.reduce) {
    number(r++, k);
    if (is_sum(k)) line("s.s{0}[thread] = add(s.s{0}[thread], v{0});", k);
    if (is_end(k))
      line("look_at<{0}>(v{1}, U(j), s.s{1}[thread], s.p{1}[thread]);", node(k).op == Op::kLargest, k);
    if (counts(k))
      line("s.n{0}[thread] += {1};", k,
           node(k).op == Op::kAll ? fmt::format("!v{}", k) : fmt::format("as_u(v{})", k));
  }
  close();
  close();
}

// Combines the sixteen lanes of each piece, and then the pieces, to the results.
void AllText::end_numbers() {
  open("DEV void end_piece(const Call*, Gather& s, uint64_t at, U thread)");
  line("if (thread != 0) return;");
  line("s.none = U(at);");
  for (const int k : schedule_.looked.reduce)
    if (is_sum(k)) line("s.piece{0}[at % kLanes] = add(s.piece{0}[at % kLanes], total_of(s.s{0}));", k);
  close();
  open("DEV void end_numbers(const Call* call, Gather& s, uint64_t, U thread)");
  line("if (thread != 0) return;");
  line("const uint64_t len = call->n == 0 ? 0 : blocks_of(call->n);");
  line("static_cast<void>(len), static_cast<void>(s);");
  line("All& found = *static_cast<All*>(call->found);");
  line("found.none = 0;");
  for (const int k : schedule_.looked.reduce) {
    const Node& n = node(k);
    const std::string type = text_.number_type(k);
    if (is_sum(k)) {
      line("const {0} t{1} = within(total_of(s.piece{1}), {0}({2}));", type, k,
           n.type == Type::kF64 ? "0x1.fffffffffffffp1023" : "0x1.fffffep127f");
      if (n.op == Op::kSum) line("found.b{0} = t{0};", k);
      if (n.op == Op::kMean) line("found.b{0} = len == 0 ? {1}(0) : div_(t{0}, {1}(len));", k, type);
    } else if (is_end(k)) {
      line("U where{};", k);
      line("end_of<{0}>(s.s{1}, s.p{1}, kLanes, 1, found.b{1}, where{1});", n.op == Op::kLargest, k);
    } else {
      line("found.b{0} = sum_of(s.n{0}, kLanes, 1){1};", k,
           n.op == Op::kCount ? ""
           : n.op == Op::kAny ? " != 0"
                              : " == 0");
    }
  }
  close();
}

void AllText::open_sending(const std::string& name, const char* also) {
  open_phase(name, Unit::kBlocks, schedule_.passes.size(), also);
  if (!looks()) return;
  line("const All& all = *static_cast<const All*>(call->found);");
  for (const int k : schedule_.looked.reduce) {
    line("const {} {} = all.b{};", text_.number_type(k), text_.name(k), k);
    known(k);
  }
  define_all(schedule_.all);
}

}  // namespace tithe::lang
