// SPDX-License-Identifier: Apache-2.0
// ask_cross: between clocks of any ratio and phase, every question arrives once and in order, and so does its answer.
#include "Vask_cross.h"
#include "clocks.h"

namespace bench {
namespace {

std::uint32_t answer_to(std::uint32_t question) { return question * 2654435761U ^ 0x5bd1e995U; }

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  seed() = a.seed;
  Verilated::randReset(2);
  Verilated::randSeed(static_cast<int>(a.seed));
  Vask_cross dut;
  Random random(a.seed);
  dut.s_ask_valid = dut.s_answer_ready = dut.m_ask_ready = dut.m_answer_valid = 0;
  dut.s_rst = dut.m_rst = 1;
  Clocks clocks({&dut.s_clk, &dut.m_clk}, random);
  Pause pauses[4] = {{Pause::kNever, 1}, {Pause::kNever, 2}, {Pause::kNever, 3}, {Pause::kNever, 4}};
  std::deque<std::uint32_t> sent, received;
  std::uint64_t questions = 0, arrived = 0, answers = 0, quiet = 0;
  bool taken[4] = {};
  const auto before = [&](std::size_t side) {
    if (side == 0) {
      if (!dut.s_ask_valid && !pauses[0].now()) {
        dut.s_ask = static_cast<IData>(random());
        dut.s_ask_valid = 1;
      }
      dut.s_answer_ready = !pauses[1].now();
    } else {
      dut.m_ask_ready = !pauses[2].now();
      if (!dut.m_answer_valid && !received.empty() && !pauses[3].now()) {
        dut.m_answer = answer_to(received.front());
        dut.m_answer_valid = 1;
      }
    }
    dut.eval();
    taken[0] = side == 0 && dut.s_ask_valid && dut.s_ask_ready;
    taken[1] = side == 0 && dut.s_answer_valid && dut.s_answer_ready;
    taken[2] = side == 1 && dut.m_ask_valid && dut.m_ask_ready;
    taken[3] = side == 1 && dut.m_answer_valid && dut.m_answer_ready;
    if (taken[1]) {
      BENCH_CHECK(!sent.empty() && dut.s_answer == answer_to(sent.front()));
      sent.pop_front();
      ++answers;
    }
    if (taken[0]) {
      sent.push_back(dut.s_ask);
      ++questions;
    }
    if (taken[2]) {
      received.push_back(dut.m_ask);
      BENCH_CHECK(++arrived == questions && !sent.empty() && received.front() == sent.front());
    }
    if (taken[3]) received.pop_front();
    BENCH_CHECK(sent.size() <= 1 && received.size() <= 1);
  };
  const auto after = [&](std::size_t) {
    if (taken[0]) dut.s_ask_valid = 0;
    if (taken[3]) dut.m_answer_valid = 0;
    quiet = taken[0] || taken[1] || taken[2] || taken[3] ? 0 : quiet + 1;
  };
  while (clocks.edges() < 60) clocks.edge([&] { dut.eval(); }, [](std::size_t) {}, [](std::size_t) {});
  dut.s_rst = dut.m_rst = 0;
  while (answers < 20000) {
    if (clocks.edges() % 5000 == 0) {
      clocks.change();
      for (Pause& p : pauses) p = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    }
    clocks.edge([&] { dut.eval(); }, before, after);
    BENCH_CHECK(quiet < 4000);
  }
  std::printf("ask_cross: %llu questions, %.1f edges for each\n", static_cast<unsigned long long>(answers),
              static_cast<double>(clocks.edges()) / static_cast<double>(answers));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
