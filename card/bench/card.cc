// SPDX-License-Identifier: Apache-2.0
// card: both directions at once, against the model of frames.h, which is held against the twin in card/model/: data and
// everything else, damaged frames and mutants among them, in all modes; registers and counters over AXI4-Lite; and what
// is packed comes back as the host sent it.
#include "Vcard.h"
#include "mutants.h"
#include "promises.h"
#include "serve.h"
#include "streams.h"
#include "twin.h"

namespace bench {
namespace {

using Model = Vcard;
using Data = std::decay_t<decltype(Model::s_host_axis_tdata)>;
using Keep = std::decay_t<decltype(Model::s_host_axis_tkeep)>;
using In = Source<Data, Keep, IData>;
using Out = Sink<Data, Keep, IData>;
constexpr std::size_t kBeat = sizeof(Data);

#define BENCH_PORTS(p)                                                                                       \
  dut->p##_axis_tdata, dut->p##_axis_tkeep, dut->p##_axis_tvalid, dut->p##_axis_tready, dut->p##_axis_tlast, \
      nullptr

struct Rig {
  explicit Rig(const Args& a)
      : dut(a),
        from_host(BENCH_PORTS(s_host), Pause(Pause::kNever, 1)),
        to_wire(BENCH_PORTS(m_wire), Pause(Pause::kNever, 2)),
        from_wire(BENCH_PORTS(s_wire), Pause(Pause::kNever, 3)),
        to_host(BENCH_PORTS(m_host), Pause(Pause::kNever, 4)) {
    dut->s_axil_awvalid = dut->s_axil_wvalid = dut->s_axil_arvalid = 0;
    dut.reset();
  }
  bool step() {
    from_host.before();
    to_wire.before();
    from_wire.before();
    to_host.before();
    dut.settle();
    const bool moved[] = {from_host.after(), to_wire.after(), from_wire.after(), to_host.after()};
    dut.edge();
    from_host.done();
    from_wire.done();
    return moved[0] || moved[1] || moved[2] || moved[3];
  }
  Packet next(Out& out) {
    for (int quiet = 0; !out.has();) {
      quiet = step() ? 0 : quiet + 1;
      BENCH_CHECK(quiet < 5000);
    }
    return out.take();
  }
  bool write(unsigned address, std::uint32_t value) {
    dut->s_axil_awaddr = static_cast<CData>(address);
    dut->s_axil_wdata = value;
    dut->s_axil_wstrb = 15;
    dut->s_axil_awvalid = dut->s_axil_wvalid = dut->s_axil_bready = 1;
    step();
    dut->s_axil_awvalid = dut->s_axil_wvalid = 0;
    dut.settle();
    BENCH_CHECK(dut->s_axil_bvalid);
    const bool ok = dut->s_axil_bresp == 0;
    step();
    return ok;
  }
  std::optional<std::uint32_t> read(unsigned address) {
    dut->s_axil_araddr = static_cast<CData>(address);
    dut->s_axil_arvalid = dut->s_axil_rready = 1;
    step();
    dut->s_axil_arvalid = 0;
    dut.settle();
    BENCH_CHECK(dut->s_axil_rvalid);
    const std::uint32_t value = dut->s_axil_rdata;
    const bool ok = dut->s_axil_rresp == 0;
    step();
    return ok ? std::optional(value) : std::nullopt;
  }
  bool configure(const CardConfig& c) {
    const std::uint32_t control = c.on | c.exact << 1 |
                                  (c.setting.mode == tithe::inceptionn::kLiteral ? 4U : 0U) |
                                  static_cast<std::uint32_t>(c.setting.b) << 8 | c.dscp << 16;
    return write(0x08, control) && read(0x08) == control && write(0x0c, static_cast<std::uint32_t>(c.least));
  }
  Dut<Model> dut;
  In from_host;
  Out to_wire;
  In from_wire;
  Out to_host;
};

void registers(Rig& rig) {
  BENCH_CHECK(rig.read(0x00) == 0x494e4331U && rig.read(0x04) == 8 * kBeat);
  BENCH_CHECK(rig.read(0x08) == (10U << 16 | 10U << 8 | 3U) && rig.read(0x0c) == 64U);
  BENCH_CHECK(!rig.write(0x08, 0) && !rig.write(0x08, 101U << 8) && !rig.write(0x08, 1U << 31 | 10U << 8));
  BENCH_CHECK(!rig.write(0x00, 1) && !rig.write(0x20, 1) && !rig.read(0x5c) && !rig.read(0x21) &&
              !rig.read(0x10));
  BENCH_CHECK(rig.read(0x08) == (10U << 16 | 10U << 8 | 3U));
}

// A full frame of TCP data, as fast as it goes, each way and both ways at once: cycles per frame.
void speed(Rig& rig) {
  CardConfig c;
  BENCH_CHECK(rig.configure(c));
  Random random(1);
  constexpr int kFrames = 100;
  for (const std::size_t want : {std::size_t{1514}, std::size_t{64}}) {
    Bytes f;
    do f = some_frame(random, c, false);
    while (!headers(f) || headers(f)->dscp != c.dscp || f.size() < want / 2 || f.size() > want + 64 ||
           pack(f, c).event != (want > 1000 ? kPacked : kPassed));
    const Bytes packed = pack(f, c).frame, restored = unpack(packed, c).frame;
    double cycles[3] = {};
    for (int ways = 1; ways <= 3; ++ways) {
      const std::uint64_t begin = rig.dut.cycles();
      for (int i = 0; i < kFrames; ++i) {
        if ((ways & 1) != 0) rig.from_host.push({f});
        if ((ways & 2) != 0) rig.from_wire.push({packed});
      }
      for (int i = 0; i < kFrames; ++i) {
        if ((ways & 1) != 0) BENCH_CHECK(rig.next(rig.to_wire).bytes == packed);
        if ((ways & 2) != 0) BENCH_CHECK(rig.next(rig.to_host).bytes == restored);
      }
      cycles[ways - 1] = static_cast<double>(rig.dut.cycles() - begin) / kFrames;
    }
    std::printf(
        "  a frame of %zu bytes to %zu: %.1f cycles to the wire, %.1f back, %.1f both at once, %zu beats\n",
        f.size(), packed.size(), cycles[0], cycles[1], cycles[2], (f.size() + kBeat - 1) / kBeat);
  }
}

// Each promise of card/docs/card_rtl.md on its own, and the round trip of each packed frame.
void promises(Rig& rig) {
  const auto event = [&](unsigned direction, Out& out, auto step) {
    std::uint32_t before[5];
    for (unsigned i = 0; i < 5; ++i) before[i] = *rig.read(0x20 + 28 * direction + 4 * i);
    step();
    for (int quiet = 0; quiet < 1500; quiet = rig.step() ? 0 : quiet + 1) {
    }
    std::optional<Bytes> came;
    if (out.has()) came = out.take().bytes;
    BENCH_CHECK(!out.has());
    unsigned counted = 0;
    for (unsigned i = 0; i < 5; ++i)
      counted |= (*rig.read(0x20 + 28 * direction + 4 * i) - before[i]) << 4 * i;
    return std::pair(counted, came);
  };
  static constexpr unsigned kCounted[] = {0x1, 0x10, 0x101, 0x1001, 0x10000};  // of each event
  Bytes packed;
  const auto to_wire = promises_to_wire();
  for (const Promise& p : to_wire) {
    BENCH_CHECK(rig.configure(p.config));
    const auto [counted, came] = event(0, rig.to_wire, [&] { rig.from_host.push({p.frame}); });
    const bool right = counted == kCounted[p.event] && came && (p.event == kPacked) == (*came != p.frame);
    if (!right) std::fprintf(stderr, "to wire: %s\n", p.what);
    BENCH_CHECK(right);
    if (p.event != kPacked) continue;
    BENCH_CHECK(came->size() < p.frame.size());
    if (packed.empty()) packed = *came;
    const auto [back, restored] = event(1, rig.to_host, [&] { rig.from_wire.push({*came}); });
    Bytes want(p.frame.begin(), p.frame.begin() + static_cast<std::ptrdiff_t>(headers(p.frame)->end));
    if (back != 0x10 || !restored || (p.config.exact && *restored != want))
      std::fprintf(stderr, "back: %s\n", p.what);
    BENCH_CHECK(back == 0x10 && restored && (!p.config.exact || *restored == want));
    BENCH_CHECK(restored->size() == want.size() && l4_holds(*restored, *headers(*restored)));
  }
  const auto to_host = promises_to_host(packed);
  for (const Promise& p : to_host) {
    BENCH_CHECK(rig.configure(p.config));
    const auto [counted, came] = event(1, rig.to_host, [&] { rig.from_wire.push({p.frame}); });
    const bool right = counted == kCounted[p.event] && came.has_value() == (p.event != kDropped) &&
                       (p.event != kPassed || *came == p.frame);
    if (!right) std::fprintf(stderr, "to host: %s\n", p.what);
    BENCH_CHECK(right);
  }
  // In exact mode a stream arrives as it was, wherever its segments are cut the first time or the second.
  CardConfig c;
  BENCH_CHECK(rig.configure(c));
  Random random(7);
  const Bytes stream = kept_floats(50000);
  Bytes arrived(stream.size(), 0xee);
  std::size_t sent = 0, shorter = 0;
  for (const auto& [first, bytes] : segments(random, stream)) {
    Recipe r;
    r.sequence = static_cast<std::uint32_t>(first);
    r.payload = bytes;
    const Bytes f = r.make();
    rig.from_host.push({f});
    const Bytes on_wire = rig.next(rig.to_wire).bytes;
    rig.from_wire.push({on_wire});
    const Bytes back = rig.next(rig.to_host).bytes;
    BENCH_CHECK(back == f);
    const std::size_t at = std::size_t{word(back, 38)} << 16 | word(back, 40);
    std::copy(back.begin() + 54, back.end(), arrived.begin() + static_cast<std::ptrdiff_t>(at));
    ++sent;
    shorter += on_wire.size() < f.size();
  }
  BENCH_CHECK(arrived == stream && shorter > sent / 8 && shorter < sent);
  std::printf("  %zu promises; a stream of %zu bytes in %zu segments, %zu of them packed\n",
              to_wire.size() + to_host.size(), stream.size(), sent, shorter);
}

struct Totals {
  std::uint64_t events[2][5] = {}, bytes[2][2] = {};
  std::uint64_t frames = 0, restored = 0;
  void add(int direction, const Outcome& outcome, const Bytes& in) {
    const bool also = outcome.event == kInexact || outcome.event == kGrown;
    events[direction][also ? kPassed : outcome.event] += 1;
    if (also) events[direction][outcome.event] += 1;
    bytes[direction][0] += in.size();
    bytes[direction][1] += outcome.frame.size();
  }
};

// 40 frames each way under one setting; or mutants of such.
void traffic(Rig& rig, Random& random, int round, bool mutates, Totals& totals) {
  CardConfig c;
  c.on = round % 16 != 15;
  c.exact = round % 3 != 2;
  c.setting = kSettings[static_cast<std::size_t>(round) % std::size(kSettings)];
  c.dscp = round % 4 ? 10 : static_cast<unsigned>(random() % 64);
  c.least = round % 2 ? 64 : random() % 300;
  BENCH_CHECK(rig.configure(c));
  rig.from_host.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
  rig.to_wire.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
  rig.from_wire.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
  rig.to_host.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
  std::deque<Bytes> on_wire, at_host;
  Twins twins(c);
  for (int i = 0; i < 40; ++i, totals.frames += 2) {
    Bytes f = some_frame(random, c, true);
    if (mutates) f = mutant(random, std::move(f));
    const Outcome packed = pack(f, c);
    BENCH_CHECK(twins.agree(tithe::card::Direction::kToWire, f));
    totals.add(0, packed, f);
    rig.from_host.push({f});
    on_wire.push_back(packed.frame);
    // The other direction carries the same kind of frame, damaged in one of four cases.
    Bytes w = packed.event == kPacked ? packed.frame : some_frame(random, c, true);
    const bool hurt = mutates || random() % 4 == 0;
    if (mutates) {
      if (packed.event != kPacked) w = pack(w, c).frame;
      w = mutant(random, std::move(w));
    } else if (hurt) {
      auto& byte = w[random() % w.size()];
      byte = static_cast<std::uint8_t>(byte ^ 1U << random() % 8);
      if (random() % 4 == 0) w.resize(1 + random() % w.size());
    }
    const Outcome unpacked = unpack(w, c);
    BENCH_CHECK(twins.agree(tithe::card::Direction::kToHost, w));
    totals.add(1, unpacked, w);
    rig.from_wire.push({w});
    if (unpacked.event != kDropped) at_host.push_back(unpacked.frame);
    if (packed.event == kPacked && !hurt) {
      // Padding does not travel.
      const auto h = headers(f);
      Bytes want(f.begin(), f.begin() + static_cast<std::ptrdiff_t>(h->end));
      BENCH_CHECK(unpacked.event == kPacked && l4_holds(unpacked.frame, *headers(unpacked.frame)));
      BENCH_CHECK(!c.exact || unpacked.frame == want);
      BENCH_CHECK(l4_holds(packed.frame, *headers(packed.frame)));
      ++totals.restored;
    }
  }
  while (!on_wire.empty() || !at_host.empty()) {
    if (!on_wire.empty()) {
      BENCH_CHECK(rig.next(rig.to_wire).bytes == on_wire.front());
      on_wire.pop_front();
    }
    if (!at_host.empty()) {
      BENCH_CHECK(rig.next(rig.to_host).bytes == at_host.front());
      at_host.pop_front();
    }
  }
  for (int quiet = 0; quiet < 1200; quiet = rig.step() ? 0 : quiet + 1) {
  }
  BENCH_CHECK(!rig.to_wire.has() && !rig.to_host.has());
}

// `tithe card --engine rtl` starts this bench with --serve and hands it frames, one at a time.
int serve(const Args& a) {
  Rig rig(a);
  const auto dropped = [&](bool to_host) { return *rig.read(0x20 + 28 * unsigned{to_host} + 16); };
  return serve_frames([&](const CardConfig& c) { return rig.configure(c); },
                      [&](bool to_host, const Bytes& frame) -> std::optional<Bytes> {
                        Out& out = to_host ? rig.to_host : rig.to_wire;
                        const std::uint32_t before = dropped(to_host);
                        (to_host ? rig.from_wire : rig.from_host).push({frame});
                        for (int cycle = 0; !out.has(); ++cycle) {
                          rig.step();
                          BENCH_CHECK(cycle < 100000);
                          if (cycle % 64 == 63 && dropped(to_host) != before) return {};
                        }
                        return out.take().bytes;
                      },
                      [&](unsigned address) { return *rig.read(address); }, [&] { return rig.dut.cycles(); });
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  if (a.serve) return serve(a);
  std::printf("card, %zu bits\n", 8 * kBeat);
  Rig rig(a);
  registers(rig);
  Random random(a.seed);
  Totals totals;
  int round = 0;
  while (totals.frames < a.floats / 50) traffic(rig, random, round++, false, totals);
  const std::uint64_t whole = totals.frames;
  while (totals.frames < whole + a.mutants) traffic(rig, random, round++, true, totals);
  const auto& events = totals.events;
  const auto& bytes = totals.bytes;
  for (unsigned d = 0; d < 2; ++d) {
    for (unsigned i = 0; i < 5; ++i) BENCH_CHECK(rig.read(0x20 + 28 * d + 4 * i) == events[d][i]);
    for (unsigned i = 0; i < 2; ++i) {
      BENCH_CHECK(rig.read(0x34 + 28 * d + 4 * i) == static_cast<std::uint32_t>(bytes[d][i]));
      BENCH_CHECK(rig.read(0x58) == static_cast<std::uint32_t>(bytes[d][i] >> 32));
    }
    std::printf("  %s: %llu passed (%llu inexact, %llu grown), %llu %s, %llu dropped\n",
                d ? "to host" : "to wire", static_cast<unsigned long long>(events[d][0]),
                static_cast<unsigned long long>(events[d][2]), static_cast<unsigned long long>(events[d][3]),
                static_cast<unsigned long long>(events[d][1]), d ? "unpacked" : "packed",
                static_cast<unsigned long long>(events[d][4]));
    BENCH_CHECK(events[d][1] > 0 && (d == 0 ? events[0][2] > 0 && events[0][3] > 0 : events[1][4] > 0));
  }
  std::printf("  %llu frames, of them %llu mutants and %llu restored, %llu cycles, seed %llu\n",
              static_cast<unsigned long long>(totals.frames),
              static_cast<unsigned long long>(totals.frames - whole),
              static_cast<unsigned long long>(totals.restored),
              static_cast<unsigned long long>(rig.dut.cycles()), static_cast<unsigned long long>(a.seed));
  for (In* in : {&rig.from_host, &rig.from_wire}) in->set(Pause(Pause::kNever, 1));
  for (Out* out : {&rig.to_wire, &rig.to_host}) out->set(Pause(Pause::kNever, 1));
  speed(rig);
  promises(rig);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
