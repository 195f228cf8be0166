// SPDX-License-Identifier: Apache-2.0
// parse: says of each frame what the model of frames.h says, of cut and damaged frames too, in the cycles stated.
#include "Vparse.h"
#include "mutants.h"
#include "streams.h"

namespace bench {
namespace {

using Model = Vparse;
constexpr std::size_t kBeat = sizeof(std::decay_t<decltype(Model::s_data)>);

void check(Dut<Model>& dut, const Bytes& f) {
  const auto h = headers(f);
  BENCH_CHECK(dut->plain == !h.has_value());
  if (!h) return;
  BENCH_CHECK(dut->is_packed == h->packed() && dut->is_v6 == h->v6 && dut->is_udp == h->udp &&
              dut->dscp == h->dscp);
  BENCH_CHECK(dut->l3 == h->l3 && dut->l4 == h->l4 && dut->payload == h->payload && dut->ip_end == h->end);
  BENCH_CHECK(dut->ip_length == word(f, h->l3 + (h->v6 ? 4 : 2)));
  BENCH_CHECK(dut->hop_word == word(f, h->l3 + (h->v6 ? 6 : 8)));
  BENCH_CHECK(dut->ip_checksum == (h->v6 ? 0 : word(f, h->l3 + 10)));
  BENCH_CHECK(dut->l4_checksum == word(f, h->sum_at()));
  if (!h->packed()) return;
  BENCH_CHECK(dut->shim == (word(f, h->payload) << 16 | word(f, h->payload + 2)));
  BENCH_CHECK(dut->shim_checksum == word(f, h->payload + 4));
}

int run(int argc, char** argv) {
  const Args a = args(argc, argv);
  Dut<Model> dut(a);
  dut.reset();
  Random random(a.seed);
  CardConfig c;
  std::deque<Bytes> gone;  // whose verdict is to come
  Bytes now;
  std::size_t at = 0;
  std::uint64_t frames = 0, plain = 0, packed = 0, head_at = 0, slowest = 0;
  bool shown = false;
  Pause in_pause(Pause::kNever, 1), out_pause(Pause::kNever, 2);
  for (int quiet = 0; frames < std::max<std::uint64_t>(20000, a.floats / 50);) {
    if (random() % 2000 == 0) {
      in_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
      out_pause = Pause(static_cast<Pause::Kind>(random() % Pause::kKinds), random());
    }
    if (now.empty()) {
      const Bytes f = some_frame(random, c, true);
      const Outcome packs = pack(f, c);
      now = random() % 4 == 0 ? mutant(random, packs.frame) : packs.frame;
      if (now.size() > 600) now.resize(200 + random() % 400);
      at = 0;
      gone.push_back(now);
    }
    dut.settle();
    const std::size_t n = std::min(kBeat, now.size() - at);
    const std::uint64_t keep = n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
    dut->s_valid = dut->can_take && !in_pause.now();
    put(dut->s_data, now.data() + at, n);
    put(dut->s_keep, &keep, 8);
    dut->s_last = at + n == now.size();
    dut->ready = !out_pause.now();
    dut.settle();
    if (dut->s_valid) {
      const bool has_head = at < 192;
      at += n;
      if (has_head && (at >= 192 || at == now.size())) head_at = dut.cycles();
    }
    if (dut->valid) {
      BENCH_CHECK(!gone.empty());
      check(dut, gone.front());
      if (!shown) slowest = std::max(slowest, dut.cycles() - head_at);
      shown = !dut->ready;
      if (dut->ready) {
        plain += dut->plain;
        packed += !dut->plain && dut->is_packed;
        gone.pop_front();
        ++frames;
      }
      quiet = 0;
    } else {
      quiet = dut->s_valid ? 0 : quiet + 1;
    }
    BENCH_CHECK(quiet < 1000);
    const bool ends = dut->s_valid && dut->s_last;
    dut.edge();
    if (ends) now.clear();
  }
  BENCH_CHECK(plain > frames / 20 && packed > frames / 20);
  std::printf("parse, %zu bits: %llu frames, %llu plain, %llu packed; a verdict after at most %llu cycles\n",
              8 * kBeat, static_cast<unsigned long long>(frames), static_cast<unsigned long long>(plain),
              static_cast<unsigned long long>(packed), static_cast<unsigned long long>(slowest));
  BENCH_CHECK(slowest <= 14);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) { return bench::run(argc, argv); }
