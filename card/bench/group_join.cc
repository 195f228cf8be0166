// SPDX-License-Identifier: Apache-2.0
// group_join: each piece has the bytes of its part, in their order, with the tags of the whole group in front of the
// group's first; at full rate, with the latency that is stated, however both sides pause.
#include "Vgroup_join.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vgroup_join;
constexpr std::size_t kBeat = sizeof(std::decay_t<decltype(Model::in_data)>);
constexpr std::size_t kParts = kBeat < 32 ? 32 / kBeat : 1;   // of a group
constexpr std::size_t kGroups = kBeat > 32 ? kBeat / 32 : 1;  // in a piece
constexpr std::size_t kPart = kBeat / kGroups;                // bytes of a group in a piece
constexpr std::size_t kTagBits = kPart / 2;                   // of these
constexpr unsigned kLenBits = kBeat == 8 ? 4 : kBeat == 16 ? 5 : 6;
constexpr std::uint64_t kLatency = kBeat == 32 ? 1 : 2;

struct Piece {
  Bytes data;
  std::uint64_t bytes = 0, tags = 0, tagged = 0;
  bool last = false;
  unsigned info = 0;
  Bytes want;
};

// One to several groups; in the last, at 64 and 128 bits, some parts may be missing.
void add_packet(Random& random, std::deque<Piece>& to, std::size_t groups) {
  for (std::size_t g = 0; g < groups; g += kGroups) {
    const bool ends = g + kGroups >= groups;
    const std::size_t parts = ends && kParts > 1 && random() % 2 ? 1 + random() % kParts : kParts;
    const std::size_t first = to.size();
    std::uint64_t group_tags = 0, tagged = 0;
    for (std::size_t part = 0; part < parts; ++part) {
      Piece p;
      p.data.resize(kBeat);
      p.info = static_cast<unsigned>(random() & 0x1ffff);
      p.last = ends && part + 1 == parts;
      for (std::size_t k = 0; k < kGroups; ++k) {
        const std::size_t n = random() % 4 ? random() % (kPart + 1) : kPart;
        Bytes body(n);
        for (auto& byte : body) byte = static_cast<std::uint8_t>(random());
        std::copy(body.begin(), body.end(), p.data.begin() + static_cast<std::ptrdiff_t>(kPart * k));
        const std::uint64_t tags = random() & ((std::uint64_t{1} << kTagBits) - 1);
        const bool with_tags = random() % 4 != 0;
        p.bytes |= n << (kLenBits * k);
        p.tags |= tags << (kTagBits * k);
        p.tagged |= static_cast<std::uint64_t>(with_tags) << k;
        if (kParts > 1)
          group_tags |= tags << (kTagBits * part);
        else if (with_tags) {
          p.want.push_back(static_cast<std::uint8_t>(tags));
          p.want.push_back(static_cast<std::uint8_t>(tags >> 8));
        }
        p.want.insert(p.want.end(), body.begin(), body.end());
      }
      if (part == 0) tagged = p.tagged;
      to.push_back(std::move(p));
    }
    if (kParts > 1 && tagged) {
      const std::uint8_t tags[] = {static_cast<std::uint8_t>(group_tags),
                                   static_cast<std::uint8_t>(group_tags >> 8)};
      to[first].want.insert(to[first].want.begin(), tags, tags + 2);
    }
  }
}

// Cycles from the last piece in to the first one out.
std::uint64_t run(Dut<Model>& dut, const std::deque<Piece>& pieces, Pause in_pause, Pause out_pause) {
  std::size_t in = 0, out = 0;
  std::uint64_t went = 0, came = 0;
  for (int quiet = 0; out < pieces.size();) {
    if (!dut->in_valid && in < pieces.size() && !in_pause.now()) {
      const Piece& p = pieces[in++];
      put(dut->in_data, p.data.data(), kBeat);
      put(dut->in_bytes, &p.bytes, 8);
      put(dut->in_tags, &p.tags, 8);
      put(dut->in_tagged, &p.tagged, 8);
      dut->in_last = p.last;
      dut->in_info = p.info;
      dut->in_valid = 1;
    }
    dut->out_ready = !out_pause.now();
    dut.settle();
    const bool goes = dut->in_valid && dut->in_ready;
    const bool comes = dut->out_valid && dut->out_ready;
    if (comes) {
      const Piece& p = pieces[out++];
      Bytes got(sizeof dut->out_data);
      std::memcpy(got.data(), &dut->out_data, got.size());
      Bytes want = p.want;
      want.resize(got.size());  // 0 from its bytes on
      BENCH_CHECK(got == want && low64(dut->out_bytes) == p.want.size());
      BENCH_CHECK(dut->out_last == p.last && dut->out_info == p.info);
      if (out == 1) came = dut.cycles();
    }
    if (goes) went = dut.cycles();
    quiet = goes || comes ? 0 : quiet + 1;
    BENCH_CHECK(quiet < 1500);
    dut.edge();
    if (goes) dut->in_valid = 0;
  }
  return came - went;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  const Args a = args(argc, argv);
  Dut<Model> dut(a);
  dut->in_valid = 0;
  dut.reset();
  Random random(a.seed);
  std::size_t pieces = 0;
  for (int in = 0; in < Pause::kKinds; ++in)
    for (int out = 0; out < Pause::kKinds; ++out) {
      std::deque<Piece> some;
      while (some.size() < 600) add_packet(random, some, 1 + random() % 9);
      pieces += some.size();
      const std::uint64_t begin = dut.cycles();
      bench::run(dut, some, Pause(static_cast<Pause::Kind>(in), random()),
                 Pause(static_cast<Pause::Kind>(out), random()));
      if (in == Pause::kNever && out == Pause::kNever)
        BENCH_CHECK(dut.cycles() - begin <= some.size() + kParts + kLatency);
    }
  for (int times = 0; times < 10; ++times) {
    std::deque<Piece> one;
    add_packet(random, one, kGroups);
    BENCH_CHECK(bench::run(dut, one, Pause(Pause::kNever, 1), Pause(Pause::kNever, 1)) == kLatency);
  }
  std::printf("group_join, %zu bits: %zu pieces, %d pairs of patterns\n", 8 * kBeat, pieces,
              Pause::kKinds * Pause::kKinds);
}
