// SPDX-License-Identifier: Apache-2.0
// align: the bytes of the beats are the bytes of the pieces, packet by packet, pieces of no bytes among them.
#include "Valign.h"
#include "streams.h"

namespace bench {
namespace {

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Valign> dut(a);
  constexpr std::size_t kBeat = sizeof(std::decay_t<decltype(dut->out_data)>);
  constexpr std::size_t kMaxPiece = kBeat + (kBeat == 64 ? 4 : 2);
  Random random(a.seed);
  dut->in_valid = 0;
  dut.reset();
  std::deque<Packet> sent;
  Bytes now, got;
  std::uint64_t pieces = 0, packets = 0;
  Pause in_pause(Pause::kNever, 1), out_pause(Pause::kNever, 2);
  for (int quiet = 0; packets < a.floats / 400;) {
    if (random() % 500 == 0) {
      in_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
      out_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    }
    if (!dut->in_valid && !in_pause.now()) {
      const std::uint64_t r = random();
      std::size_t n = r % 3 == 0 ? kMaxPiece : r % 3 == 1 ? (r >> 8) % (kMaxPiece + 1) : (r >> 8) % 5;
      if (now.empty() && n == 0) n = 1;
      std::uint8_t data[72] = {};
      for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<std::uint8_t>(random());
      put(dut->in_data, data, kMaxPiece);
      dut->in_bytes = static_cast<CData>(n);
      dut->in_last = (r >> 40) % 12 == 0;
      dut->in_info = static_cast<IData>(random() & 0x1ffff);
      dut->in_valid = 1;
      now.insert(now.end(), data, data + n);
      ++pieces;
      if (dut->in_last) {
        sent.push_back({std::move(now), dut->in_info});
        now.clear();
      }
    }
    dut->out_ready = !out_pause.now();
    dut.settle();
    quiet = (dut->in_valid && dut->in_ready) || (dut->out_valid && dut->out_ready) ? 0 : quiet + 1;
    BENCH_CHECK(quiet < 5000);
    if (dut->out_valid && dut->out_ready) {
      const auto* from = reinterpret_cast<const std::uint8_t*>(&dut->out_data);
      got.insert(got.end(), from, from + __builtin_popcountll(low64(dut->out_keep)));
      BENCH_CHECK(dut->out_last || dut->out_info == 0);
      if (dut->out_last) {
        BENCH_CHECK(!sent.empty() && got == sent.front().bytes && dut->out_info == sent.front().user);
        sent.pop_front();
        got.clear();
        ++packets;
      }
    }
    const bool went = dut->in_valid && dut->in_ready;
    dut.edge();
    if (went) dut->in_valid = 0;
  }
  std::printf("align, %zu bits: %llu pieces in %llu packets\n", 8 * kBeat,
              static_cast<unsigned long long>(pieces), static_cast<unsigned long long>(packets));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
