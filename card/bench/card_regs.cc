// SPDX-License-Identifier: Apache-2.0
// card_regs: what is written is read, refused writes and reads change nothing and say so, counters count past 32 bits,
// and their upper half is of the cycle in which the lower was read; each of the five channels of AXI4-Lite pauses by
// itself.
#include "Vcard_regs.h"
#include "streams.h"

namespace bench {
namespace {

constexpr std::uint64_t kCountsBegin = std::string_view(BENCH_VARIANT) == "full" ? 0x1fffff000 : 0;

// The register map of card/docs/card_rtl.md.
struct Registers {
  std::uint32_t control = 10U << 16 | 10U << 8 | 3U, least = 64, upper = 0;
  std::uint64_t counts[14];
  Registers() { std::fill(std::begin(counts), std::end(counts), kCountsBegin); }
  bool write(unsigned at, std::uint32_t value, unsigned strobe) {
    if (strobe != 15) return false;
    if (at == 0x08) {
      const unsigned b = value >> 8 & 127;
      if ((value & 0xffc080f8U) != 0 || b < 1 || b > 100) return false;
      control = value;
      return true;
    }
    if (at != 0x0c || value > 0xffff) return false;
    least = value;
    return true;
  }
  std::pair<bool, std::uint32_t> read(unsigned at) {
    if (at == 0x00) return {true, 0x494e4331};
    if (at == 0x04) return {true, 256};
    if (at == 0x08) return {true, control};
    if (at == 0x0c) return {true, least};
    if (at == 0x58) return {true, upper};
    if (at >= 0x20 && at < 0x58 && at % 4 == 0) {
      const std::uint64_t count = counts[(at - 0x20) / 4];
      upper = static_cast<std::uint32_t>(count >> 32);
      return {true, static_cast<std::uint32_t>(count)};
    }
    return {false, 0};
  }
};

// A valid/ready channel that the bench drives: waits at random, and holds its value until it is accepted.
template <typename Offer>
void drive(CData& valid, Pause& pause, Offer offer) {
  if (valid || pause.now()) return;
  offer();
  valid = 1;
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Vcard_regs> dut(a);
  Random random(a.seed);
  Registers model;

  dut->events = 0;
  dut->s_axil_awvalid = dut->s_axil_wvalid = dut->s_axil_arvalid = 0;
  dut->bytes_in = dut->bytes_out = 0;
  dut.reset();
  Pause pauses[5] = {
      {Pause::kNever, 1}, {Pause::kNever, 2}, {Pause::kNever, 3}, {Pause::kNever, 4}, {Pause::kNever, 5}};
  std::deque<bool> answers;
  std::deque<std::pair<bool, std::uint32_t>> values;
  std::uint64_t writes = 0, refused = 0, reads = 0;
  const auto address = [&] {
    static constexpr unsigned kAt[] = {0x00, 0x04, 0x08, 0x08, 0x08, 0x0c, 0x0c, 0x20,
                                       0x38, 0x54, 0x58, 0x58, 0x5c, 0x10, 0x09, 0xfc};
    return static_cast<CData>(random() % 4 ? kAt[random() % std::size(kAt)] : random() % 256);
  };
  for (int i = 0; i < 100000; ++i) {
    if (i % 500 == 0)
      for (auto& p : pauses) p = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    drive(dut->s_axil_awvalid, pauses[0], [&] { dut->s_axil_awaddr = address(); });
    drive(dut->s_axil_wvalid, pauses[1], [&] {
      const std::uint64_t r = random();
      std::uint32_t value = static_cast<std::uint32_t>(r >> 32) & 0x003f7f07U;  // fields that are there
      if (r % 4 == 0) value &= 0xffff;
      if (r % 8 == 1) value = static_cast<std::uint32_t>(r >> 32);
      dut->s_axil_wdata = value;
      dut->s_axil_wstrb = static_cast<CData>((r >> 8) % 8 ? 15 : (r >> 16) % 16);
    });
    drive(dut->s_axil_arvalid, pauses[2], [&] { dut->s_axil_araddr = address(); });
    dut->s_axil_bready = !pauses[3].now();
    dut->s_axil_rready = !pauses[4].now();
    const std::uint64_t r = random();
    dut->events = static_cast<SData>(r & (r >> 10) & 0x3ff);
    dut->bytes_in = static_cast<SData>((r >> 20) % 65 | (r >> 30) % 65 << 7);
    dut->bytes_out = static_cast<SData>((r >> 40) % 65 | (r >> 50) % 65 << 7);
    dut.settle();
    const std::uint32_t control = dut->cfg_on | dut->cfg_exact << 1 | dut->cfg_literal << 2 |
                                  dut->cfg_bound << 8 | static_cast<std::uint32_t>(dut->cfg_dscp) << 16;
    BENCH_CHECK(control == model.control && dut->cfg_min_bytes == model.least);
    const bool wrote = dut->s_axil_awvalid && dut->s_axil_awready,
               read = dut->s_axil_arvalid && dut->s_axil_arready;
    BENCH_CHECK(wrote == (dut->s_axil_wvalid && dut->s_axil_wready));
    // Answers come in order, one for each, and stay until they are taken.
    BENCH_CHECK(dut->s_axil_bvalid == !answers.empty() && dut->s_axil_rvalid == !values.empty());
    if (dut->s_axil_bvalid) {
      BENCH_CHECK(dut->s_axil_bresp == (answers.front() ? 0 : 2));
      if (dut->s_axil_bready) answers.pop_front();
    }
    if (dut->s_axil_rvalid) {
      const auto [known, value] = values.front();
      BENCH_CHECK(dut->s_axil_rresp == (known ? 0 : 2) && (!known || dut->s_axil_rdata == value));
      if (dut->s_axil_rready) values.pop_front();
    }
    if (read) {
      values.push_back(model.read(dut->s_axil_araddr));
      ++reads;
    }
    if (wrote) {
      answers.push_back(model.write(dut->s_axil_awaddr, dut->s_axil_wdata, dut->s_axil_wstrb));
      ++writes;
      refused += !answers.back();
    }
    for (unsigned d = 0; d < 2; ++d) {
      for (unsigned k = 0; k < 5; ++k) model.counts[7 * d + k] += dut->events >> (5 * d + k) & 1U;
      model.counts[7 * d + 5] += dut->bytes_in >> (7 * d) & 127U;
      model.counts[7 * d + 6] += dut->bytes_out >> (7 * d) & 127U;
    }
    dut.edge();
    if (wrote) dut->s_axil_awvalid = dut->s_axil_wvalid = 0;
    if (read) dut->s_axil_arvalid = 0;
  }
  BENCH_CHECK(writes > 1000 && refused > 100 && writes - refused > 100 && reads > 1000);
  std::printf("card_regs: %llu writes (%llu refused), %llu reads\n", static_cast<unsigned long long>(writes),
              static_cast<unsigned long long>(refused), static_cast<unsigned long long>(reads));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
