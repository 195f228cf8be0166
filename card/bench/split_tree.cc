// SPDX-License-Identifier: Apache-2.0
// split_tree, 8 lanes: all 4^8 mixtures of tags find their bytes.
#include "Vsplit_tree.h"
#include "streams.h"

int main(int argc, char** argv) {
  using namespace bench;
  const Args a = args(argc, argv);
  Dut<Vsplit_tree> dut(a);
  dut->en = 1;
  Random random(a.seed);
  static constexpr unsigned kBytes[] = {0, 1, 2, 4};
  std::deque<std::pair<unsigned, Bytes>> in;
  for (unsigned tags = 0; tags < 65536 + 3; ++tags) {
    Bytes bytes(32);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    std::uint32_t sizes = 0;
    for (unsigned j = 0; j < 8; ++j) sizes |= kBytes[tags >> (2 * j) & 3U] << (3 * j);
    in.emplace_back(sizes, bytes);
    put(dut->data, bytes.data(), 32);
    dut->lane_bytes = sizes;
    dut.step();
    if (tags < 2) continue;
    const auto* lanes = reinterpret_cast<const std::uint8_t*>(&dut->lane_data);
    unsigned at = 0;
    for (unsigned j = 0; j < 8; ++j) {
      const unsigned n = in.front().first >> (3 * j) & 7U;
      BENCH_CHECK(std::memcmp(lanes + 4 * j, in.front().second.data() + at, n) == 0);
      at += n;
    }
    in.pop_front();
  }
  std::printf("split_tree: 65536 mixtures\n");
}
