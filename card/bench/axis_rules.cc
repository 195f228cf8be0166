// SPDX-License-Identifier: Apache-2.0
// axis_rules: an assertion fails for each rule that is broken, and none where all are kept.
#include "Vaxis_rules.h"
#include "streams.h"

int main(int argc, char** argv) {
  using namespace bench;
  const Args a = args(argc, argv);
  Dut<Vaxis_rules> dut(a);
  auto* context = Verilated::threadContextp();
  context->errorLimit(1000000);
  const auto beat = [&](unsigned keep, std::uint8_t fill, bool last, bool ready) {
    std::uint8_t data[32] = {};
    for (unsigned i = 0; i < 32; ++i) data[i] = keep >> i & 1U ? fill : 0;
    put(dut->tdata, data, 32);
    dut->tkeep = keep;
    dut->tvalid = 1;
    dut->tlast = last;
    dut->tready = ready;
    dut.step();
  };
  // Failures that f causes, after a reset.
  const auto failures = [&](auto f) {
    dut->tvalid = 0;
    dut.reset();
    dut.step();
    const int before = context->errorCount();
    f();
    return context->errorCount() - before;
  };
  std::fflush(stdout);
  std::FILE* const quiet = std::freopen("/dev/null", "w", stdout);  // where the runtime tells of each
  const int none = failures([&] {
    beat(~0U, 1, false, false);
    beat(~0U, 1, false, true);
    beat(0xff, 2, true, true);
  });
  const int broken[] = {failures([&] { beat(0, 1, true, true); }),      // no byte
                        failures([&] { beat(0xf0f, 1, true, true); }),  // a hole
                        failures([&] { beat(0xff, 1, false, true); }),  // short, and not the last
                        failures([&] {                                  // bytes where tkeep has none
                          put(dut->tdata, "xxxxxxxxx", 9);
                          dut->tkeep = 0xff;
                          dut->tvalid = dut->tlast = 1;
                          dut.step();
                        }),
                        failures([&] {  // taken back
                          beat(~0U, 1, false, false);
                          dut->tvalid = 0;
                          dut.step();
                        }),
                        failures([&] {  // changed while it waits
                          beat(~0U, 1, false, false);
                          beat(~0U, 2, false, true);
                        })};
  std::fclose(quiet);
  seed() = a.seed;
  BENCH_CHECK(none == 0);
  for (const int count : broken) BENCH_CHECK(count > 0);
  std::fprintf(stderr, "axis_rules: 6 broken rules found\n");
}
