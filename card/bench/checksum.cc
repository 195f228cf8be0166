// SPDX-License-Identifier: Apache-2.0
// checksum: the sum of RFC 1071 of the beats since `clear`, two cycles later; and 2^16 words of all ones.
#include "Vchecksum.h"
#include "frames.h"
#include "streams.h"

namespace bench {
namespace {

constexpr std::size_t kBeat = sizeof(std::decay_t<decltype(Vchecksum::data)>);

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Vchecksum> dut(a);
  Random random(a.seed);
  std::uint64_t beat = 0, all = 0;  // as in the last cycle, and before
  const auto cycle = [&](bool clear, bool valid, const Bytes& data) {
    dut->clear = clear;
    dut->valid = valid;
    put(dut->data, data.data(), kBeat);
    dut.step();
    all = clear ? 0 : all + beat;
    beat = valid ? words(data, 0, kBeat) : 0;
  };
  cycle(true, false, Bytes(kBeat));
  int clears = 0;
  for (int i = 0; i < 50000; ++i) {
    const std::uint64_t r = random();
    Bytes data(kBeat, r % 5 == 0 ? 0xff : 0);
    if (r % 5 > 1)
      for (auto& byte : data) byte = static_cast<std::uint8_t>(random());
    const bool clear = i == 0 || (r >> 8) % 100 == 0;
    clears += clear;
    cycle(clear, (r >> 16) % 4 != 0, data);
    BENCH_CHECK(dut->sum == fold(all));
  }
  cycle(true, false, Bytes(kBeat));
  for (std::size_t i = 0; i < 65536 * 2 / kBeat; ++i) cycle(false, true, Bytes(kBeat, 0xff));
  cycle(false, false, Bytes(kBeat));
  BENCH_CHECK(all == 65536ULL * 65535 && dut->sum == 0xffff);
  std::printf("checksum, %zu bits: 50000 cycles, %d sums\n", 8 * kBeat, clears);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
