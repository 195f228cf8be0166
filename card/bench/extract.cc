// SPDX-License-Identifier: Apache-2.0
// extract: 32 bytes from every begin.
#include "Vextract.h"
#include "streams.h"

int main(int argc, char** argv) {
  using namespace bench;
  const Args a = args(argc, argv);
  Dut<Vextract> dut(a);
  dut->en = 1;
  Random random(a.seed);
  std::deque<Bytes> in;
  for (unsigned i = 0; i < 10000; ++i) {
    Bytes bytes(66);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    put(dut->data, bytes.data(), bytes.size());
    dut->start = static_cast<CData>(i % 35);
    in.emplace_back(bytes.begin() + i % 35, bytes.begin() + std::min(66U, i % 35 + 32));
    in.back().resize(32);
    dut.step();
    if (i < 1) continue;
    BENCH_CHECK(std::memcmp(&dut->out, in.front().data(), 32) == 0);
    in.pop_front();
  }
  std::printf("extract: 10000 windows\n");
}
