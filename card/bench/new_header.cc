// SPDX-License-Identifier: Apache-2.0
// new_header: words of random headers against sums of whole pseudo-headers, six cycles after they are there.
#include "Vnew_header.h"
#include "streams.h"

namespace bench {
namespace {

constexpr bool kUnpacks = std::string_view(BENCH_VARIANT) == "unpacks";

// One's complement of 16 bits; 0 is 0xffff but where all words are 0.
std::uint32_t sum(std::initializer_list<std::uint32_t> words) {
  std::uint64_t all = 0;
  for (const std::uint32_t w : words) all += w & 0xffff;
  while (all > 0xffff) all = (all & 0xffff) + (all >> 16);
  return static_cast<std::uint32_t>(all);
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Vnew_header> dut(a);
  Random random(a.seed);
  std::uint64_t right = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t r = random(), s = random(), t = random();
    const bool v6 = r & 1, udp = r & 2;
    const auto l4 = static_cast<std::uint32_t>(34 + (r >> 8) % 40), payload = l4 + (udp ? 8 : 20);
    const auto bytes = static_cast<std::uint32_t>((r >> 16) % 9000),
               made = static_cast<std::uint32_t>((r >> 32) % 9000);
    const auto protocol = static_cast<std::uint32_t>((r >> 48) & 0xff),
               other = static_cast<std::uint32_t>(r >> 56);
    const auto ip_length = static_cast<std::uint32_t>(s & 0xffff),
               ip_sum = static_cast<std::uint32_t>(s >> 16 & 0xffff);
    std::uint32_t l4_sum = static_cast<std::uint32_t>(s >> 32 & 0xffff);
    if (i % 8 == 0) l4_sum = 0;
    const auto head = static_cast<std::uint32_t>(s >> 48), made_sum = static_cast<std::uint32_t>(t & 0xffff);
    const auto shim = static_cast<std::uint32_t>(t >> 32);
    const std::uint32_t was = bytes + (payload - l4), is = made + (payload - l4) + (kUnpacks ? 0 : 8);
    // Half of the frames hold.
    std::uint32_t pay = static_cast<std::uint32_t>(t >> 16 & 0xffff);
    if (i % 2) pay = ~sum({head, protocol, was}) & 0xffff;
    const std::uint32_t now = kUnpacks ? (udp ? 17 : 6) : (udp ? 254 : 253);
    dut->v6 = v6;
    dut->udp = udp;
    dut->l4 = static_cast<CData>(l4);
    dut->payload = static_cast<CData>(payload);
    dut->ip_end = static_cast<SData>(payload + bytes);
    dut->ip_length = static_cast<SData>(ip_length);
    dut->hop = static_cast<SData>(v6 ? protocol << 8 | other : other << 8 | protocol);
    dut->ip_sum = static_cast<SData>(ip_sum);
    dut->l4_sum = static_cast<SData>(l4_sum);
    dut->new_shim = shim;
    dut->shim_sum = static_cast<IData>(i % 3 == 0 ? 0x10000 | (shim & 0xffff) : shim & 0xffff);
    dut->made_total = static_cast<SData>(made);
    dut->head_sum = static_cast<SData>(head);
    dut->pay_sum = static_cast<SData>(pay);
    dut->made_sum = static_cast<SData>(made_sum);
    for (int k = 0; k < 6; ++k) dut.step();
    dut.settle();
    const bool no_sum = udp && !v6 && l4_sum == 0;
    BENCH_CHECK(dut->checks == (no_sum || sum({head, pay, protocol, was}) == 0xffff));
    right += dut->checks;
    const std::uint32_t new_length = (ip_length + is - was) & 0xffff;
    BENCH_CHECK(dut->new_l4_bytes == is && dut->new_ip_length == new_length);
    BENCH_CHECK(dut->new_hop == (v6 ? now << 8 | other : other << 8 | now));
    BENCH_CHECK(dut->new_ip_sum == (~sum({~ip_sum, ~ip_length, new_length, ~protocol, now}) & 0xffff));
    std::uint32_t want = sum({head, ~l4_sum, made_sum, now, is});
    if (udp) want = sum({want, ~was, is});
    if (!kUnpacks) want = sum({want, shim >> 16, shim, l4_sum});
    want = udp && want == 0xffff ? 0xffff : ~want & 0xffff;
    if (kUnpacks && i % 3 == 0)
      want = shim & 0xffff;
    else if (no_sum)
      want = 0;
    BENCH_CHECK(dut->new_l4_sum == want);
  }
  std::printf("new_header, %s: 20000 headers, %llu of which hold\n", kUnpacks ? "to host" : "to wire",
              static_cast<unsigned long long>(right));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
