// SPDX-License-Identifier: Apache-2.0
#pragma once
// A straightforward implementation of the engine's work under each law: the reference for strategies.
#include <algorithm>
#include <random>
#include <vector>

#include "conformance/rank_name_actor.h"

namespace tithe::testing {

struct Sizes {
  std::size_t n;
  int chunks;
  std::size_t first(Chunk c) const {
    return n * static_cast<std::size_t>(c) / static_cast<std::size_t>(chunks);
  }
  std::size_t of(Chunk c) const { return first(c + 1) - first(c); }
};

// A simple implementation of the engine's work for a codec of one phase.
class Worker : public Actor {
 public:
  Worker(const Codec& codec, Law law, Sizes sizes, Rank me, std::vector<float> grad)
      : codec_(codec),
        law_(law),
        sizes_(sizes),
        me_(me),
        work_(std::move(grad)),
        left_(sizes.n),
        result_(sizes.n),
        own_(static_cast<std::size_t>(sizes.chunks)) {
    call_.settings = defaults(codec);
    call_.seed = static_cast<std::uint64_t>(me);
  }

  Mail encode(Chunk c, Stage stage) override {
    if (law_ == Law::kDecode || stage == Stage::kInside) return {encode_values(c)};
    return own(c);
  }

  void merge(Chunk c, Stage stage, const std::vector<const Mail*>& frames) override {
    if (law_ == Law::kDecode || stage == Stage::kInside) {
      const auto out = slice(work_, c);
      EXPECT_TRUE(decode(c, frames, {.base = out.data()}, out).ok());
      return;
    }
    for (const Mail* f : frames) join(c, own(c), *f, slice(left_, c).data());
  }

  void store(Chunk c, const std::vector<const Mail*>& frames) override {
    if (law_ == Law::kSum) {  // one rank books the rounding error of a sum that all ranks compute alike
      Mail sum = *frames[0];
      for (std::size_t i = 1; i < frames.size(); ++i)
        join(c, sum, *frames[i], me_ == 0 ? slice(left_, c).data() : nullptr);
      EXPECT_TRUE(decode(c, {&sum}, {}, slice(result_, c)).ok());
      return;
    }
    EXPECT_TRUE(decode(c, frames, {}, slice(result_, c)).ok());
  }

  const std::vector<float>& left() const { return left_; }
  const std::vector<float>& result() const { return result_; }

 private:
  std::span<float> slice(std::vector<float>& v, Chunk c) {
    return {v.data() + sizes_.first(c), sizes_.of(c)};
  }

  Payload encode_values(Chunk c) {
    const std::size_t n = sizes_.of(c);
    Call call = call_;
    call.chunk = static_cast<std::uint16_t>(c);
    call.scratch = scratch(n);
    Payload out(codec_.phases[0].bound(call.settings, n));
    const EncodeInput input{slice(work_, c).data(), nullptr, slice(left_, c).data(), n};
    const auto done = codec_.reference().encode(call, input, out);
    EXPECT_TRUE(done.ok()) << done.status().what();
    out.resize(done.ok() ? (*done).bytes : 0);
    return out;
  }

  Mail& own(Chunk c) {
    Mail& mail = own_[static_cast<std::size_t>(c)];
    if (mail.empty()) mail.push_back(encode_values(c));
    return mail;
  }

  void join(Chunk c, Mail& into, const Mail& frame, float* left) {
    if (law_ == Law::kConcat) {
      into.insert(into.end(), frame.begin(), frame.end());
      return;
    }
    EXPECT_TRUE(codec_.best(this_machine()).combine(call_, sizes_.of(c), into[0], frame[0], left).ok());
  }

  Status decode(Chunk c, const std::vector<const Mail*>& frames, const Merge& merge, std::span<float> out) {
    Call call = call_;
    call.chunk = static_cast<std::uint16_t>(c);
    call.scratch = scratch(sizes_.of(c));
    std::vector<ByteView> payloads;
    for (const Mail* f : frames) payloads.insert(payloads.end(), f->begin(), f->end());
    return codec_.reference().decode(call, payloads, merge, out);
  }

  Bytes scratch(std::size_t n) {
    constexpr std::size_t kAlign = 64;
    scratch_.resize(codec_.scratch(call_.settings, n) + kAlign);
    const auto at = reinterpret_cast<std::uintptr_t>(scratch_.data());
    return Bytes(scratch_).subspan((kAlign - at % kAlign) % kAlign, scratch_.size() - kAlign);
  }

  const Codec& codec_;
  const Law law_;
  const Sizes sizes_;
  const Rank me_;
  Call call_;
  std::vector<float> work_, left_, result_;
  std::vector<Mail> own_;
  Payload scratch_;
};

// Small integers, whose sums are exact in bf16 and fp16 too. Zeros for server ranks.
inline std::vector<float> whole_numbers(const Place& at, std::size_t n) {
  if (!at.works()) return std::vector<float>(n);
  const Rank rank = at.me;
  std::mt19937 rng(100U + static_cast<unsigned>(rank));
  std::uniform_int_distribution<int> d(-8, 8);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(d(rng));
  return v;
}

// Max and leader carry one byte per chunk: the largest of the ranks' bytes, or the leader's.
class Chooser : public Actor {
 public:
  // For each chunk: whether this rank leads it.
  Chooser(Law law, const std::vector<bool>& leads, Rank me)
      : law_(law), holds_(leads.size()), result_(holds_.size()) {
    for (std::size_t c = 0; c < leads.size(); ++c)
      if (law == Law::kMax || leads[c]) holds_[c].push_back({byte_of(me)});
  }
  static std::uint8_t byte_of(Rank r) { return static_cast<std::uint8_t>((r * 7 + 3) % 17); }
  Mail encode(Chunk c, Stage stage) override {
    return stage == Stage::kInside ? Mail{} : holds_[static_cast<std::size_t>(c)];
  }
  void merge(Chunk c, Stage stage, const std::vector<const Mail*>& f) override {
    if (stage == Stage::kBetween) take(holds_[static_cast<std::size_t>(c)], f);
  }
  void store(Chunk c, const std::vector<const Mail*>& f) override {
    take(result_[static_cast<std::size_t>(c)], f);
  }
  const std::vector<Mail>& result() const { return result_; }

 private:
  void take(Mail& into, const std::vector<const Mail*>& frames) const {
    for (const Mail* f : frames)
      for (const Payload& p : *f) {
        if (into.empty())
          into.push_back(p);
        else if (law_ == Law::kMax)
          into[0][0] = std::max(into[0][0], p[0]);
        else
          into.push_back(p);  // a second leader: the test expects to detect two payloads
      }
  }
  Law law_;
  std::vector<Mail> holds_, result_;
};

}  // namespace tithe::testing
