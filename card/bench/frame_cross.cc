// SPDX-License-Identifier: Apache-2.0
// frame_cross: between clocks of any ratio and phase, frames come out whole and in order, none that is damaged, and of
// the others all but those that are counted as lost; with WAITS only frames that are longer than the store.
#include "Vframe_cross.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vframe_cross;
using Data = std::decay_t<decltype(Model::s_axis_tdata)>;
using Keep = std::decay_t<decltype(Model::s_axis_tkeep)>;
constexpr std::size_t kBeat = sizeof(Data);
constexpr bool kWaits = std::string_view(BENCH_VARIANT) == "waits";
constexpr std::size_t kStore = 1024;  // of the Makefile

struct Frame {
  Bytes bytes;
  bool damaged = false;
};

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  seed() = a.seed;
  Verilated::randReset(2);
  Verilated::randSeed(static_cast<int>(a.seed));
  Model dut;
  Random random(a.seed);
  std::uint64_t now = 0, next[2] = {3, 5}, half[2] = {4, 4};
  std::deque<Bytes> sent;  // and not come yet
  std::uint64_t frames = 0, came = 0, damaged = 0, lost = 0, reported_damaged = 0, too_long = 0;
  Frame frame;
  Bytes taken;
  std::size_t at = 0;
  Pause in_pause(Pause::kNever, 1), out_pause(Pause::kNever, 2);
  const auto set = [&] {
    half[0] = 1 + random() % 9;
    half[1] = 1 + random() % 9;
    in_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    out_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
  };
  dut.s_axis_tvalid = 0;
  dut.m_axis_tready = 0;
  dut.s_clk = dut.m_clk = 0;
  dut.s_rst = dut.m_rst = 1;
  std::uint64_t quiet = 0;
  for (int edges = 0; quiet < 4000; ++edges) {
    if (edges == 60) dut.s_rst = dut.m_rst = 0;
    if (edges % 5000 == 0) set();
    const unsigned side = next[1] < next[0] ? 1 : 0;
    now = next[side];
    next[side] = now + half[side];
    CData& clock = side ? dut.m_clk : dut.s_clk;
    bool offers = false, takes = false, gives = false;
    if (!clock && edges > 60) {  // before a rising edge
      if (side == 0) {
        if (!dut.s_axis_tvalid && (frames < 20000 || at > 0) && !in_pause.now()) {
          if (at == 0) {
            frame.bytes.resize(1 + random() % (random() % 8 ? 100 : random() % 8 ? 700 : 2 * kStore));
            for (auto& b : frame.bytes) b = static_cast<std::uint8_t>(random());
            frame.damaged = random() % 4 == 0;
            ++frames;
          }
          const std::size_t n = std::min(kBeat, frame.bytes.size() - at);
          const std::uint64_t keep = n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
          put(dut.s_axis_tdata, frame.bytes.data() + at, n);
          put(dut.s_axis_tkeep, &keep, sizeof keep);
          at += n;
          dut.s_axis_tlast = at == frame.bytes.size();
          dut.s_axis_tuser = dut.s_axis_tlast && frame.damaged;
          dut.s_axis_tvalid = 1;
        }
        dut.eval();
        offers = dut.s_axis_tvalid;
        takes = offers && dut.s_axis_tready;
        BENCH_CHECK(kWaits || !offers || takes);
      } else {
        dut.m_axis_tready = !out_pause.now();
        dut.eval();
        gives = dut.m_axis_tvalid && dut.m_axis_tready;
        if (gives) {
          const auto n = static_cast<std::size_t>(__builtin_popcountll(low64(dut.m_axis_tkeep)));
          const auto* from = reinterpret_cast<const std::uint8_t*>(&dut.m_axis_tdata);
          taken.insert(taken.end(), from, from + n);
          if (dut.m_axis_tlast) {
            while (!sent.empty() &&
                   sent.front() != taken) {  // lost; what came must be one of those behind it
              sent.pop_front();
              ++lost;
            }
            BENCH_CHECK(!sent.empty());
            sent.pop_front();
            taken.clear();
            ++came;
          }
        }
      }
    }
    clock = !clock;
    dut.eval();
    if (side == 0 && clock && edges > 60) {
      reported_damaged += dut.ev_damaged;
      too_long += dut.ev_lost;
      if (takes) {
        dut.s_axis_tvalid = 0;
        if (dut.s_axis_tlast) {
          damaged += frame.damaged;
          if (!frame.damaged) sent.push_back(frame.bytes);
          if (kWaits && frame.bytes.size() > kStore && !frame.damaged) sent.pop_back(), ++lost;
          at = 0;
        }
      }
    }
    quiet = takes || gives || edges < 100 ? 0 : quiet + 1;
  }
  lost += sent.size();
  const std::uint64_t reported_lost = too_long;
  BENCH_CHECK(taken.empty() && frames == 20000 && came > 5000);
  // A frame that is damaged and finds no room is counted as lost alone.
  BENCH_CHECK(came + reported_damaged + reported_lost == frames && reported_damaged <= damaged &&
              reported_lost >= lost);
  BENCH_CHECK(reported_lost - lost == damaged - reported_damaged);
  BENCH_CHECK(reported_lost > 0);
  std::printf("frame_cross, %zu bits, %s: %llu frames, %llu came, %llu damaged, %llu lost\n", 8 * kBeat,
              kWaits ? "waits" : "never waits", static_cast<unsigned long long>(frames),
              static_cast<unsigned long long>(came), static_cast<unsigned long long>(reported_damaged),
              static_cast<unsigned long long>(reported_lost));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
