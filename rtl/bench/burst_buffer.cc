// SPDX-License-Identifier: Apache-2.0
// burst_buffer: the pieces of each packet, their tags, sizes and bytes, of whole packets and of damaged ones, however
// the source pauses and what is below stands still; one piece a cycle where the bytes are there.
#include "Vburst_buffer.h"
#include "reference.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vburst_buffer;
using Data = std::decay_t<decltype(Model::s_axis_tdata)>;
using In = Source<Data, std::decay_t<decltype(Model::s_axis_tkeep)>, IData>;
constexpr std::size_t kBeat = sizeof(Data);
constexpr std::size_t kLanes = kBeat / 4;
constexpr std::size_t kGroups = kBeat > 32 ? kBeat / 32 : 1;
constexpr std::size_t kParts = kBeat < 32 ? 32 / kBeat : 1;
constexpr unsigned kStartBits = kBeat == 8 ? 4 : kBeat == 16 ? 5 : kBeat == 32 ? 6 : 7;

struct Lane {
  unsigned tag = 0, size = 0, x_bytes = 0;
};
struct Piece {
  Lane lanes[kLanes];
  std::size_t start[kGroups] = {};  // in the packet
  bool last = false, bad = false;
};

std::vector<Piece> pieces_of(const Packet& p) {
  const std::size_t bytes = p.user & 0xffff;
  std::vector<Piece> all;
  std::size_t at = 0;
  unsigned tags = 0;
  for (std::size_t value = 0, part = 0; all.empty() || !all.back().last; part = (part + 1) % kParts) {
    Piece q;
    for (std::size_t i = 0; i < kLanes; ++i, ++value) {
      if ((i == 0 && part == 0) || i == 8) {
        tags = 0;
        if (value < bytes / 4) {
          if (at + 2 <= p.bytes.size()) tags = p.bytes[at] | static_cast<unsigned>(p.bytes[at + 1]) << 8;
          at += 2;
          const std::size_t values = std::min<std::size_t>(8, bytes / 4 - value);
          if (values < 8 && tags >> (2 * values) != 0) q.bad = true;
        }
      }
      if (i % 8 == 0) q.start[i / 8] = at;
      Lane& lane = q.lanes[i];
      lane.tag = tags & 3U;
      tags >>= 2;
      const std::size_t left = bytes - std::min(bytes, 4 * value);
      lane.x_bytes = static_cast<unsigned>(std::min<std::size_t>(4, left));
      lane.size =
          lane.x_bytes == 4 ? static_cast<unsigned>(tithe::inceptionn::kTagBytes[lane.tag]) : lane.x_bytes;
      at += lane.size;
    }
    q.last = 4 * value >= bytes;
    if (at > p.bytes.size() || (q.last && at != p.bytes.size())) q.bad = true;
    q.last = q.last || q.bad;
    all.push_back(q);
  }
  return all;
}

struct Rig {
  explicit Rig(const Args& a)
      : dut(a),
        in(dut->s_axis_tdata, dut->s_axis_tkeep, dut->s_axis_tvalid, dut->s_axis_tready, dut->s_axis_tlast,
           &dut->s_axis_tuser, Pause(Pause::kNever, 1)) {
    dut.reset();
  }
  // Until a piece comes.
  void next(Pause& pause) {
    for (int quiet = 0;;) {
      in.before();
      dut->en = !pause.now();
      dut.settle();
      quiet = in.after() ? 0 : quiet + 1;
      BENCH_CHECK(quiet < 1500);
      dut.edge();
      in.done();
      dut.settle();
      if (dut->en && dut->valid) return;
    }
  }
  template <typename Port>
  unsigned bits(const Port& port, std::size_t from, unsigned n) {
    std::uint64_t value = 0;
    std::memcpy(&value, &port, std::min(sizeof(Port), sizeof value));
    return static_cast<unsigned>(value >> from) & ((1U << n) - 1);
  }
  void check(const Packet& p, const Piece& want) {
    BENCH_CHECK(dut->last == want.last && dut->bad == want.bad);
    if (want.bad) {
      for (std::size_t i = 0; i < kLanes; ++i)
        BENCH_CHECK(bits(dut->tags, 2 * i, 2) == 0 && bits(dut->x_bytes, 3 * i, 3) == 4);
      return;
    }
    const auto* window = reinterpret_cast<const std::uint8_t*>(&dut->window);
    const auto c = classes(p.user >> 23 & 1 ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict,
                           static_cast<int>(p.user >> 16 & 127));
    BENCH_CHECK(dut->shift1 == 150 + std::ilogb(c.unit[0]) && dut->shift2 == 150 + std::ilogb(c.unit[1]));
    for (std::size_t g = 0; g < kGroups; ++g) {
      std::size_t n = 0;
      for (std::size_t i = 8 * g; i < std::min(8 * g + 8, kLanes); ++i) {
        const Lane& lane = want.lanes[i];
        BENCH_CHECK(bits(dut->sizes, 3 * i, 3) == lane.size && bits(dut->x_bytes, 3 * i, 3) == lane.x_bytes);
        BENCH_CHECK(lane.x_bytes != 4 || bits(dut->tags, 2 * i, 2) == lane.tag);
        n += lane.size;
      }
      BENCH_CHECK(n == 0 || std::memcmp(window + bits(dut->start, kStartBits * g, kStartBits),
                                        p.bytes.data() + want.start[g], n) == 0);
    }
  }
  Dut<Model> dut;
  In in;
};

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Rig rig(a);
  Random random(a.seed);
  std::uint64_t pieces = 0, packets = 0, bad = 0;
  Pause never(Pause::kNever, 1);
  // Groups of 34 bytes, on which two beats stand still, and of 2: as many cycles as the wider side has beats.
  for (const std::uint32_t value : {0x41234567U, 0U}) {
    Bytes bytes(32768);
    for (std::size_t i = 0; i < bytes.size(); i += 4) std::memcpy(&bytes[i], &value, 4);
    const Packet p{encode(bytes, kSettings[0]), kSettings[0].user() << 16 | bytes.size()};
    const std::uint64_t begin = rig.dut.cycles();
    rig.in.push(p);
    for (const Piece& q : pieces_of(p)) {
      rig.next(never);
      rig.check(p, q);
    }
    BENCH_CHECK(rig.dut.cycles() - begin <= std::max(bytes.size(), p.bytes.size()) / kBeat + 8);
  }
  for (std::uint64_t floats = 0; floats < a.floats / 4;) {
    rig.in.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
    Pause pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    std::deque<Packet> sent;
    for (int i = 0; i < 20; ++i, ++packets) {
      const Setting s = kSettings[random() % std::size(kSettings)];
      const Bytes values = some_packet(random);
      floats += values.size() / 4;
      Packet p{encode(values, s), s.user() << 16 | values.size()};
      if (random() % 2) damage(p, random);
      rig.in.push(p);
      sent.push_back(std::move(p));
    }
    for (const Packet& p : sent) {
      const auto all = pieces_of(p);
      pieces += all.size();
      bad += all.back().bad;
      for (const Piece& q : all) {
        rig.next(pause);
        rig.check(p, q);
      }
    }
  }
  BENCH_CHECK(bad > 0);
  std::printf("burst_buffer, %zu bits: %llu pieces of %llu packets (%llu damaged)\n", 8 * kBeat,
              static_cast<unsigned long long>(pieces), static_cast<unsigned long long>(packets),
              static_cast<unsigned long long>(bad));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
