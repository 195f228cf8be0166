// SPDX-License-Identifier: Apache-2.0
// axis_skid: order kept, nothing lost, nothing twice, full rate, and ready is of a register.
#include "Vaxis_skid.h"
#include "streams.h"

int main(int argc, char** argv) {
  using namespace bench;
  const Args a = args(argc, argv);
  Dut<Vaxis_skid> dut(a);
  dut->s_valid = 0;
  dut.reset();
  for (int in = 0; in < Pause::kKinds; ++in)
    for (int out = 0; out < Pause::kKinds; ++out) {
      Pause in_pause(static_cast<Pause::Kind>(in), a.seed),
          out_pause(static_cast<Pause::Kind>(out), a.seed + 1);
      unsigned next_in = 0, next_out = 0;
      const std::uint64_t begin = dut.cycles();
      while (next_out < 2000) {
        if (!dut->s_valid) dut->s_valid = next_in < 2000 && !in_pause.now();
        dut->s_data = static_cast<CData>(next_in);
        dut->m_ready = 0;
        dut.settle();
        const bool ready = dut->s_ready;
        const bool valid = dut->m_valid;
        dut->m_ready = !out_pause.now();
        dut.settle();
        BENCH_CHECK(dut->s_ready == ready && dut->m_valid == valid);
        if (dut->m_valid && dut->m_ready) BENCH_CHECK(dut->m_data == static_cast<CData>(next_out++));
        const bool went = dut->s_valid && dut->s_ready;
        dut.edge();
        if (went) {
          ++next_in;
          dut->s_valid = 0;
        }
        BENCH_CHECK(dut.cycles() - begin < 100000);
      }
      BENCH_CHECK(next_in == next_out);
      if (in == Pause::kNever && out == Pause::kNever) BENCH_CHECK(dut.cycles() - begin == 2001);
    }
  std::printf("axis_skid: %d pairs of patterns\n", Pause::kKinds * Pause::kKinds);
}
