// SPDX-License-Identifier: Apache-2.0
// pipe: what went in comes out after its depth, in enabled cycles.
#include "Vpipe.h"
#include "streams.h"

int main(int argc, char** argv) {
  using namespace bench;
  const Args a = args(argc, argv);
  Dut<Vpipe> dut(a);  // of depth 3
  Random random(a.seed);
  std::deque<CData> in;
  for (int i = 0; i < 10000; ++i) {
    dut->en = random() % 2;
    dut->in = static_cast<CData>(random());
    if (dut->en) in.push_back(dut->in);
    dut.step();
    if (in.size() < 3) continue;
    while (in.size() > 3) in.pop_front();
    BENCH_CHECK(dut->out == in.front());
  }
  std::printf("pipe: 10000 cycles\n");
}
