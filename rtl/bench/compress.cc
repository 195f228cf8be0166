// SPDX-License-Identifier: Apache-2.0
// compress: bit-exact with the codec, whatever comes and however both sides pause; nothing lost, nothing twice; its
// latency and its bubbles are those stated.
#include "Vcompress.h"
#include "golden.h"
#include "reference.h"

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
    use(kSettings[0]);
    dut.reset();
  }
  void use(Setting s) {
    dut->cfg_literal = s.mode == tithe::inceptionn::kLiteral;
    dut->cfg_bound = static_cast<CData>(s.b);
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

void check(const Packet& sent, const Packet& got, Setting s) {
  const Bytes want = encode(sent.bytes, s);
  BENCH_CHECK(got.bytes == want);
  BENCH_CHECK((got.user & 0xffff) == sent.bytes.size());
  BENCH_CHECK((got.user >> 16 == 1) == (decode(want, sent.bytes.size(), s) == sent.bytes));
}

// A lone group: cycles from its last beat to the one that carries it.
void latency(Rig& rig) {
  for (int times = 0; times < 3; ++times) {
    Random random(static_cast<std::uint64_t>(times));
    Bytes group(std::max<std::size_t>(32, kBeat));
    for (auto& byte : group) byte = static_cast<std::uint8_t>(random());
    std::memset(group.data() + 8, 0, 24);  // fits a beat, of 64 bits too
    if (kBeat <= 16) std::memset(group.data(), 0, group.size());
    rig.in.push({group});
    std::uint64_t went = 0;
    const std::uint64_t beats = rig.in.beats() + (group.size() + kBeat - 1) / kBeat;
    while (!rig.out.has()) {
      cycle(rig.dut, rig.in, rig.out);
      if (went == 0 && rig.in.beats() == beats) went = rig.dut.cycles();
    }
    BENCH_CHECK(rig.dut.cycles() - went == kLatency);
    check({group}, rig.out.take(), kSettings[0]);
  }
}

// No pauses: a beat goes in every cycle, but for those in which the wider output needs the port (16 of 17 go
// in when nothing can be compressed), and up to two at a packet's end.
void bubbles(Rig& rig) {
  for (const std::uint32_t value : {0U, 0x41234567U, 0x3f123456U}) {
    Bytes packet(60000);
    for (std::size_t i = 0; i < packet.size(); i += 4) std::memcpy(&packet[i], &value, 4);
    const std::uint64_t begin = rig.dut.cycles();
    rig.in.push({packet});
    rig.until_out();
    const std::uint64_t took = rig.dut.cycles() - begin;
    const Packet got = rig.out.take();
    check({packet}, got, kSettings[0]);
    const std::uint64_t beats = (std::max(packet.size(), got.bytes.size()) + kBeat - 1) / kBeat;
    std::printf("  60000 bytes to %zu: %llu cycles for %llu beats of the wider side\n", got.bytes.size(),
                static_cast<unsigned long long>(took), static_cast<unsigned long long>(beats));
    BENCH_CHECK(took <= beats + kLatency + 2);
  }
}

void random_streams(Rig& rig, const Args& a) {
  Random random(a.seed);
  std::uint64_t floats = 0, packets = 0, exact = 0;
  int round = 0;
  while (floats < a.floats) {
    const Setting s = kSettings[static_cast<std::size_t>(round) % std::size(kSettings)];
    const auto in_pause = static_cast<Pause::Kind>(random() % Pause::kKinds);
    const auto out_pause = static_cast<Pause::Kind>(round < 4 ? 0 : random() % Pause::kKinds);
    ++round;
    rig.use(s);
    rig.in.set(Pause(in_pause, random()));
    rig.out.set(Pause(out_pause, random()));
    std::deque<Packet> sent;
    for (int i = 0; i < 20; ++i) {
      sent.push_back({some_packet(random)});
      floats += sent.back().bytes.size() / 4;
      rig.in.push(sent.back());
    }
    while (!sent.empty()) {
      rig.until_out();
      const Packet got = rig.out.take();
      exact += got.user >> 16;
      check(sent.front(), got, s);
      sent.pop_front();
      ++packets;
    }
  }
  for (int i = 0; i < 300; ++i) cycle(rig.dut, rig.in, rig.out);
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
    rig.use(g.setting);
    rig.in.push({g.values});
    rig.until_out();
    BENCH_CHECK(rig.out.take().bytes == g.groups);
  }
  rig.use(kSettings[0]);
  latency(rig);
  bubbles(rig);
  random_streams(rig, a);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
