// SPDX-License-Identifier: Apache-2.0
// dequantise: what the codec reads, for every byte and every two bytes, at every bound and mode.
#include "Vdequantise.h"
#include "reference.h"
#include "streams.h"

namespace bench {
namespace {

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Vdequantise> dut(a);
  dut->en = 1;
  Random random(a.seed);
  std::uint64_t words = 0;
  for (int literal = 0; literal < 2; ++literal)
    for (int b = 1; b <= tithe::inceptionn::kMaxB; b += a.floats > 2000000 ? 1 : 9) {
      const auto c = classes(literal ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict, b);
      dut->shift1 = static_cast<CData>(150 + std::ilogb(c.unit[0]));
      dut->shift2 = static_cast<CData>(150 + std::ilogb(c.unit[1]));
      std::uint32_t want[2] = {};
      for (std::uint32_t i = 0; i < 65536 + 256 + 1000 + 2; ++i, ++words) {
        const auto noise = static_cast<std::uint32_t>(random());
        unsigned tag = 2, bytes = 4;
        std::uint32_t data = i | (noise & 0xffff0000U);
        if (i >= 65536) {
          tag = i < 65792 ? 1 : static_cast<unsigned>(noise % 4);
          data = i < 65792 ? (i & 255U) | (noise & 0xffffff00U) : static_cast<std::uint32_t>(random());
          if (i >= 65792) bytes = static_cast<unsigned>(random() % 5);
        }
        if (i > 0) BENCH_CHECK(i == 1 || dut->x == want[i % 2]);
        const std::uint8_t wire[4] = {static_cast<std::uint8_t>(data), static_cast<std::uint8_t>(data >> 8),
                                      static_cast<std::uint8_t>(data >> 16),
                                      static_cast<std::uint8_t>(data >> 24)};
        want[i % 2] = bytes == 4 ? std::bit_cast<std::uint32_t>(receive(c, tag, wire))
                                 : data & ((1U << (8 * bytes)) - 1);
        dut->tag = static_cast<CData>(tag);
        dut->x_bytes = static_cast<CData>(bytes);
        dut->data = data;
        dut.step();
      }
    }
  std::printf("dequantise: %llu words\n", static_cast<unsigned long long>(words));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
