// SPDX-License-Identifier: Apache-2.0
// burst_buffer: the pieces of each packet, where they begin and what is known of their lanes, of whole packets and of
// damaged ones, however the source pauses and what is below stands still; one piece a cycle where the bytes are there.
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

struct Group {
  std::size_t start = 0, bytes = 0;  // in the packet
  bool has_tags = false;
};
struct Piece {
  Group groups[kGroups];
  std::size_t left = 0;  // bytes of the packet on it and behind it
  bool last = false, bad = false;
};

// Tags past the last value count here: what they stand for is missing, or a later module says that they are wrong.
std::vector<Piece> pieces_of(const Packet& p) {
  const std::size_t bytes = p.user & 0xffff;
  std::vector<Piece> all;
  std::size_t at = 0;
  unsigned tags = 0;
  for (std::size_t value = 0, part = 0; all.empty() || !all.back().last; part = (part + 1) % kParts) {
    Piece q;
    q.left = bytes - std::min(bytes, 4 * value);
    q.last = q.left <= kBeat;
    for (Group& group : q.groups) {
      group.start = at;
      if (part == 0) {
        group.has_tags = value < bytes / 4;
        tags = 0;
        for (std::size_t k = 0; group.has_tags && k < 2; ++k, ++at)
          if (at < p.bytes.size()) tags |= static_cast<unsigned>(p.bytes[at]) << 8 * k;
      }
      for (std::size_t i = 0; i < std::min<std::size_t>(8, kLanes); ++i, ++value, tags >>= 2)
        at += static_cast<unsigned>(tithe::inceptionn::kTagBytes[tags & 3U]);
      group.bytes = at - group.start;
    }
    if (at > p.bytes.size() || (q.last && at + bytes % 4 != p.bytes.size())) q.bad = true;
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
    if (want.bad) return;
    const auto* window = reinterpret_cast<const std::uint8_t*>(&dut->window);
    const auto c = classes(p.user >> 23 & 1 ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict,
                           static_cast<int>(p.user >> 16 & 127));
    BENCH_CHECK(dut->shift1 == 150 + std::ilogb(c.unit[0]) && dut->shift2 == 150 + std::ilogb(c.unit[1]));
    for (std::size_t i = 0; i < kLanes; ++i)
      BENCH_CHECK(bits(dut->x_bytes, 3 * i, 3) ==
                  std::min<std::size_t>(4, want.left - std::min(want.left, 4 * i)));
    for (std::size_t g = 0; g < kGroups; ++g) {
      const Group& group = want.groups[g];
      BENCH_CHECK(bits(dut->has_tags, g, 1) == group.has_tags);
      for (std::size_t i = 8 * g; group.has_tags && i < 8 * g + 8; ++i)
        BENCH_CHECK(bits(dut->has_value, i, 1) == (i < want.left / 4));
      const std::size_t raw = want.last && (kGroups == 1 || g == (want.left - 1) / 32) ? p.user % 4 : 0;
      BENCH_CHECK(std::memcmp(window + bits(dut->start, kStartBits * g, kStartBits),
                              p.bytes.data() + group.start, group.bytes + raw) == 0);
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
