// SPDX-License-Identifier: Apache-2.0
// bench_sparse: one rank of rounds that compare ways to reduce sparse gradients, without an engine; started by
// bench/sparse_reduce.py, once per rank. Two of them cut the index space into a chunk of equally many values per rank,
// which owns it:
//
//   server   each rank encodes every chunk by itself, so each owner gets the largest k/N of its chunk, from each rank
//   sparse   each rank selects the largest k (N-1)/N of all values that it does not own, and each owner gets those that
//            fall into its chunk: fixed chunks, as Ok-Topk (Li and Hoefler, PPoPP 2022) has between two moves of its
//            borders
//
// From there on these are the same: the owner adds what came to its own values, sends the largest k/N of the sums to
// all, and keeps the rest. `sparse=A@B` selects by A, and re-selects by B. The third:
//
//   gather   each rank sends its largest k to all, and all add them up
//
// What a rank does not send stays in its residual. Frames are sealed and checked, all ranks wait for each other before
// a round and after it, and what is timed is all of that but the gradient.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "codec/sparse/sparse.h"
#include "tithe/codec.h"
#include "tithe/connect.h"
#include "tithe/frame.h"
#include "tithe/spec.h"

namespace tithe {
namespace {

constexpr std::size_t kRow = 256;   // values of a row of an embedding
constexpr double kHotRows = 0.05;   // of all rows
constexpr float kColdScale = 0.1F;  // of what the other rows hold, where they hold anything
constexpr Channel kUp = 1, kDown = 2, kMeet = 3;

// What a rank's gradient is like; the same rows are hot on all ranks.
std::vector<float> gradient(std::string_view shape, std::size_t n, Rank rank) {
  std::mt19937 rows(7), rng(100U + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::bernoulli_distribution drawn(kHotRows);
  std::vector<float> out(n);
  bool hot = false;
  for (std::size_t i = 0; i < n; ++i) {
    if (i % kRow == 0)
      hot = shape == "even" ||
            (shape == "rows" ? drawn(rows) : static_cast<double>(i) < kHotRows * static_cast<double>(n));
    if (hot)
      out[i] = normal(rng);
    else if (shape == "head_and_noise")
      out[i] = kColdScale * normal(rng);
  }
  return out;
}

class Ranks {
 public:
  Ranks(std::unique_ptr<Transport> transport, std::size_t n) : transport_(std::move(transport)), n_(n) {}
  Rank me() const { return transport_->rank(); }
  int world() const { return transport_->world(); }
  std::size_t first(int c) const {
    return n_ * static_cast<std::size_t>(c) / static_cast<std::size_t>(world());
  }
  std::size_t size(int c) const { return first(c + 1) - first(c); }
  Rank after(int i) const { return (me() + i) % world(); }
  std::uint64_t sent() const { return transport_->bytes_sent(); }

  Status send(Rank to, Channel channel, ByteView bytes) {
    ++open_;
    return transport_->send(to, channel, bytes, kSends);
  }
  Status recv(Rank from, Channel channel, Bytes into) {
    ++open_;
    return transport_->recv(from, channel, into,
                            static_cast<OpId>(from) + static_cast<OpId>(world()) * channel);
  }
  // Takes completions until `stop` says so; got(channel, from, bytes) is told of what was received.
  template <class Got, class Stop>
  Status run(const Got& got, const Stop& stop) {
    std::array<Completion, 64> done;
    while (!stop()) {
      const std::size_t count = transport_->poll(done, std::chrono::seconds(10));
      if (count == 0) return {Code::kTimeout, "nothing came for 10 s"};
      for (std::size_t k = 0; k < count; ++k) {
        TITHE_TRY(done[k].status);
        --open_;
        if (done[k].op == kSends) continue;
        const auto ranks = static_cast<OpId>(world());
        TITHE_TRY(got(static_cast<Channel>(done[k].op / ranks), static_cast<Rank>(done[k].op % ranks),
                      done[k].bytes));
      }
    }
    return {};
  }
  bool idle() const { return open_ == 0; }
  Status meet() {
    std::vector<std::uint8_t> byte(static_cast<std::size_t>(world()));
    for (int i = 1; i < world(); ++i) {
      TITHE_TRY(recv(after(i), kMeet, Bytes(byte).subspan(static_cast<std::size_t>(after(i)), 1)));
      TITHE_TRY(send(after(i), kMeet, Bytes(byte).subspan(static_cast<std::size_t>(me()), 1)));
    }
    return run([](Channel, Rank, std::size_t) { return Status{}; }, [&] { return idle(); });
  }

 private:
  static constexpr OpId kSends = ~OpId{0};
  std::unique_ptr<Transport> transport_;
  std::size_t n_;
  std::size_t open_ = 0;
};

enum class How : std::uint8_t { kServer, kSparse, kGather };

Result<How> how_of(std::string_view name) {
  if (name == "server") return How::kServer;
  if (name == "sparse") return How::kSparse;
  if (name == "gather") return How::kGather;
  return Status(Code::kInvalid, fmt::format("way '{}': server, sparse or gather", name));
}

// One of the ways, with a codec at a ratio.
class Way {
 public:
  Way(Ranks& ranks, How how, const Spec& up, const Spec& spec, std::size_t n)
      : ranks_(ranks), up_spec_(up), spec_(spec), how_(how), n_(n), residual_(n), next_(n), result_(n) {
    call_.settings = spec.settings;
    for (std::size_t i = 0; how == How::kSparse && i < up.codec->params.size(); ++i)
      if (up.codec->params[i].name == "ratio") up_spec_.settings.value[i] *= 1 - 1.0 / ranks.world();
    scratch_.resize(
        std::max(spec.codec->scratch(call_.settings, n), up.codec->scratch(up_spec_.settings, n)) + 64);
    const auto at = reinterpret_cast<std::uintptr_t>(scratch_.data());
    call_.scratch = Bytes(scratch_).subspan((64 - at % 64) % 64, scratch_.size() - 64);
    payload_.resize(bound(up_spec_, n));
    for (int r = 0; r < ranks.world(); ++r) {
      up_.emplace_back(kFrameHeaderBytes + std::max(bound(up_spec_, n), bound(spec_, ranks.size(0) + 1)));
      from_.emplace_back(up_.back().size());
      down_.emplace_back(kFrameHeaderBytes + bound(spec_, ranks.size(r)));
    }
    arrived_.resize(up_.size());
  }

  const std::vector<float>& result() const { return result_; }

  // `grad` is as it was when this returns.
  Status round(std::vector<float>& grad) {
    if (how_ == How::kGather) return gather(grad);
    std::size_t ups = 0;
    const std::size_t first = ranks_.first(ranks_.me());
    sums_.resize(ranks_.size(ranks_.me()));
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = grad[first + i] + residual_[first + i];
    for (int i = 1; i < ranks_.world(); ++i) {
      TITHE_TRY(ranks_.recv(ranks_.after(i), kUp, from_[at(ranks_.after(i))]));
      TITHE_TRY(ranks_.recv(ranks_.after(i), kDown, down_[at(ranks_.after(i))]));
    }
    TITHE_TRY(how_ == How::kSparse ? send_whole(grad) : send_chunks(grad));
    const auto got = [&](Channel channel, Rank from, std::size_t bytes) -> Status {
      if (channel == kDown) return store(from, ByteView(down_[at(from)]).first(bytes));
      const Result<ParsedFrame> frame = parse_frame(ByteView(from_[at(from)]).first(bytes));
      if (!frame.ok()) return frame.status();
      arrived_[at(from)] = frame->payload;
      ++ups;
      return {};
    };
    TITHE_TRY(ranks_.run(got, [&] { return ups + 1 == at(ranks_.world()); }));
    TITHE_TRY(reduce());
    TITHE_TRY(ranks_.run(got, [&] { return ranks_.idle(); }));
    residual_.swap(next_);
    return {};
  }

 private:
  static std::size_t at(Rank r) { return static_cast<std::size_t>(r); }
  static std::size_t bound(const Spec& spec, std::size_t n) {
    return spec.codec->phases[0].bound(spec.settings, n);
  }
  const Impl& impl() const { return spec_.codec->best(this_machine()); }
  Carry carry(const float* grad, std::size_t first, std::size_t n) {
    return {grad + first, residual_.data() + first, next_.data() + first, n};
  }
  Result<std::size_t> seal(Bytes frame, std::size_t values, std::size_t payload) const {
    TITHE_TRY(seal_frame({.codec = id_of(*spec_.codec), .values = values, .payload_bytes = payload}, frame));
    return kFrameHeaderBytes + payload;
  }

  Status gather(const std::vector<float>& grad) {
    const Bytes frame = up_[0];
    for (int i = 1; i < ranks_.world(); ++i)
      TITHE_TRY(ranks_.recv(ranks_.after(i), kUp, from_[at(ranks_.after(i))]));
    const auto made = impl().encode(call_, carry(grad.data(), 0, n_), frame.subspan(kFrameHeaderBytes));
    if (!made.ok()) return made.status();
    const auto bytes = seal(frame, n_, made->bytes);
    if (!bytes.ok()) return bytes.status();
    for (int i = 1; i < ranks_.world(); ++i)
      TITHE_TRY(ranks_.send(ranks_.after(i), kUp, frame.first(*bytes)));
    arrived_[at(ranks_.me())] = frame.first(*bytes).subspan(kFrameHeaderBytes);
    const auto got = [&](Channel, Rank from, std::size_t size) -> Status {
      const Result<ParsedFrame> parsed = parse_frame(ByteView(from_[at(from)]).first(size));
      if (!parsed.ok()) return parsed.status();
      arrived_[at(from)] = parsed->payload;
      return {};
    };
    TITHE_TRY(ranks_.run(got, [&] { return ranks_.idle(); }));
    residual_.swap(next_);
    return impl().decode(call_, arrived_, {}, result_);
  }

  Status send_chunks(const std::vector<float>& grad) {
    for (int i = 1; i < ranks_.world(); ++i) {
      const Rank to = ranks_.after(i);
      const Bytes frame = up_[at(to)];
      const auto made = impl().encode(call_, carry(grad.data(), ranks_.first(to), ranks_.size(to)),
                                      frame.subspan(kFrameHeaderBytes));
      if (!made.ok()) return made.status();
      const auto bytes = seal(frame, ranks_.size(to), made->bytes);
      if (!bytes.ok()) return bytes.status();
      TITHE_TRY(ranks_.send(to, kUp, frame.first(*bytes)));
    }
    return {};
  }

  // One selection; its pairs are in order of index, so those of a chunk lie together.
  Status send_whole(std::vector<float>& grad) {
    const auto mine = std::span(grad).subspan(ranks_.first(ranks_.me()), sums_.size());
    own_.assign(mine.begin(), mine.end());
    // What this rank owns it does not send: nothing is to be selected there.
    std::fill(mine.begin(), mine.end(), 0.0F);
    std::fill_n(residual_.begin() + (mine.data() - grad.data()), mine.size(), 0.0F);
    Call call = call_;
    call.settings = up_spec_.settings;
    const auto made = up_spec_.codec->best(this_machine()).encode(call, carry(grad.data(), 0, n_), payload_);
    std::copy(own_.begin(), own_.end(), mine.begin());
    if (!made.ok()) return made.status();
    if (sparse::is_packed(payload_))
      return {Code::kUnsupported, "sparse: plain payloads alone can be cut here"};
    const sparse::Pairs pairs{ByteView(payload_).first(made->bytes)};
    for (int i = 1; i < ranks_.world(); ++i) {
      const Rank to = ranks_.after(i);
      const std::size_t begin = position(pairs, ranks_.first(to)),
                        end = position(pairs, ranks_.first(to + 1));
      std::uint8_t* out = up_[at(to)].data() + kFrameHeaderBytes;
      wire::put(out, static_cast<std::uint32_t>(end - begin));
      for (std::size_t j = begin; j < end; ++j)
        wire::put(out + sparse::kHead + 4 * (j - begin),
                  static_cast<std::uint32_t>(pairs.index(j) - ranks_.first(to)));
      if (end > begin)
        std::memcpy(out + sparse::kHead + 4 * (end - begin), pairs.values() + 4 * begin, 4 * (end - begin));
      const auto bytes = seal(up_[at(to)], ranks_.size(to), sparse::bytes(end - begin));
      if (!bytes.ok()) return bytes.status();
      TITHE_TRY(ranks_.send(to, kUp, Bytes(up_[at(to)]).first(*bytes)));
    }
    return {};
  }
  static std::size_t position(const sparse::Pairs& pairs, std::size_t index) {
    std::size_t low = 0, high = pairs.count();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (pairs.index(middle) < index)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  // The chunk that this rank owns: what all sent, its own values whole; the largest of the sums go to everybody.
  Status reduce() {
    const Rank me = ranks_.me();
    const std::size_t first = ranks_.first(me), n = ranks_.size(me);
    std::vector<ByteView> payloads;
    for (Rank r = 0; r < ranks_.world(); ++r)
      if (r != me) payloads.push_back(arrived_[at(r)]);
    // A whole selection may put more into one chunk than a payload of the chunk holds: merged without that bound.
    if (how_ == How::kSparse) {
      for (const ByteView p : payloads) TITHE_TRY(sparse::check("sparse", n, n, p));
      sparse::decode_simd(payloads, {.base = sums_.data()}, sums_);
    } else {
      TITHE_TRY(impl().decode(call_, payloads, {.base = sums_.data()}, sums_));
    }
    const Bytes frame = down_[at(me)];
    const auto made = impl().encode(call_, {sums_.data(), nullptr, next_.data() + first, n},
                                    frame.subspan(kFrameHeaderBytes));
    if (!made.ok()) return made.status();
    const auto bytes = seal(frame, n, made->bytes);
    if (!bytes.ok()) return bytes.status();
    for (int i = 1; i < ranks_.world(); ++i)
      TITHE_TRY(ranks_.send(ranks_.after(i), kDown, frame.first(*bytes)));
    return store(me, frame.first(*bytes));
  }

  Status store(Rank owner, ByteView bytes) {
    const Result<ParsedFrame> frame = parse_frame(bytes);
    if (!frame.ok()) return frame.status();
    return impl().decode(call_, {&frame->payload, 1}, {},
                         std::span(result_).subspan(ranks_.first(owner), ranks_.size(owner)));
  }

  Ranks& ranks_;
  Spec up_spec_, spec_;  // of what goes to owners, by sparse, and of all else
  How how_;
  std::size_t n_;
  Call call_;
  std::vector<float> residual_, next_, result_, sums_, own_;
  std::vector<std::uint8_t> scratch_, payload_;
  std::vector<std::vector<std::uint8_t>> up_, from_, down_;
  std::vector<ByteView> arrived_;
};

// Of the energy of the ranks' sum, what reached the ranks in a first round.
double delivered(std::string_view shape, const std::vector<float>& result, int world) {
  std::vector<float> sum(result.size());
  for (Rank r = 0; r < world; ++r) {
    const std::vector<float> g = gradient(shape, result.size(), r);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += g[i];
  }
  double missing = 0, all = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    missing += (sum[i] - result[i]) * static_cast<double>(sum[i] - result[i]);
    all += sum[i] * static_cast<double>(sum[i]);
  }
  return 1 - missing / all;
}

Status compare(std::string_view transport, const std::vector<std::string>& shapes,
               const std::vector<std::string>& ways, std::size_t n, int rounds, int warm) {
  const Result<Launch> launch = launch_from_environment();
  if (!launch.ok()) return launch.status();
  auto opened = open_transport(transport, connect_options(*launch));
  if (!opened.ok()) return opened.status();
  Ranks ranks(std::move(*opened), n);
  nlohmann::ordered_json out;
  for (const std::string& shape : shapes) {
    std::vector<Way> all;
    for (const std::string& way : ways) {
      const std::size_t at = way.find('='), down_at = way.find('@');
      const Result<How> how = how_of(std::string_view(way).substr(0, at));
      if (!how.ok()) return how.status();
      const Result<Spec> up = parse_spec(std::string_view(way).substr(0, down_at).substr(at + 1));
      if (!up.ok()) return up.status();
      const Result<Spec> down = down_at == way.npos ? up : parse_spec(way.substr(down_at + 1));
      if (!down.ok()) return down.status();
      all.emplace_back(ranks, *how, *up, *down, n);
    }
    std::vector<float> grad = gradient(shape, n, ranks.me());
    for (int turn = 0; turn < warm + rounds; ++turn)
      for (std::size_t w = 0; w < all.size(); ++w) {
        TITHE_TRY(ranks.meet());
        const std::uint64_t before = ranks.sent();
        const auto begin = std::chrono::steady_clock::now();
        TITHE_TRY(all[w].round(grad));
        TITHE_TRY(ranks.meet());
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        auto& row = out[shape][ways[w]];
        if (turn == 0 && ranks.me() == 0) row["delivered"] = delivered(shape, all[w].result(), ranks.world());
        if (turn < warm) continue;
        row["seconds"].push_back(took.count());
        row["bytes"] = ranks.sent() - before;
      }
  }
  if (ranks.me() == 0) fmt::print("{}\n", out.dump());
  return {};
}

}  // namespace
}  // namespace tithe

int main(int argc, char** argv) {
  CLI::App app("one rank of bench/sparse_reduce.py");
  std::string transport = "tcp";
  std::vector<std::string> shapes{"even"}, ways{"server=topk:ratio=0.01", "sparse=topk:ratio=0.01"};
  std::size_t n = 1'000'000;
  int rounds = 7, warm = 2;
  app.add_option("--transport", transport)->capture_default_str();
  app.add_option("--shape", shapes, "even, rows, head, head_and_noise; once for each")
      ->allow_extra_args(false);
  app.add_option("--way", ways, "server=CODEC, sparse=CODEC or gather=CODEC; once for each")
      ->allow_extra_args(false);
  app.add_option("--n", n, "values")->capture_default_str();
  app.add_option("--rounds", rounds)->capture_default_str();
  app.add_option("--warm", warm)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const tithe::Status s = tithe::compare(transport, shapes, ways, n, rounds, warm);
  if (!s.ok()) fmt::print(stderr, "bench_sparse: {}\n", s.what());
  return s.ok() ? 0 : 1;
}
