// SPDX-License-Identifier: Apache-2.0
// Measures codecs with several phases. A phase starts from the result of the previous phase on all ranks. So this
// simulates two ranks: both encode, their payloads are combined, and the next phase gets the combined payload.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "advisor/measure/codec_speed.h"
#include "advisor/measure/gradients.h"

namespace tithe::sim {
namespace {

constexpr std::size_t kRanks = 2;

class RankPair {
 public:
  RankPair(const Spec& spec, std::size_t n, std::vector<double>& spread, std::span<const float> own)
      : spec_(spec),
        codec_(*spec.codec),
        impl_(codec_.best(this_machine())),
        n_(n),
        spread_(spread),
        scratch_(codec_.scratch(spec.settings, n)),
        memory_(codec_.memory != nullptr ? codec_.memory(spec.settings, n) : 0),
        next_memory_(memory_.size()),
        out_(n) {
    for (std::size_t r = 0; r < kRanks; ++r) {
      gradient_[r] = gradients_like(own, n, r + 1);
      residual_[r].resize(n);
      left_[r].resize(n);
    }
  }

  // Adds one point to the curves of each phase. `costs` is indexed by phase.
  Status add(std::span<CodecCosts> costs, std::span<double> bytes, std::span<double> bounds) {
    for (std::size_t p = 0; p < codec_.phases.size() && status_.ok(); ++p) {
      begin(p);
      const auto point = [&](Curve& curve, double seconds) {
        curve.points.emplace_back(static_cast<double>(n_), seconds);
      };
      point(costs[p].encode, timed([&] { encode(turn_++ % kRanks); }));
      for (std::size_t r = 0; r < kRanks; ++r) encode(r);
      point(costs[p].merge, merging());
      exchange();
      point(costs[p].store, last_ ? timed([&] { decode(false); }) : 0);
      bytes[p] += static_cast<double>(bytes_[0]);
      bounds[p] += static_cast<double>(codec_.phases[p].bound(spec_.settings, n_));
    }
    return status_;
  }

 private:
  void begin(std::size_t phase) {
    phase_ = &codec_.phases[phase];
    last_ = phase + 1 == codec_.phases.size();
    call_ = {.settings = spec_.settings,
             .phase = static_cast<std::uint8_t>(phase),
             .context = context_,
             .scratch = scratch_.all(),
             .memory = memory_};
    for (std::vector<std::uint8_t>& payload : payload_) payload.resize(phase_->bound(spec_.settings, n_));
  }
  void keep(const Status& s) {
    if (!s.ok() && status_.ok()) status_ = s;
  }

  void encode(std::size_t r) {
    call_.seed = r;
    // The residual is known only after the last phase (feedback/error_feedback.h).
    const bool feedback = !codec_.traits.lossless && spec_.feedback.kind != Feedback::kNone;
    const EncodeInput in{gradient_[r].data(), feedback ? residual_[r].data() : nullptr,
                         feedback && last_ ? left_[r].data() : nullptr, n_};
    const Result<Encoded> done = impl_.encode(call_, in, payload_[r]);
    if (done.ok())
      bytes_[r] = done->bytes;
    else
      keep(done.status());
  }
  void decode(bool merge) {
    const ByteView one = last_ && !merge ? ByteView(combined_) : ByteView(payload_[1]).first(bytes_[1]);
    call_.next_memory = merge ? Bytes{} : Bytes(next_memory_);
    keep(impl_.decode(call_, std::span(&one, 1), {.base = merge ? out_.data() : nullptr}, out_));
    call_.next_memory = {};
  }
  void copy_own() {
    combined_.assign(payload_[0].begin(), payload_[0].begin() + static_cast<long>(bytes_[0]));
  }
  void combine() {
    const Result<Combined> done = impl_.combine(call_, n_, combined_, ByteView(payload_[1]).first(bytes_[1]),
                                                last_ ? left_[0].data() : nullptr);
    if (!done.ok()) keep(done.status());
  }

  // The cost of merging another rank's payload into this rank's.
  double merging() {
    if (phase_->combines()) {
      const double both = timed([&] {
        copy_own();  // combine() changes the payload, so it starts from a copy
        combine();
      });
      return std::max(0.0, both - timed([&] { copy_own(); }));
    }
    return last_ ? timed([&] { decode(true); }) : 0;  // one rank's payload is the result for all
  }
  void exchange() {
    copy_own();
    if (phase_->combines()) combine();
    if (!last_) context_ = combined_;  // becomes the context of the next phase
  }

  double timed(const std::function<void()>& what) { return seconds_per_call(n_, what, spread_); }

  const Spec& spec_;
  const Codec& codec_;
  const Impl& impl_;
  const std::size_t n_;
  std::vector<double>& spread_;
  Scratch scratch_;
  std::vector<std::uint8_t> memory_, next_memory_, combined_, context_;
  std::vector<float> out_;
  std::array<std::vector<float>, kRanks> gradient_, residual_, left_;
  std::array<std::vector<std::uint8_t>, kRanks> payload_;
  std::array<std::size_t, kRanks> bytes_{};
  const Phase* phase_ = nullptr;
  bool last_ = false;
  Call call_;
  std::size_t turn_ = 0;
  Status status_;
};

}  // namespace

Result<CodecCosts> measure_phases(const Spec& spec, std::span<const std::size_t> sizes,
                                  std::vector<double>& spread, std::span<const float> own) {
  const std::size_t phases = spec.codec->phases.size();
  std::vector<CodecCosts> costs(phases);
  std::vector<double> bytes(phases), bounds(phases);
  for (const std::size_t n : sizes)
    if (const Status s = RankPair(spec, n, spread, own).add(costs, bytes, bounds); !s.ok())
      return Status(s.code(), fmt::format("{}: {}", to_string(spec), s.what()));
  for (std::size_t p = 0; p < phases; ++p)
    costs[p].typical = !spec.codec->traits.fixed_size && bounds[p] > 0 ? bytes[p] / bounds[p] : 1;
  CodecCosts out = std::move(costs[0]);
  out.later.assign(std::make_move_iterator(costs.begin() + 1), std::make_move_iterator(costs.end()));
  return out;
}

}  // namespace tithe::sim
