// SPDX-License-Identifier: Apache-2.0
// reset_sync: a reset begins when it is requested, also while the clock stands, and ends at the third edge after the
// request.
#include "Vreset_sync.h"
#include "streams.h"

namespace bench {
namespace {

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  seed() = a.seed;
  Verilated::randReset(2);
  Verilated::randSeed(static_cast<int>(a.seed));
  Vreset_sync dut;
  Random random(a.seed);
  dut.clk = 0;
  dut.any_rst = 0;
  dut.eval();
  unsigned left = 0;
  for (int i = 0; i < 10000; ++i) {
    if (random() % 8 == 0 || i == 0) {
      dut.any_rst = 1;
      dut.eval();
      BENCH_CHECK(dut.rst);
      left = 3;
      for (auto edges = random() % 6; edges > 0; --edges) {
        dut.clk = !dut.clk;
        dut.eval();
        BENCH_CHECK(dut.rst);
      }
      dut.any_rst = 0;
      dut.eval();
      BENCH_CHECK(dut.rst);
    }
    const bool rises = !dut.clk;
    dut.clk = !dut.clk;
    dut.eval();
    if (rises && left > 0) --left;
    BENCH_CHECK(dut.rst == (left > 0));
  }
  std::printf("reset_sync: 10000 edges\n");
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
