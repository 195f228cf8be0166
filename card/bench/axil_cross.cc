// SPDX-License-Identifier: Apache-2.0
// axil_cross: registers behind another clock, whose five channels pause by themselves: every write is made once, in
// order, and answered with its own response; every read gives what was there.
#include <optional>

#include "Vaxil_cross.h"
#include "clocks.h"

namespace bench {
namespace {

// 256 registers; what ends in 3 is refused. Addresses and data of writes are taken one by one.
struct Registers {
  explicit Registers(Vaxil_cross& dut) : dut_(dut) {
    dut.m_axil_awready = dut.m_axil_wready = dut.m_axil_arready = dut.m_axil_bvalid = dut.m_axil_rvalid = 0;
  }
  void before(Pause* pauses) {
    dut_.m_axil_awready = !address_ && !pauses[0].now();
    dut_.m_axil_wready = !data_ && !pauses[1].now();
    dut_.m_axil_arready = !read_ && !pauses[2].now();
    if (address_ && data_ && !dut_.m_axil_bvalid && !pauses[3].now()) {
      const auto [at, value] = std::pair(*address_, *data_);
      if (at % 4 != 3) all[at] = value;
      dut_.m_axil_bresp = at % 4 == 3 ? 2 : 0;
      dut_.m_axil_bvalid = 1;
      ++writes;
    }
    if (read_ && !dut_.m_axil_rvalid && !pauses[4].now()) {
      dut_.m_axil_rdata = all[*read_];
      dut_.m_axil_rresp = *read_ % 4 == 3 ? 2 : 0;
      dut_.m_axil_rvalid = 1;
    }
  }
  // Between the inputs and the edge, and behind the edge.
  void settled() {
    goes_[0] = dut_.m_axil_awvalid && dut_.m_axil_awready;
    goes_[1] = dut_.m_axil_wvalid && dut_.m_axil_wready;
    goes_[2] = dut_.m_axil_arvalid && dut_.m_axil_arready;
    goes_[3] = dut_.m_axil_bvalid && dut_.m_axil_bready;
    goes_[4] = dut_.m_axil_rvalid && dut_.m_axil_rready;
    if (goes_[0]) address_ = dut_.m_axil_awaddr;
    if (goes_[1]) data_ = dut_.m_axil_wdata ^ dut_.m_axil_wstrb;
    if (goes_[2]) read_ = dut_.m_axil_araddr;
  }
  void after() {
    if (goes_[3]) dut_.m_axil_bvalid = 0, address_.reset(), data_.reset();
    if (goes_[4]) dut_.m_axil_rvalid = 0, read_.reset();
    std::fill(std::begin(goes_), std::end(goes_), false);
  }
  std::uint32_t all[256] = {};
  std::uint64_t writes = 0;

 private:
  Vaxil_cross& dut_;
  std::optional<std::uint32_t> address_, data_, read_;
  bool goes_[5] = {};
};

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  seed() = a.seed;
  Verilated::randReset(2);
  Verilated::randSeed(static_cast<int>(a.seed));
  Vaxil_cross dut;
  Random random(a.seed);
  Registers there(dut);
  dut.s_axil_awvalid = dut.s_axil_wvalid = dut.s_axil_arvalid = dut.s_axil_bready = dut.s_axil_rready = 0;
  dut.s_rst = dut.m_rst = 1;
  Clocks clocks({&dut.s_clk, &dut.m_clk}, random);
  while (clocks.edges() < 60) clocks.edge([&] { dut.eval(); }, [](std::size_t) {}, [](std::size_t) {});
  dut.s_rst = dut.m_rst = 0;
  std::vector<Pause> pauses(10, Pause(Pause::kNever, 1));
  std::uint32_t model[256] = {};
  std::optional<std::pair<std::uint32_t, std::uint32_t>> written;  // waits for its response
  int reading = -1;                                                // waits for its value; -1: nothing
  std::uint32_t before_it = 0;                                     // what `written` takes the place of
  std::vector<std::uint32_t> possible;  // values of the address being read, while a write to it is in flight
  std::uint64_t writes = 0, refused = 0, reads = 0, quiet = 0;
  bool goes[5] = {};
  const auto before = [&](std::size_t side) {
    if (side == 1) {
      there.before(&pauses[5]);
      dut.eval();
      return there.settled();
    }
    if (!dut.s_axil_awvalid && !written && !pauses[0].now()) {
      dut.s_axil_awaddr = static_cast<CData>(random() % 256);
      dut.s_axil_awvalid = 1;
    }
    if (!dut.s_axil_wvalid && !written && !pauses[1].now()) {
      dut.s_axil_wdata = static_cast<IData>(random());
      dut.s_axil_wstrb = static_cast<CData>(random() % 16);
      dut.s_axil_wvalid = 1;
    }
    if (!dut.s_axil_arvalid && reading < 0 && !pauses[2].now()) {
      dut.s_axil_araddr = static_cast<CData>(random() % 256);
      dut.s_axil_arvalid = 1;
    }
    dut.s_axil_bready = !pauses[3].now();
    dut.s_axil_rready = !pauses[4].now();
    dut.eval();
    goes[0] = dut.s_axil_awvalid && dut.s_axil_awready;
    goes[1] = dut.s_axil_arvalid && dut.s_axil_arready;
    goes[2] = dut.s_axil_bvalid && dut.s_axil_bready;
    goes[3] = dut.s_axil_rvalid && dut.s_axil_rready;
    BENCH_CHECK(goes[0] == (dut.s_axil_wvalid && dut.s_axil_wready));
    if (goes[2]) {
      BENCH_CHECK(written && dut.s_axil_bresp == (written->first % 4 == 3 ? 2 : 0));
      ++writes;
      refused += dut.s_axil_bresp == 2;
      written.reset();
    }
    if (goes[3]) {
      BENCH_CHECK(reading >= 0 && dut.s_axil_rresp == (reading % 4 == 3 ? 2 : 0));
      BENCH_CHECK(std::find(possible.begin(), possible.end(), dut.s_axil_rdata) != possible.end());
      ++reads;
      reading = -1;
    }
    if (goes[0]) {
      written = std::pair(std::uint32_t{dut.s_axil_awaddr}, dut.s_axil_wdata ^ dut.s_axil_wstrb);
      before_it = model[written->first];
      if (written->first % 4 != 3) model[written->first] = written->second;
      if (reading == static_cast<int>(written->first)) possible.push_back(model[written->first]);
    }
    if (goes[1]) {
      reading = dut.s_axil_araddr;
      possible = {model[dut.s_axil_araddr]};
      if (written && written->first == dut.s_axil_araddr) possible.push_back(before_it);
    }
  };
  const auto after = [&](std::size_t side) {
    if (side == 1) return there.after();
    if (goes[0]) dut.s_axil_awvalid = dut.s_axil_wvalid = 0;
    if (goes[1]) dut.s_axil_arvalid = 0;
    quiet = goes[0] || goes[1] || goes[2] || goes[3] ? 0 : quiet + 1;
    std::fill(std::begin(goes), std::end(goes), false);
  };
  while (writes < 10000 || reads < 3000) {
    if (clocks.edges() % 5000 == 0) {
      clocks.change();
      for (Pause& p : pauses) p = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    }
    clocks.edge([&] { dut.eval(); }, before, after);
    BENCH_CHECK(quiet < 8000);
  }
  BENCH_CHECK(there.writes - writes <= 1 && refused > 1000);
  std::printf("axil_cross: %llu writes (%llu refused), %llu reads\n", static_cast<unsigned long long>(writes),
              static_cast<unsigned long long>(refused), static_cast<unsigned long long>(reads));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
