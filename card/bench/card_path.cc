// SPDX-License-Identifier: Apache-2.0
// card_path: one direction against the model of frames.h, frame by frame, with the event of each: settings change
// between frames, and half of the frames are mutants.
#include "Vcard_path.h"
#include "mutants.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vcard_path;
using Data = std::decay_t<decltype(Model::s_axis_tdata)>;
using Keep = std::decay_t<decltype(Model::s_axis_tkeep)>;
constexpr bool kUnpacks = std::string_view(BENCH_VARIANT) == "unpacks";

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Model> dut(a);
  Source<Data, Keep, IData> in(dut->s_axis_tdata, dut->s_axis_tkeep, dut->s_axis_tvalid, dut->s_axis_tready,
                               dut->s_axis_tlast, nullptr, Pause(Pause::kNever, 1));
  Sink<Data, Keep, IData> out(dut->m_axis_tdata, dut->m_axis_tkeep, dut->m_axis_tvalid, dut->m_axis_tready,
                              dut->m_axis_tlast, nullptr, Pause(Pause::kNever, 2));
  dut.reset();
  Random random(a.seed);
  std::uint64_t events[5] = {}, frames = 0;
  for (int round = 0; frames < std::max<std::uint64_t>(2000, a.floats / 200); ++round) {
    CardConfig c;
    c.on = round % 16 != 15;
    c.exact = round % 3 != 2;
    c.setting = kSettings[static_cast<std::size_t>(round) % std::size(kSettings)];
    c.least = random() % 300;
    dut->cfg_on = c.on;
    dut->cfg_exact = c.exact;
    dut->cfg_literal = c.setting.mode == tithe::inceptionn::kLiteral;
    dut->cfg_bound = static_cast<CData>(c.setting.b);
    dut->cfg_dscp = static_cast<CData>(c.dscp);
    dut->cfg_min_bytes = static_cast<SData>(c.least);
    in.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
    out.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
    std::deque<Bytes> want;
    std::uint64_t to_come[5] = {}, left = 0;
    for (int i = 0; i < 30; ++i, ++frames) {
      Bytes f = some_frame(random, c, true);
      if (kUnpacks) f = pack(f, c).frame;
      if (random() % 2) f = mutant(random, std::move(f));
      const Outcome o = kUnpacks ? unpack(f, c) : pack(f, c);
      ++to_come[o.event == kInexact || o.event == kGrown ? kPassed : o.event];
      if (o.event == kInexact || o.event == kGrown) ++to_come[o.event];
      ++events[o.event];
      if (o.event != kDropped) want.push_back(o.frame);
      in.push({std::move(f)});
    }
    for (const auto n : to_come) left += n;
    for (int quiet = 0; !want.empty() || left > 0;) {
      quiet = cycle(dut, in, out) ? 0 : quiet + 1;
      BENCH_CHECK(quiet < 5000);
      const bool now[] = {dut->ev_passed != 0, dut->ev_packed != 0, dut->ev_inexact != 0, dut->ev_grown != 0,
                          dut->ev_dropped != 0};
      for (int e = 0; e < 5; ++e) {
        BENCH_CHECK(!now[e] || to_come[e] > 0);
        to_come[e] -= now[e];
        left -= now[e];
      }
      while (out.has()) {
        BENCH_CHECK(!want.empty() && out.take().bytes == want.front());
        want.pop_front();
      }
    }
  }
  BENCH_CHECK(events[kPassed] > 0 && events[kPacked] > 0);
  BENCH_CHECK(kUnpacks ? events[kDropped] > 0 : events[kInexact] > 0 && events[kGrown] > 0);
  std::printf(
      "card_path, %zu bits, %s: %llu frames: %llu passed, %llu done, %llu inexact, %llu grown, %llu "
      "dropped\n",
      8 * sizeof(Data), kUnpacks ? "to host" : "to wire", static_cast<unsigned long long>(frames),
      static_cast<unsigned long long>(events[0]), static_cast<unsigned long long>(events[1]),
      static_cast<unsigned long long>(events[2]), static_cast<unsigned long long>(events[3]),
      static_cast<unsigned long long>(events[4]));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
