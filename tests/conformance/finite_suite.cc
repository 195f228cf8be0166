// SPDX-License-Identifier: Apache-2.0
// Payloads with a NaN or Inf in place of a value are rejected, or decode to finite values. The exception, stated in
// codec.h, is dense arrays of plain floats, since testing each value costs a pass over memory. In a codec of several
// phases such a payload also affects the values and residuals of later phases: these are finite, or reported. In
// whole sessions, all ranks reach the same result, and no residual is non-finite.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/bytes.h"
#include "engine/session/saved_state.h"
#include "support/codec_run.h"
#include "support/law_cases.h"
#include "tithe/seam/catalogue.h"

namespace tithe::conformance {
namespace {

using harness::Floats;
using harness::Payload;
using harness::spec_of;

constexpr std::uint32_t kBad[] = {0x7fc00000U, 0x7f800000U, 0xff800000U,
                                  0x7fc07fc0U, 0x7c007c00U, 0xffffffffU};
constexpr std::size_t kN = 300;

bool all_finite(const Floats& v) {
  return std::ranges::all_of(v, [](float x) { return std::isfinite(x); });
}

// Each of kBad at each byte of a payload.
template <typename Body>
void each_damage(const Payload& payload, Body body) {
  for (std::size_t at = 0; at < payload.size(); ++at)
    for (const std::uint32_t bits : kBad) {
      Payload damaged = payload;
      std::memcpy(&damaged[at], &bits, std::min(sizeof bits, payload.size() - at));
      body(damaged);
    }
}

const std::set<std::string, std::less<>> kDense = {"fp32",       "bf16", "fp16", "fp8",
                                                   "inceptionn", "snap", "zip"};

TEST(FiniteSuite, APayloadWithANaNIsRefusedOrDecodesToFiniteValues) {
  std::vector<Spec> specs;
  for (const Codec* codec : all_codecs())
    if (codec->phases.size() == 1) specs.push_back({codec, defaults(*codec), {}});
  for (const char* text :
       {"topk:ratio=0.1,values=bf16", "topk:ratio=0.1,values=fp16", "topk:ratio=0.1,values=8bit",
        "topk:ratio=0.1,indices=delta", "dgc:ratio=0.1,values=inceptionn"})
    specs.push_back(spec_of(text));
  const Floats grad = harness::bell(kN, 1);
  for (const Spec& spec : specs) {
    const Codec& codec = *spec.codec;
    const Impl& impl = codec.best(this_machine());
    const ScratchForTest scratch(codec, spec.settings, kN);
    Call call{.settings = spec.settings};
    call.scratch = scratch;
    Payload payload(codec.phases[0].bound(spec.settings, kN));
    const Result<Encoded> done = impl.encode(call, {grad.data(), nullptr, nullptr, kN}, payload);
    ASSERT_TRUE(done.ok()) << to_string(spec);
    payload.resize(done->bytes);
    std::size_t wrong = 0;
    each_damage(payload, [&](const Payload& damaged) {
      if (!impl.check(call, kN, damaged).ok()) return;
      Floats out(kN);
      const ByteView one(damaged);
      if (impl.decode(call, {&one, 1}, {}, out).ok() && !all_finite(out)) ++wrong;
    });
    EXPECT_EQ(wrong > 0, kDense.contains(codec.name)) << to_string(spec);
  }
}

// ---- Several phases

std::vector<Spec> of_several_phases() {
  std::vector<Spec> specs;
  for (const testing::LawCase& c : testing::law_cases())
    if (c.rules.empty() && c.spec.codec->phases.size() > 1) specs.push_back(c.spec);
  for (const char* text : {"scalecom:ratio=0.1", "scalecom:ratio=0.1,values=8bit,indices=auto",
                           "powersgd:rank=2", "thc:workers=4"})
    specs.push_back(spec_of(text));
  return specs;
}

// A round of three workers by one impl, from any phase on.
class PhaseRun {
 public:
  PhaseRun(const Spec& spec, const Impl& impl) : spec_(spec), impl_(impl) {
    for (unsigned w = 0; w < kWorkers; ++w)
      grads_.push_back(harness::values(harness::Data::kHeavy, kN, 1 + w));
  }

  Call call(std::uint8_t phase, ByteView context, unsigned worker = 0) const {
    Call call{.settings = spec_.settings, .seed = 100 + worker, .shared_seed = 9};
    call.phase = phase;
    call.context = context;
    call.ranks = kWorkers;
    call.scratch = scratch_;
    return call;
  }

  // The combined payload of a phase; empty if a rank rejects or reports. All residuals are finite.
  std::optional<Payload> agreed(std::uint8_t phase, const Payload& context) const {
    const Codec& codec = *spec_.codec;
    const bool last = phase == phases::last_phase(codec);
    std::optional<Payload> total;
    for (unsigned w = 0; w < kWorkers; ++w) {
      Payload mine(codec.phases[phase].bound(spec_.settings, kN));
      Floats left(kN);
      const Result<Encoded> done = impl_.encode(
          call(phase, context, w), {grads_[w].data(), nullptr, last ? left.data() : nullptr, kN}, mine);
      if (!done.ok() || !done->finite) return std::nullopt;
      EXPECT_TRUE(all_finite(left)) << "residuals of phase " << int{phase};
      mine.resize(done->bytes);
      if (!total) {
        total = std::move(mine);
      } else if (codec.phases[phase].combines()) {
        const Result<Combined> sum =
            impl_.combine(call(phase, context), kN, *total, mine, last ? left.data() : nullptr);
        if (!sum.ok() || !sum->finite) return std::nullopt;
        EXPECT_TRUE(all_finite(left)) << "residuals of the sum in phase " << int{phase};
      }
    }
    return total;
  }

  // True if all values decoded from a last phase's payload are finite, or it is rejected. The memory must be finite.
  bool reads_finite(const Payload& context, const Payload& payload) const {
    Call c = call(phases::last_phase(*spec_.codec), context);
    Payload memory(spec_.codec->memory == nullptr ? 0 : spec_.codec->memory(spec_.settings, kN));
    c.next_memory = memory;
    Floats out(kN);
    const ByteView one(payload);
    if (!impl_.decode(c, {&one, 1}, {}, out).ok()) return true;
    for (std::size_t at = 0; at + 4 <= memory.size(); at += 4)
      EXPECT_TRUE(std::isfinite(wire::get<float>(&memory[at]))) << "remembered at " << at;
    return all_finite(out);
  }

  bool takes(std::uint8_t phase, const Payload& context, const Payload& payload) const {
    return impl_.check(call(phase, context), kN, payload).ok();
  }

 private:
  static constexpr unsigned kWorkers = 3;
  const Spec& spec_;
  const Impl& impl_;
  const ScratchForTest scratch_{*spec_.codec, spec_.settings, kN};
  std::vector<Floats> grads_;
};

// Codecs whose last phase is a dense array of floats: the session checks the result before storing it.
const std::set<std::string, std::less<>> kDenseAtLast = {"powersgd", "led_indices"};

TEST(FiniteSuite, DamagedPhaseGivesFiniteValuesOrAStatus) {
  for (const Spec& spec : of_several_phases())
    for (const Impl& impl : spec.codec->impls) {
      SCOPED_TRACE(to_string(spec) + " by " + std::string(impl.name));
      const PhaseRun run(spec, impl);
      const std::uint8_t last = phases::last_phase(*spec.codec);
      Payload context;
      for (std::uint8_t p = 0; p <= last; ++p) {
        const std::optional<Payload> good = run.agreed(p, context);
        ASSERT_TRUE(good) << "phase " << int{p};
        std::size_t wrong = 0;
        each_damage(*good, [&](const Payload& damaged) {
          if (!run.takes(p, context, damaged)) return;
          Payload before = context, now = damaged;
          for (std::uint8_t q = p; q < last; ++q) {
            before = std::exchange(now, {});
            const std::optional<Payload> next = run.agreed(q + 1, before);
            if (!next) return;
            now = *next;
          }
          if (!run.reads_finite(before, now)) ++wrong;
        });
        EXPECT_EQ(wrong > 0, p == last && kDenseAtLast.contains(spec.codec->name)) << "phase " << int{p};
        context = *good;
      }
    }
}

// ---- Through sessions

constexpr std::size_t kFewSizes[] = {33, 257, 4097};

// A non-finite value, in one element or in all, on one rank or on all.
struct Trouble {
  float value;
  bool everywhere, all_ranks;
  bool drops() const { return !std::isfinite(value); }
};
constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr Trouble kTroubles[] = {
    {std::numeric_limits<float>::quiet_NaN(), false, false},
    {-std::numeric_limits<float>::infinity(), false, true},
    {kMaxFloat, false, false},
    {-kMaxFloat, false, true},
    {kMaxFloat / 2, true, true},
    {1.2e38F, true, false},
    {1e19F, true, true},
};

// The residuals with which the session would continue.
feedback::ResidualStore::Map kept(Session& session) {
  const Result<std::vector<std::uint8_t>> bytes = session.state();
  EXPECT_TRUE(bytes.ok()) << bytes.status().what();
  engine::SavedHead head;
  feedback::ResidualStore::Map map;
  const Status read = engine::load(*bytes, head, map);  // refuses a residual that is not finite
  EXPECT_TRUE(read.ok()) << read.what();
  return map;
}

struct SeveralPhases {
  Spec spec;
  const Strategy* strategy;
  int world;
};
std::vector<SeveralPhases> several_phases() {
  std::vector<SeveralPhases> all;
  for (const Spec& spec : of_several_phases())
    for (const Strategy* strategy : all_strategies())
      for (const int world : {1, 2, 3, 4}) all.push_back({spec, strategy, world});
  return all;
}

class FinitePhases : public ::testing::TestWithParam<SeveralPhases> {};

TEST_P(FinitePhases, RanksAgreeAndStateStaysFinite) {
  const auto& [spec, strategy, world] = GetParam();
  testing::Ranks all(open_loop(world), {.strategy = std::string(strategy->name),
                                        .hosts = testing::hosts_of(world),
                                        .lanes = 0,
                                        .average = false,
                                        .min_values = 0,
                                        .seed = 7,
                                        .spec = spec});
  struct Seen {
    testing::Values result;
    feedback::ResidualStore::Map kept;
    bool dropped = false;
  };
  std::vector<Seen> before(static_cast<std::size_t>(world));
  int round = 0;
  const auto go = [&](const Trouble* trouble) {
    std::vector<Seen> seen(static_cast<std::size_t>(world));
    all.each([&](Rank r) {
      Seen& mine = seen[static_cast<std::size_t>(r)];
      mine.result = testing::gradients(kFewSizes, testing::Data::kGaussian, r, round);
      if (trouble != nullptr && (trouble->all_ranks || r == round % world))
        for (Floats& v : mine.result) {
          if (trouble->everywhere) std::ranges::fill(v, trouble->value);
          v[v.size() * 2 / 3] = trouble->value;
        }
      const Status s = testing::synchronise(all[r], kFewSizes, mine.result);
      EXPECT_TRUE(s.ok()) << testing::text(s);
      mine.dropped = all[r].last_round_dropped();
      mine.kept = kept(all[r]);
    });
    for (Rank r = 0; r < world; ++r) {
      const Seen &mine = seen[static_cast<std::size_t>(r)], &had = before[static_cast<std::size_t>(r)];
      SCOPED_TRACE("rank " + std::to_string(r) + ", round " + std::to_string(round));
      EXPECT_EQ(mine.dropped, seen[0].dropped);
      EXPECT_EQ(testing::first_difference(mine.result, seen[0].result), "");
      for (const Floats& v : mine.result) EXPECT_TRUE(mine.dropped || all_finite(v)) << "a result";
      for (const auto& [key, k] : mine.kept) {
        EXPECT_TRUE(all_finite(k.loose_velocity) && all_finite(k.loose_residual)) << key;
        EXPECT_EQ(k.loose_memory, seen[0].kept.at(key).loose_memory) << key;
        for (std::size_t at = 0; at + 4 <= k.loose_memory.size(); at += 4)
          EXPECT_TRUE(std::isfinite(wire::get<float>(&k.loose_memory[at]))) << key << ": remembered";
        if (!mine.dropped) continue;
        const feedback::TensorState& was = had.kept.at(key);
        EXPECT_EQ(k.loose_memory, was.loose_memory) << key;
        const bool let_go = std::ranges::any_of(
            was.loose_residual, [](float x) { return std::fabs(x) > feedback::kMaxResidual; });
        EXPECT_TRUE(let_go ? k.loose_residual.empty() : k.loose_residual == was.loose_residual) << key;
      }
    }
    EXPECT_TRUE(trouble == nullptr || !trouble->drops() || seen[0].dropped) << "round " << round;
    before = std::move(seen);
    ++round;
  };
  go(nullptr);
  for (const Trouble& trouble : kTroubles) {
    go(&trouble);
    for (int k = 0; k < 2; ++k) go(nullptr);
    if (HasFailure()) FAIL() << trouble.value << (trouble.everywhere ? " everywhere" : " at one place");
  }
}

INSTANTIATE_TEST_SUITE_P(All, FinitePhases, ::testing::ValuesIn(several_phases()), [](const auto& param) {
  std::string label = to_string(param.param.spec) + "_" + std::string(param.param.strategy->name) + "_" +
                      std::to_string(param.param.world);
  std::ranges::replace_if(
      label, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return label;
});

}  // namespace
}  // namespace tithe::conformance
