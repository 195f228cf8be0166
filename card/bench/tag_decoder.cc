// SPDX-License-Identifier: Apache-2.0
// tag_decoder: tags and bytes of each lane, the bytes behind the tags, and tags past a packet's last value, which make
// its last piece bad and no later packet's.
#include "Vtag_decoder.h"
#include "reference.h"
#include "streams.h"

namespace bench {
namespace {

constexpr std::size_t kLanes = sizeof(Vtag_decoder::data) / 4;
constexpr std::size_t kGroups = kLanes > 8 ? 2 : 1;
constexpr std::size_t kTree = kLanes / kGroups;
constexpr std::size_t kFront = 4 * kTree + 2;

struct Piece {
  Bytes fronts, data;
  unsigned has_tags = 0, has_value = 0;
  std::vector<unsigned> tags, sizes, x_bytes;
  bool last = false, bad_in = false, bad = false;
};

// A packet of up to 40 values and 3 bytes; sometimes with tags past the last value, or bad from the begin.
std::vector<Piece> some_pieces(Random& random) {
  const std::size_t bytes = 1 + random() % 160;
  std::vector<Piece> all;
  unsigned tags = 0;
  bool past = false;
  for (std::size_t value = 0; 4 * value < bytes;) {
    Piece p;
    const std::size_t left = bytes - 4 * value;
    p.last = left <= 4 * kLanes;
    p.bad_in = p.last && random() % 8 == 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      Bytes front(kFront);
      for (auto& b : front) b = static_cast<std::uint8_t>(random());
      const bool has_tags = value % 8 == 0 && value < bytes / 4;
      if (value % 8 == 0) tags = 0;
      if (has_tags) {
        tags = front[0] | static_cast<unsigned>(front[1]) << 8;
        const std::size_t values = std::min<std::size_t>(8, bytes / 4 - value);
        if (values < 8 && random() % 4) tags &= (1U << 2 * values) - 1;
        front[0] = static_cast<std::uint8_t>(tags);
        front[1] = static_cast<std::uint8_t>(tags >> 8);
        past = past || (values < 8 && tags >> 2 * values != 0);
        for (std::size_t i = 0; i < 8; ++i) p.has_value |= static_cast<unsigned>(i < values) << (8 * g + i);
      }
      p.has_tags |= static_cast<unsigned>(has_tags) << g;
      p.fronts.insert(p.fronts.end(), front.begin(), front.end());
      p.data.insert(p.data.end(), front.begin() + (has_tags ? 2 : 0), front.end() - (has_tags ? 0 : 2));
      for (std::size_t i = 0; i < kTree; ++i, ++value, tags >>= 2) {
        const auto x = static_cast<unsigned>(std::min<std::size_t>(4, bytes - std::min(bytes, 4 * value)));
        p.tags.push_back(tags & 3U);
        p.x_bytes.push_back(x);
        p.sizes.push_back(x == 4 ? static_cast<unsigned>(tithe::inceptionn::kTagBytes[tags & 3U]) : x);
      }
    }
    p.bad = p.bad_in || (p.last && past);
    all.push_back(std::move(p));
  }
  return all;
}

template <typename Port>
unsigned bits(const Port& port, std::size_t from, unsigned n) {
  return static_cast<unsigned>(low64(port) >> from) & ((1U << n) - 1);
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Vtag_decoder> dut(a);
  Random random(a.seed);
  dut->en = 1;
  dut->in_valid = 0;
  dut.reset();
  std::uint64_t bad = 0;
  for (int packet = 0; packet < 20000; ++packet)
    for (const Piece& p : some_pieces(random)) {
      std::uint64_t x64 = 0;
      for (std::size_t i = 0; i < kLanes; ++i) x64 |= std::uint64_t{p.x_bytes[i]} << 3 * i;
      // Cycles that are not enabled, or without a piece, change nothing.
      for (unsigned direction = random() % 3; direction < 3; ++direction) {
        put(dut->in_front, p.fronts.data(), p.fronts.size());
        dut->in_has_tags = p.has_tags;
        dut->in_has_value = p.has_value;
        put(dut->in_x_bytes, &x64, sizeof x64);
        dut->in_last = p.last;
        dut->in_bad = p.bad_in;
        dut->en = direction != 0;
        dut->in_valid = direction != 1;
        dut.step();
      }
      dut.settle();
      BENCH_CHECK(dut->last == p.last && dut->bad == p.bad);
      bad += p.bad;
      BENCH_CHECK(std::memcmp(&dut->data, p.data.data(), p.data.size()) == 0);
      for (std::size_t i = 0; i < kLanes; ++i) {
        BENCH_CHECK(bits(dut->tags, 2 * i, 2) == (p.bad ? 0 : p.tags[i]));
        BENCH_CHECK(bits(dut->x_bytes, 3 * i, 3) == (p.bad ? 4 : p.x_bytes[i]));
        BENCH_CHECK(bits(dut->sizes, 3 * i, 3) == p.sizes[i]);
      }
    }
  BENCH_CHECK(bad > 0);
  std::printf("tag_decoder, %zu bits: 20000 packets, %llu of them bad\n", 32 * kLanes,
              static_cast<unsigned long long>(bad));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
