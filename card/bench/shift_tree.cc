// SPDX-License-Identifier: Apache-2.0
// shift_tree, 8 lanes: all 4^8 mixtures of tags, and raw bytes in the last lane that has any.
#include "Vshift_tree.h"
#include "streams.h"

int main(int argc, char** argv) {
  using namespace bench;
  const Args a = args(argc, argv);
  Dut<Vshift_tree> dut(a);
  dut->en = 1;
  Random random(a.seed);
  static constexpr unsigned kBytes[] = {0, 1, 2, 4};
  std::deque<Bytes> in;
  for (unsigned tags = 0; tags < 65536 + 3; ++tags) {
    std::uint8_t lanes[32] = {};
    std::uint32_t sizes = 0;
    Bytes joined;
    const bool has_tail = random() % 4 == 0;
    for (unsigned j = 0; j < 8; ++j) {
      unsigned n = kBytes[tags >> (2 * j) & 3U];
      if (has_tail && j == tags % 8) n = 1 + static_cast<unsigned>(random() % 3);
      if (has_tail && j > tags % 8) n = 0;
      for (unsigned k = 0; k < n; ++k)
        joined.push_back(lanes[4 * j + k] = static_cast<std::uint8_t>(random()));
      sizes |= n << (3 * j);
    }
    in.push_back(joined);
    put(dut->lane_data, lanes, 32);
    dut->lane_bytes = sizes;
    dut.step();
    if (tags < 2) continue;
    const std::size_t n = in.front().size();
    in.front().resize(32);
    BENCH_CHECK(dut->bytes == n && std::memcmp(&dut->data, in.front().data(), 32) == 0);
    in.pop_front();
  }
  std::printf("shift_tree: 65536 mixtures\n");
}
