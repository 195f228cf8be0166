// SPDX-License-Identifier: Apache-2.0
// compress: bit-exact with the codec, whatever comes and however both sides pause; nothing lost, nothing twice; its
// latency and its bubbles are those stated.
#include "Vcompress.h"
#include "golden.h"
#include "reference.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vcompress;
using In =
    Source<std::decay_t<decltype(Model::s_axis_tdata)>, std::decay_t<decltype(Model::s_axis_tkeep)>, IData>;
using Out =
    Sink<std::decay_t<decltype(Model::m_axis_tdata)>, std::decay_t<decltype(Model::m_axis_tkeep)>, IData>;

constexpr std::size_t kBeat = sizeof(std::decay_t<decltype(Model::s_axis_tdata)>);
constexpr std::uint64_t kLatency = kBeat == 32 ? 12 : kBeat == 8 ? 14 : 13;

struct Rig {
  explicit Rig(const Args& a)
      : dut(a),
        in(dut->s_axis_tdata, dut->s_axis_tkeep, dut->s_axis_tvalid, dut->s_axis_tready, dut->s_axis_tlast,
           nullptr, Pause(Pause::kNever, 1)),
        out(dut->m_axis_tdata, dut->m_axis_tkeep, dut->m_axis_tvalid, dut->m_axis_tready, dut->m_axis_tlast,
            &dut->m_axis_tuser, Pause(Pause::kNever, 2)) {
    dut.reset();
  }
  void push(const Bytes& packet, Setting s) { in.push({packet, s.user()}); }
  // The setting stands there with a packet's first beat, and anything with the others.
  bool step() {
    in.before();
    const auto how = static_cast<CData>(in.begins() ? in.begins()->user : noise() % 256);
    dut->cfg_literal = how >> 7;
    dut->cfg_bound = how & 127;
    out.before();
    dut.settle();
    const bool moved[] = {in.after(), out.after()};
    dut.edge();
    in.done();
    return moved[0] || moved[1];
  }
  void until_out() {
    for (int quiet = 0; !out.has();) {
      quiet = step() ? 0 : quiet + 1;
      BENCH_CHECK(quiet < 5000);
    }
  }
  Dut<Model> dut;
  In in;
  Out out;
  std::minstd_rand noise;
};

void check(const Bytes& sent, const Packet& got, Setting s) {
  const Bytes want = encode(sent, s);
  BENCH_CHECK(got.bytes == want);
  BENCH_CHECK((got.user & 0xffff) == sent.size());
  BENCH_CHECK((got.user >> 16 == 1) == (decode(want, sent.size(), s) == sent));
}

// A lone group: cycles from its last beat to the one that carries it.
void latency(Rig& rig) {
  for (int times = 0; times < 3; ++times) {
    Random random(static_cast<std::uint64_t>(times));
    Bytes group(std::max<std::size_t>(32, kBeat));
    for (auto& byte : group) byte = static_cast<std::uint8_t>(random());
    std::memset(group.data() + 8, 0, 24);  // fits a beat, of 64 bits too
    if (kBeat <= 16) std::memset(group.data(), 0, group.size());
    rig.push(group, kSettings[0]);
    std::uint64_t went = 0;
    const std::uint64_t beats = rig.in.beats() + (group.size() + kBeat - 1) / kBeat;
    while (!rig.out.has()) {
      rig.step();
      if (went == 0 && rig.in.beats() == beats) went = rig.dut.cycles();
    }
    BENCH_CHECK(rig.dut.cycles() - went == kLatency);
    check(group, rig.out.take(), kSettings[0]);
  }
}

// No pauses: a beat goes in every cycle, but for those in which the wider output needs the port (16 of 17 go
// in when nothing can be compressed), and up to two at a packet's end.
void bubbles(Rig& rig) {
  for (const std::uint32_t value : {0U, 0x41234567U, 0x3f123456U}) {
    Bytes packet(65536);
    for (std::size_t i = 0; i < packet.size(); i += 4) std::memcpy(&packet[i], &value, 4);
    packet.resize(65535);
    const std::uint64_t begin = rig.dut.cycles();
    rig.push(packet, kSettings[0]);
    rig.until_out();
    const std::uint64_t took = rig.dut.cycles() - begin;
    const Packet got = rig.out.take();
    check(packet, got, kSettings[0]);
    const std::uint64_t beats = (std::max(packet.size(), got.bytes.size()) + kBeat - 1) / kBeat;
    std::printf("  65535 bytes to %zu: %llu cycles for %llu beats of the wider side\n", got.bytes.size(),
                static_cast<unsigned long long>(took), static_cast<unsigned long long>(beats));
    BENCH_CHECK(took <= beats + kLatency + 2);
  }
}

void random_streams(Rig& rig, const Args& a) {
  Random random(a.seed);
  std::uint64_t floats = 0, packets = 0, exact = 0;
  for (int round = 0; floats < a.floats; ++round) {
    rig.in.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
    rig.out.set(Pause(static_cast<Pause::Kind>(round < 4 ? 0 : random() % Pause::kKinds), random()));
    std::deque<std::pair<Bytes, Setting>> sent;
    for (int i = 0; i < 20; ++i) {
      sent.emplace_back(some_packet(random), kSettings[random() % std::size(kSettings)]);
      floats += sent.back().first.size() / 4;
      rig.push(sent.back().first, sent.back().second);
    }
    for (; !sent.empty(); sent.pop_front(), ++packets) {
      rig.until_out();
      const Packet got = rig.out.take();
      exact += got.user >> 16;
      check(sent.front().first, got, sent.front().second);
    }
  }
  for (int i = 0; i < 300; ++i) rig.step();
  BENCH_CHECK(!rig.out.has());
  std::printf("  %llu floats in %llu packets (%llu exact), %llu cycles, seed %llu\n",
              static_cast<unsigned long long>(floats), static_cast<unsigned long long>(packets),
              static_cast<unsigned long long>(exact), static_cast<unsigned long long>(rig.dut.cycles()),
              static_cast<unsigned long long>(a.seed));
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  std::printf("compress, %zu bits\n", 8 * kBeat);
  Rig rig(a);
  for (const Golden& g : goldens()) {
    rig.push(g.values, g.setting);
    rig.until_out();
    BENCH_CHECK(rig.out.take().bytes == g.groups);
  }
  latency(rig);
  bubbles(rig);
  random_streams(rig, a);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
