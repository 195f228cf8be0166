// SPDX-License-Identifier: Apache-2.0
// quantise: the codec's tag and word, and whether a reader gets the value back, for values of every exponent.
#include "Vquantise.h"
#include "reference.h"
#include "streams.h"

namespace bench {
namespace {

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Vquantise> dut(a);
  dut->en = 1;
  Random random(a.seed);
  const std::uint64_t each = std::max<std::uint64_t>(2000, a.floats / 200);
  for (int literal = 0; literal < 2; ++literal)
    for (int b = 1; b <= tithe::inceptionn::kMaxB; ++b) {
      const auto c = classes(literal ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict, b);
      dut->e_low = static_cast<CData>(c.low >> 23);
      dut->e_middle = static_cast<CData>(c.middle >> 23);
      dut->e_top = static_cast<CData>(c.top >> 23);
      dut->shift1 = static_cast<CData>(150 + std::ilogb(c.unit[0]));
      dut->shift2 = static_cast<CData>(150 + std::ilogb(c.unit[1]));
      std::deque<std::pair<std::uint32_t, unsigned>> in;
      for (std::uint64_t i = 0; i < each + 2; ++i) {
        std::uint32_t x = some_float(random, static_cast<int>(i % 8));
        if (i % 3 == 0) x = (x & 0x807fffffU) | static_cast<std::uint32_t>(i / 3 % 256) << 23;
        if (i % 5 == 0) x &= ~0U << random() % 24;
        in.emplace_back(x, i % 16 == 7 ? static_cast<unsigned>(random() % 4) : 4U);
        dut->x = x;
        dut->x_bytes = static_cast<CData>(in.back().second);
        dut.step();
        if (i == 0) continue;
        const auto [value, bytes] = in.front();
        in.pop_front();
        if (bytes < 4) {
          const std::uint32_t raw = value & ((1U << (8 * bytes)) - 1);
          BENCH_CHECK(dut->tag == 0 && dut->bytes == bytes && dut->data == raw && dut->exact);
          continue;
        }
        const auto sent = send(c, std::bit_cast<float>(value));
        std::uint8_t wire[4] = {};
        tithe::inceptionn::put_bytes(wire, sent.tag, sent.word);
        const bool exact = std::bit_cast<std::uint32_t>(receive(c, sent.tag, wire)) == value;
        BENCH_CHECK(dut->tag == sent.tag && dut->bytes == tithe::inceptionn::kTagBytes[sent.tag]);
        BENCH_CHECK(dut->data == sent.word && dut->exact == exact);
      }
    }
  std::printf("quantise: %llu values for each of 200 settings\n", static_cast<unsigned long long>(each));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
