// SPDX-License-Identifier: Apache-2.0
// card_clocks: with four clocks of any ratio and phase, frames of both ways become what the model of frames.h says; one
// that the MAC calls damaged goes nowhere; registers are set and counters read by way of the host's clock.
#include <array>

#include "Vcard_clocks.h"
#include "clocks.h"
#include "mutants.h"

namespace bench {
namespace {

using Model = Vcard_clocks;
using Data = std::decay_t<decltype(Model::s_host_axis_tdata)>;
using Keep = std::decay_t<decltype(Model::s_host_axis_tkeep)>;
using In = Source<Data, Keep, IData>;
using Out = Sink<Data, Keep, IData>;
constexpr std::size_t kBeat = sizeof(Data);
enum Clock : std::size_t { kCard, kHost, kRx, kTx };

#define BENCH_PORTS(p)                                                                                  \
  dut.p##_axis_tdata, dut.p##_axis_tkeep, dut.p##_axis_tvalid, dut.p##_axis_tready, dut.p##_axis_tlast, \
      nullptr, Pause(Pause::kNever, 1)

struct Rig {
  explicit Rig(Random& r)
      : random(r),
        from_host(BENCH_PORTS(s_host)),
        to_wire(BENCH_PORTS(m_wire)),
        from_wire(BENCH_PORTS(s_wire)),
        to_host(BENCH_PORTS(m_host)),
        clocks({&dut.clk, &dut.host_clk, &dut.rx_clk, &dut.tx_clk}, r) {
    dut.s_axil_awvalid = dut.s_axil_wvalid = dut.s_axil_arvalid = dut.s_axil_bready = dut.s_axil_rready = 0;
    dut.s_wire_axis_tuser = 0;
    // Registers begin as anything; the reset comes before the first edge of a clock.
    dut.any_rst = 0;
    dut.eval();
    dut.any_rst = 1;
    dut.eval();
    while (clocks.edges() < 80) clocks.edge([&] { dut.eval(); }, [](std::size_t) {}, [](std::size_t) {});
    dut.any_rst = 0;
    for (int i = 0; i < 200; ++i) step();
  }
  // One edge of one clock; true if a beat went or came.
  bool step() {
    bool moved = false;
    const auto before = [&](std::size_t k) {
      if (k == kHost) from_host.before(), to_host.before();
      if (k == kTx) to_wire.before();
      if (k == kRx) {
        from_wire.before();
        dut.s_wire_axis_tuser = dut.s_wire_axis_tvalid && dut.s_wire_axis_tlast && damaged.front();
      }
      dut.eval();
      if (k == kHost) {
        const bool went = from_host.after(), came = to_host.after();
        moved = went || came;
        asks = {dut.s_axil_awvalid && dut.s_axil_awready, dut.s_axil_arvalid && dut.s_axil_arready};
        answers = {dut.s_axil_bvalid && dut.s_axil_bready, dut.s_axil_rvalid && dut.s_axil_rready};
        if (answers[0]) response = dut.s_axil_bresp;
        if (answers[1]) response = dut.s_axil_rresp, value = dut.s_axil_rdata;
      }
      if (k == kTx) moved = to_wire.after();
      if (k == kRx) {
        moved = from_wire.after();
        BENCH_CHECK(!dut.s_wire_axis_tvalid || moved);  // a MAC does not wait
        ends = moved && dut.s_wire_axis_tlast;
      }
    };
    const auto after = [&](std::size_t k) {
      if (k == kHost) {
        from_host.done();
        if (asks[0]) dut.s_axil_awvalid = dut.s_axil_wvalid = 0;
        if (asks[1]) dut.s_axil_arvalid = 0;
        answered = answered || answers[0] || answers[1];
        lost += dut.ev_lost & 1U;
      }
      if (k == kCard) lost += (dut.ev_lost >> 1 & 1U) + (dut.ev_lost >> 2 & 1U);
      if (k != kRx) return;
      from_wire.done();
      if (ends) damaged.pop_front();
      reported += dut.ev_damaged;
      lost += dut.ev_lost >> 3 & 1U;
    };
    clocks.edge([&] { dut.eval(); }, before, after);
    return moved;
  }
  void wait() {
    for (int edges = 0; !answered; ++edges) {
      step();
      BENCH_CHECK(edges < 2000);
    }
    dut.s_axil_bready = dut.s_axil_rready = 0;
    answered = false;
  }
  bool write(unsigned address, std::uint32_t data) {
    dut.s_axil_awaddr = static_cast<CData>(address);
    dut.s_axil_wdata = data;
    dut.s_axil_wstrb = 15;
    dut.s_axil_awvalid = dut.s_axil_wvalid = dut.s_axil_bready = 1;
    wait();
    return response == 0;
  }
  std::uint32_t read(unsigned address) {
    dut.s_axil_araddr = static_cast<CData>(address);
    dut.s_axil_arvalid = dut.s_axil_rready = 1;
    wait();
    BENCH_CHECK(response == 0);
    return value;
  }
  Random& random;
  Model dut;
  In from_host;
  Out to_wire;
  In from_wire;
  Out to_host;
  Clocks clocks;
  std::deque<bool> damaged;  // of the frames in from_wire
  std::uint64_t reported = 0, lost = 0;

 private:
  std::array<bool, 2> asks{}, answers{};
  bool ends = false, answered = false;
  unsigned response = 0;
  std::uint32_t value = 0;
};

struct Totals {
  std::uint64_t events[2][5] = {}, frames = 0, damaged = 0;
  void add(int direction, Event event) {
    const bool also = event == kInexact || event == kGrown;
    events[direction][also ? kPassed : event] += 1;
    if (also) events[direction][event] += 1;
  }
};

// Frames each way under one setting, with other clocks and pauses.
void traffic(Rig& rig, int round, Totals& totals) {
  Random& random = rig.random;
  CardConfig c;
  c.exact = round % 3 != 2;
  c.setting = kSettings[static_cast<std::size_t>(round) % std::size(kSettings)];
  const std::uint32_t control = 1U | c.exact << 1 |
                                (c.setting.mode == tithe::inceptionn::kLiteral ? 4U : 0U) |
                                static_cast<std::uint32_t>(c.setting.b) << 8 | c.dscp << 16;
  rig.clocks.change();
  BENCH_CHECK(rig.write(0x08, control) && rig.read(0x08) == control && !rig.write(0x00, 1));
  const auto pause = [&] { return Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()); };
  rig.from_host.set(pause());
  rig.to_wire.set(pause());
  rig.to_host.set(pause());
  std::deque<Bytes> on_wire, at_host;
  for (int i = 0; i < 20; ++i, totals.frames += 2) {
    const Bytes f = some_frame(random, c, true);
    const Outcome packed = pack(f, c);
    totals.add(0, packed.event);
    rig.from_host.push({f});
    on_wire.push_back(packed.frame);
    const Bytes w = packed.event == kPacked ? packed.frame : some_frame(random, c, true);
    rig.damaged.push_back(random() % 4 == 0);
    if (rig.damaged.back()) {
      ++totals.damaged;
    } else {
      const Outcome unpacked = unpack(w, c);
      totals.add(1, unpacked.event);
      if (unpacked.event != kDropped) at_host.push_back(unpacked.frame);
    }
    rig.from_wire.push({w});
    // One frame each way at a time: so there is room for all that come from the wire.
    for (int quiet = 0; !on_wire.empty() || !at_host.empty() || !rig.damaged.empty();) {
      quiet = rig.step() ? 0 : quiet + 1;
      BENCH_CHECK(quiet < 500000);
      if (rig.to_wire.has()) {
        BENCH_CHECK(!on_wire.empty() && rig.to_wire.take().bytes == on_wire.front());
        on_wire.pop_front();
      }
      if (rig.to_host.has()) {
        BENCH_CHECK(!at_host.empty() && rig.to_host.take().bytes == at_host.front());
        at_host.pop_front();
      }
    }
  }
  for (int quiet = 0; quiet < 5000; quiet = rig.step() ? 0 : quiet + 1) {
  }
  BENCH_CHECK(on_wire.empty() && at_host.empty() && !rig.to_wire.has() && !rig.to_host.has());
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  seed() = a.seed;
  Verilated::assertOn(true);
  Verilated::randReset(2);
  Verilated::randSeed(static_cast<int>(a.seed));
  Random random(a.seed);
  Rig rig(random);
  BENCH_CHECK(rig.read(0x00) == 0x494e4331U && rig.read(0x04) == 8 * kBeat);
  Totals totals;
  for (int round = 0; totals.frames < a.floats / 1000; ++round) traffic(rig, round, totals);
  for (unsigned direction = 0; direction < 2; ++direction)
    for (unsigned i = 0; i < 5; ++i)
      BENCH_CHECK(rig.read(0x20 + 28 * direction + 4 * i) == totals.events[direction][i]);
  BENCH_CHECK(rig.reported == totals.damaged && rig.lost == 0 && totals.damaged > 0);
  BENCH_CHECK(totals.events[0][1] > 0 && totals.events[1][1] > 0);
  std::printf(
      "card_clocks, %zu bits: %llu frames, %llu packed, %llu unpacked, %llu damaged on the wire\n", 8 * kBeat,
      static_cast<unsigned long long>(totals.frames), static_cast<unsigned long long>(totals.events[0][1]),
      static_cast<unsigned long long>(totals.events[1][1]), static_cast<unsigned long long>(totals.damaged));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
