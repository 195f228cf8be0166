// SPDX-License-Identifier: Apache-2.0
// packet_fifo: kept packets come out, in order, once and soon; discarded packets never come out; there is room
// until the last place is taken.
#include "Vpacket_fifo.h"
#include "streams.h"

namespace bench {
namespace {

constexpr std::size_t kDepth = 16;  // as the Makefile sets it
constexpr bool kAlways = std::string_view(BENCH_VARIANT) == "always";

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Vpacket_fifo> dut(a);
  dut.reset();
  Random random(a.seed);
  std::deque<unsigned> kept, open;  // waiting in the store
  std::uint64_t came = 0, forgotten = 0, full = 0;
  Pause in_pause(Pause::kNever, 1), out_pause(Pause::kNever, 2);
  bool valid = false;  // of the register, and what it has
  unsigned shown = 0;
  for (int i = 0; i < 200000; ++i) {
    if (i % 500 == 0) {
      in_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
      out_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    }
    const std::uint64_t r = random();
    dut->s_valid = !in_pause.now();
    dut->s_data = static_cast<CData>(r);
    const bool is_full = open.size() + kept.size() == kDepth;
    dut->keep = !kAlways && ((r >> 8) % 6 == 0 || (is_full && (r >> 16) % 2));
    dut->discard = !kAlways && !dut->keep && (r >> 8) % 24 == 1;
    dut->m_ready = !out_pause.now();
    dut.settle();
    BENCH_CHECK(dut->s_ready == !is_full);
    full += is_full;
    BENCH_CHECK(dut->m_valid == valid && (!valid || dut->m_data == static_cast<CData>(shown)));
    const bool goes = dut->s_valid && dut->s_ready;
    // The edge: the register is filled where it is free or becomes so, and what can come out does.
    if (!valid || dut->m_ready) {
      came += valid;
      valid = !kept.empty();
      if (valid) {
        shown = kept.front();
        kept.pop_front();
      }
    }
    if (dut->keep || kAlways) {
      kept.insert(kept.end(), open.begin(), open.end());
      open.clear();
    }
    if (goes) (kAlways ? kept : open).push_back(dut->s_data);
    if (dut->discard) {
      forgotten += open.size();
      open.clear();
    }
    dut.edge();
  }
  BENCH_CHECK(came > 20000 && full > 0 && (kAlways || forgotten > 1000));
  std::printf("packet_fifo%s: %llu beats came, %llu forgotten, %llu cycles full\n", kAlways ? ", always" : "",
              static_cast<unsigned long long>(came), static_cast<unsigned long long>(forgotten),
              static_cast<unsigned long long>(full));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
