// SPDX-License-Identifier: Apache-2.0
// frame_out: judged frames leave whole, or with new words in their headers, the shim and what was made of their
// payload, or not at all; its three inputs and its output pause by themselves.
#include "Vframe_out.h"
#include "frames.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vframe_out;
using Data = std::decay_t<decltype(Model::m_axis_tdata)>;
using Out = Sink<Data, std::decay_t<decltype(Model::m_axis_tkeep)>, IData>;
constexpr std::size_t kBeat = sizeof(Data);
constexpr bool kShims = std::string_view(BENCH_VARIANT) == "shim";

// Beats of a packet on a port that counts bytes.
struct Feed {
  std::deque<Bytes> packets;
  std::size_t at = 0;
  Pause pause{Pause::kNever, 1};
  bool valid = false;
  template <typename Bits>
  void before(Data& data, Bits& bytes, CData& last, CData& valid_port) {
    if (!valid && !packets.empty() && !pause.now()) {
      const std::size_t n = std::min(kBeat, packets.front().size() - at);
      put(data, packets.front().data() + at, n);
      bytes = static_cast<Bits>(n);
      last = at + n == packets.front().size();
      valid = true;
    }
    valid_port = valid;
  }
  void went() {
    valid = false;
    at += kBeat;
    if (at >= packets.front().size()) {
      packets.pop_front();
      at = 0;
    }
  }
};

struct Verdict {
  bool changes, drops, v6, udp;
  std::size_t l3, l4, payload;
  unsigned ip_length, hop, ip_sum, l4_sum, l4_bytes;
  std::uint64_t shim;
};

Bytes changed(Bytes f, const Verdict& v, const Bytes& coded) {
  f.resize(v.payload);
  set_word(f, v.l3 + (v.v6 ? 4 : 2), v.ip_length);
  set_word(f, v.l3 + (v.v6 ? 6 : 8), v.hop);
  if (!v.v6) set_word(f, v.l3 + 10, v.ip_sum);
  if (v.udp) set_word(f, v.l4 + 4, v.l4_bytes);
  set_word(f, v.l4 + (v.udp ? 6 : 16), v.l4_sum);
  if (kShims)
    for (int i = 56; i >= 0; i -= 8) f.push_back(static_cast<std::uint8_t>(v.shim >> i));
  f.insert(f.end(), coded.begin(), coded.end());
  return f;
}

Bytes some_bytes(Random& random, std::size_t n) {
  Bytes bytes(n);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Model> dut(a);
  Out out(dut->m_axis_tdata, dut->m_axis_tkeep, dut->m_axis_tvalid, dut->m_axis_tready, dut->m_axis_tlast,
          nullptr, Pause(Pause::kNever, 1));
  dut->verdict_valid = dut->raw_valid = dut->coded_valid = 0;
  dut.reset();
  Random random(a.seed);
  std::uint64_t counts[3] = {};
  for (int round = 0; round < 150; ++round) {
    Feed raw, coded;
    std::deque<Verdict> verdicts;
    std::deque<Bytes> want;
    raw.pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    coded.pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    Pause verdict_pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    out.set(Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random()));
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t r = random();
      Verdict v{};
      v.changes = r % 2;
      v.drops = !v.changes && (r >> 8) % 3 == 0;
      v.v6 = (r >> 16) % 2;
      v.udp = (r >> 17) % 2;
      v.l3 = 14 + 4 * ((r >> 20) % 3);
      v.l4 = v.l3 + (v.v6 ? 40 : 20 + 4 * ((r >> 24) % 11));
      v.payload = v.l4 + (v.udp ? 8 : 20 + 4 * ((r >> 28) % 11));
      for (unsigned* word : {&v.ip_length, &v.hop, &v.ip_sum, &v.l4_sum, &v.l4_bytes})
        *word = static_cast<unsigned>(random() % 65536);
      v.shim = random();
      const std::size_t more = (r >> 40) % 3 ? (r >> 44) % 600 : (r >> 44) % 4;
      Bytes f = some_bytes(random, (v.changes ? v.payload + 1 : 1) + more);
      if (v.changes) {
        coded.packets.push_back(some_bytes(random, 1 + random() % (random() % 2 ? 40 : 500)));
        want.push_back(changed(f, v, coded.packets.back()));
      } else if (!v.drops) {
        want.push_back(f);
      }
      ++counts[v.changes ? 1 : v.drops ? 2 : 0];
      raw.packets.push_back(std::move(f));
      verdicts.push_back(v);
    }
    for (int quiet = 0; !want.empty() || !verdicts.empty();) {
      raw.before(dut->raw_data, dut->raw_bytes, dut->raw_last, dut->raw_valid);
      coded.before(dut->coded_data, dut->coded_bytes, dut->coded_last, dut->coded_valid);
      if (!dut->verdict_valid && !verdicts.empty() && !verdict_pause.now()) {
        const Verdict& v = verdicts.front();
        dut->verdict_valid = 1;
        dut->verdict_changes = v.changes;
        dut->verdict_drops = v.drops;
        dut->out_v6 = v.v6;
        dut->out_udp = v.udp;
        dut->l3 = static_cast<CData>(v.l3);
        dut->l4 = static_cast<CData>(v.l4);
        dut->payload = static_cast<CData>(v.payload);
        dut->out_ip_length = static_cast<SData>(v.ip_length);
        dut->out_hop = static_cast<SData>(v.hop);
        dut->out_ip_sum = static_cast<SData>(v.ip_sum);
        dut->out_l4_sum = static_cast<SData>(v.l4_sum);
        dut->out_l4_bytes = static_cast<SData>(v.l4_bytes);
        dut->out_shim = v.shim;
      }
      out.before();
      dut.settle();
      const bool judged = dut->verdict_valid && dut->verdict_ready;
      const bool raw_went = dut->raw_valid && dut->raw_ready,
                 coded_went = dut->coded_valid && dut->coded_ready;
      const bool came = out.after();
      dut.edge();
      if (raw_went) raw.went();
      if (coded_went) coded.went();
      if (judged) {
        dut->verdict_valid = 0;
        verdicts.pop_front();
      }
      while (out.has()) {
        BENCH_CHECK(!want.empty() && out.take().bytes == want.front());
        want.pop_front();
      }
      quiet = raw_went || coded_went || judged || came ? 0 : quiet + 1;
      BENCH_CHECK(quiet < 3000);
    }
    BENCH_CHECK(raw.packets.empty() && coded.packets.empty());
  }
  std::printf("frame_out, %zu bits%s: %llu frames passed, %llu changed, %llu dropped\n", 8 * kBeat,
              kShims ? ", shim" : "", static_cast<unsigned long long>(counts[0]),
              static_cast<unsigned long long>(counts[1]), static_cast<unsigned long long>(counts[2]));
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
