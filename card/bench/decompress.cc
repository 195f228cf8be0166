// SPDX-License-Identifier: Apache-2.0
// decompress: what the codec decodes, however both sides pause; damaged packets end, marked, and the next is whole.
#include "Vdecompress.h"
#include "golden.h"
#include "reference.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vdecompress;
using In =
    Source<std::decay_t<decltype(Model::s_axis_tdata)>, std::decay_t<decltype(Model::s_axis_tkeep)>, IData>;
using Out =
    Sink<std::decay_t<decltype(Model::m_axis_tdata)>, std::decay_t<decltype(Model::m_axis_tkeep)>, CData>;

constexpr std::size_t kBeat = sizeof(std::decay_t<decltype(Model::s_axis_tdata)>);
constexpr std::uint64_t kLatency = kBeat == 16 ? 13 : kBeat == 8 ? 12 : 14;

struct Rig {
  explicit Rig(const Args& a)
      : dut(a),
        in(dut->s_axis_tdata, dut->s_axis_tkeep, dut->s_axis_tvalid, dut->s_axis_tready, dut->s_axis_tlast,
           &dut->s_axis_tuser, Pause(Pause::kNever, 1)),
        out(dut->m_axis_tdata, dut->m_axis_tkeep, dut->m_axis_tvalid, dut->m_axis_tready, dut->m_axis_tlast,
            &dut->m_axis_tuser, Pause(Pause::kNever, 2)) {
    dut.reset();
    cycle(dut, in, out);
  }
  void until_out() {
    for (int quiet = 0; !out.has();) {
      quiet = cycle(dut, in, out) ? 0 : quiet + 1;
      BENCH_CHECK(quiet < 5000);
    }
  }
  Dut<Model> dut;
  In in;
  Out out;
};

Packet packed(const Bytes& groups, std::size_t bytes, Setting s) { return {groups, s.user() << 16 | bytes}; }

void latency(Rig& rig) {
  for (int times = 0; times < 3; ++times) {
    rig.in.push(packed({0, 0}, 32, kSettings[0]));
    std::uint64_t went = 0, came = 0;
    const std::uint64_t beats = rig.in.beats() + 1, out_beats = rig.out.beats();
    while (!rig.out.has()) {
      cycle(rig.dut, rig.in, rig.out);
      if (went == 0 && rig.in.beats() == beats) went = rig.dut.cycles();
      if (came == 0 && rig.out.beats() > out_beats) came = rig.dut.cycles();
    }
    BENCH_CHECK(came - went == kLatency);
    BENCH_CHECK(rig.out.take().bytes == Bytes(32, 0));
  }
}

// No pauses: as many cycles as the wider side has beats, and a few at a packet's ends.
void bubbles(Rig& rig) {
  for (const std::uint32_t value : {0U, 0x41234567U, 0x3f123456U}) {
    Bytes packet(65536);
    for (std::size_t i = 0; i < packet.size(); i += 4) std::memcpy(&packet[i], &value, 4);
    packet.resize(65535);
    const Bytes groups = encode(packet, kSettings[0]);
    const std::uint64_t begin = rig.dut.cycles();
    rig.in.push(packed(groups, packet.size(), kSettings[0]));
    rig.until_out();
    const std::uint64_t took = rig.dut.cycles() - begin;
    const Packet got = rig.out.take();
    BENCH_CHECK(got.user == 0 && decode(groups, packet.size(), kSettings[0]) == got.bytes);
    const std::uint64_t beats = (std::max(packet.size(), groups.size()) + kBeat - 1) / kBeat;
    std::printf("  %zu bytes to 65535: %llu cycles for %llu beats of the wider side\n", groups.size(),
                static_cast<unsigned long long>(took), static_cast<unsigned long long>(beats));
    BENCH_CHECK(took <= beats + kLatency + 4);
  }
}

void random_streams(Rig& rig, const Args& a, bool damages) {
  Random random(a.seed + damages);
  std::uint64_t floats = 0, packets = 0, bad = 0;
  for (int round = 0; floats < (damages ? a.floats / 4 : a.floats); ++round) {
    rig.in.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
    rig.out.set(Pause(static_cast<Pause::Kind>(round < 4 ? 0 : random() % Pause::kKinds), random()));
    std::deque<std::pair<Packet, Setting>> sent;
    for (int i = 0; i < 20; ++i) {
      const Setting s = kSettings[random() % std::size(kSettings)];
      const Bytes packet = some_packet(random);
      Packet p = packed(encode(packet, s), packet.size(), s);
      if (damages && random() % 4) damage(p, random);
      floats += packet.size() / 4;
      rig.in.push(p);
      sent.emplace_back(std::move(p), s);
    }
    for (; !sent.empty(); sent.pop_front(), ++packets) {
      rig.until_out();
      const Packet got = rig.out.take();
      const auto& [p, s] = sent.front();
      const std::size_t bytes = p.user & 0xffff;
      const auto want = decode(p.bytes, bytes, s);
      bad += got.user;
      BENCH_CHECK(want.has_value() == (got.user == 0));
      if (want)
        BENCH_CHECK(*want == got.bytes);
      else
        BENCH_CHECK(got.bytes.size() <= std::max(bytes, std::size_t{1}) + kBeat - 1);
    }
  }
  for (int i = 0; i < 300; ++i) cycle(rig.dut, rig.in, rig.out);
  BENCH_CHECK(!rig.out.has());
  BENCH_CHECK(damages == (bad > 0));
  std::printf("  %llu floats in %llu packets (%llu damaged), %llu cycles, seed %llu\n",
              static_cast<unsigned long long>(floats), static_cast<unsigned long long>(packets),
              static_cast<unsigned long long>(bad), static_cast<unsigned long long>(rig.dut.cycles()),
              static_cast<unsigned long long>(a.seed));
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  std::printf("decompress, %zu bits\n", 8 * kBeat);
  Rig rig(a);
  for (const Golden& g : goldens()) {
    rig.in.push(packed(g.groups, g.decoded.size(), g.setting));
    rig.until_out();
    const Packet got = rig.out.take();
    BENCH_CHECK(got.user == 0 && got.bytes == g.decoded);
  }
  latency(rig);
  bubbles(rig);
  random_streams(rig, a, false);
  random_streams(rig, a, true);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
