// SPDX-License-Identifier: Apache-2.0
// tithe lang test: the promises at the top of tithe/codec.h, held against a codec in the codec language, and what its
// author claims.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/finite.h"
#include "base/rng.h"
#include "lang/loader.h"
#include "progress.h"
#include "verb.h"

namespace tithe::cli {
namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

constexpr std::size_t kMostShown = 3;  // failures of one law

enum Kind : unsigned { kBell, kHeavy, kConstant, kSparse, kZeros, kTiny, kHuge, kTies, kKinds };

// Sums of draws are near enough to a bell.
Floats values(unsigned kind, std::size_t n, unsigned seed) {
  Floats v(n);
  const std::uint64_t key = rng_key(seed, kind, 0, 0, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const auto draw = [&](unsigned k) {
      return static_cast<float>(draw32(key, static_cast<std::uint32_t>(4 * i + k)) >> 8) * 0x1p-24F;
    };
    const float a = 2 * (draw(0) + draw(1) + draw(2)) - 3;
    const std::uint32_t dice = draw32(key, static_cast<std::uint32_t>(4 * i + 3));
    const float kinds[] = {1e-3F * a,
                           a * std::ldexp(1.0F, static_cast<int>(dice % 24) - 12),
                           -0.375F,
                           dice % 64 == 0 ? a : 0.0F,
                           dice % 2 == 0 ? 0.0F : -0.0F,
                           a * 1e-39F,
                           dice % 2 == 0 ? 1.6e38F : 1e5F * a,
                           0.25F * static_cast<float>(static_cast<int>(dice % 5) - 2)};
    v[i] = kinds[kind];
  }
  return v;
}

struct Sent {
  Payload payload;
  Floats left;
  bool finite = true;
};

struct Law {
  const char* name;
  const char* promise;
  std::size_t held = 0;
  std::vector<std::string> broken = {};
  void expect(bool holds, const std::string& where) {
    if (holds)
      ++held;
    else if (broken.size() < kMostShown)
      broken.push_back(where);
  }
};

class Trial {
 public:
  explicit Trial(const lang::LoadedProgram& program)
      : program_(program),
        codec_(program.codec),
        impl_(program.codec.reference()),
        last_(static_cast<std::uint8_t>(codec_.phases.size() - 1)) {}

  void run() {
    const std::vector<Settings> all = settings();
    std::size_t done = 0;
    for (const Settings& s : all) {
      settings_ = s;
      const std::size_t block = program_.of(s).program.block;
      std::vector<std::size_t> sizes = {0, 1, 7, 8, 33, 1025, 4097};
      if (block > 1 && block <= 4096) sizes.insert(sizes.end(), {block - 1, block, block + 1, 3 * block + 7});
      for (const std::size_t n : sizes)
        for (unsigned kind = 0; kind < kKinds; ++kind) one(n, kind);
      for (const std::size_t n : {1, 65, 1025}) {
        const Floats heavy = values(kHeavy, n, 1);
        agree(std::span(&heavy, 1), Floats(n));
        honest(n);
        finite(n);
      }
      claims();
      progress("laws", ++done, all.size());
    }
  }

  // The defaults, and each other word or whole number of each parameter.
  std::vector<Settings> settings() const {
    std::vector<Settings> all = {defaults(codec_)};
    for (std::size_t p = 0; p < codec_.params.size(); ++p)
      for (std::size_t c = 0; c < codec_.params[p].choices.size(); ++c) {
        Settings s = defaults(codec_);
        if (s.value[p] == static_cast<double>(c)) continue;
        s.value[p] = static_cast<double>(c);
        all.push_back(s);
      }
    return all;
  }

  std::vector<Law*> laws() {
    return {&pure_,   &bounded_, &faithful_, &additive_,   &agreed_,
            &honest_, &finite_,  &unbiased_, &contraction_};
  }

 private:
  Call call(std::uint32_t round = 3) const {
    return {.settings = settings_,
            .seed = 7,
            .shared_seed = 8,
            .round = round,
            .tensor = 2,
            .chunk = 1,
            .phase = last_,
            .context = context_};
  }

  // All ranks through the phases in front of the last one; the first leads. False: something is not as promised, and
  // the last phase has nothing to go by.
  bool agree(std::span<const Floats> ranks, const Floats& residual, std::uint32_t round = 3) {
    context_.clear();
    Call told = call(round);
    for (told.phase = 0; told.phase < last_; ++told.phase) {
      const Phase& phase = codec_.phases[told.phase];
      std::vector<Payload> sent;
      for (const Floats& grad : ranks) {
        Payload& own = sent.emplace_back(phase.bound(settings_, grad.size()));
        told.seed = 7 + sent.size();
        told.context = context_;
        const Result<Encoded> done =
            impl_.encode(told, {grad.data(), residual.data(), nullptr, grad.size()}, own);
        bounded_.expect(done.ok() && done->finite && done->bytes <= own.size(), phase_text(told.phase));
        if (!done.ok() || !done->finite) return false;
        own.resize(done->bytes);
        honest_.expect(impl_.check(told, grad.size(), own).ok(), phase_text(told.phase));
      }
      if (phase.combines() && !combine(told, ranks[0].size(), sent)) return false;
      context_ = std::move(sent[0]);
    }
    return true;
  }
  std::string phase_text(std::size_t phase) const {
    return fmt::format("phase {}", codec_.phases[phase].name);
  }

  // Into the first of them, and from the last one on: the same bytes.
  bool combine(const Call& told, std::size_t n, std::vector<Payload>& sent) {
    Payload other = sent.back();
    bool ok = true;
    for (std::size_t k = sent.size() - 1; k-- > 0;)
      ok = ok && impl_.combine(told, n, other, sent[k], nullptr).ok();
    for (std::size_t k = 1; k < sent.size(); ++k)
      ok = ok && impl_.combine(told, n, sent[0], sent[k], nullptr).ok();
    ok = ok && impl_.check(told, n, sent[0]).ok();
    agreed_.expect(ok && other == sent[0], phase_text(told.phase));
    return ok;
  }

  Sent encode(const Floats& grad, const Floats& residual, std::uint32_t round = 3) const {
    Sent sent{Payload(codec_.phases[last_].bound(settings_, grad.size())), Floats(grad.size()), true};
    const Result<Encoded> done = impl_.encode(
        call(round), {grad.data(), residual.data(), sent.left.data(), grad.size()}, sent.payload);
    sent.finite = done.ok() && done->finite;
    if (done.ok()) sent.payload.resize(done->bytes);
    if (!done.ok()) why_ = done.status().what();
    return sent;
  }
  Status decode(std::span<const ByteView> payloads, Floats& out) const {
    return impl_.decode(call(), payloads, {}, out);
  }

  std::string where(std::size_t n, unsigned kind) const {
    constexpr const char* kNames[] = {"bell-shaped", "heavy-tailed", "equal", "sparse",
                                      "zero",        "tiny",         "huge",  "few different"};
    std::string text = fmt::format("{} values, {}", n, kNames[kind]);
    for (std::size_t p = 0; p < codec_.params.size(); ++p)
      if (const ParamSpec& param = codec_.params[p]; settings_[p] != param.fallback && !param.choices.empty())
        text += fmt::format(", {}={}", param.name, param.choices[static_cast<std::size_t>(settings_[p])]);
    if (!why_.empty()) text += ": " + why_;
    why_.clear();
    return text;
  }

  void one(std::size_t n, unsigned kind) {
    const Floats residual = values(kind, n, 2);
    const Floats both_ranks[] = {values(kind, n, 1), values(kind, n, 3)};
    const Floats& grad = both_ranks[0];
    if (!agree(both_ranks, residual)) return;
    const Sent sent = encode(grad, residual), again = encode(grad, residual);
    pure_.expect(
        sent.payload == again.payload && std::equal(sent.left.begin(), sent.left.end(), again.left.begin()),
        where(n, kind));
    const std::size_t bound = codec_.phases[last_].bound(settings_, n);
    bounded_.expect(sent.finite && sent.payload.size() <= bound &&
                        (!codec_.traits.fixed_size || sent.payload.size() == bound),
                    where(n, kind));
    const Status own = impl_.check(call(), n, sent.payload);
    if (!own.ok()) why_ = own.what();
    honest_.expect(own.ok(), where(n, kind));
    Floats out(n), both(n);
    if (!sent.finite || !decode(std::vector<ByteView>{sent.payload}, out).ok()) return;
    bool faithful = true;
    for (std::size_t i = 0; i < n; ++i) {
      const float taken = grad[i] + residual[i];
      const double off = double{out[i]} + double{sent.left[i]} - double{taken};
      const float large = std::max(std::fabs(taken), std::fabs(out[i]));
      const double allowed =
          codec_.traits.exact_ledger ? 0 : double{std::nextafter(large, INFINITY)} - double{large};
      faithful = faithful && is_finite(out[i]) && is_finite(sent.left[i]) && std::fabs(off) <= allowed;
    }
    faithful_.expect(faithful, where(n, kind));
    Floats second(n);
    const Sent other = encode(both_ranks[1], residual);
    if (!other.finite || !decode(std::vector<ByteView>{other.payload}, second).ok()) return;
    const bool ok = decode(std::vector<ByteView>{sent.payload, other.payload}, both).ok();
    for (std::size_t i = 0; i < n; ++i) out[i] += second[i];
    additive_.expect(ok && std::equal(out.begin(), out.end(), both.begin()), where(n, kind));
    if (codec_.phases[last_].combines()) added(n, kind, sent.payload, other.payload, out);
  }

  // What two payloads combine to stands for their sum, up to rounding.
  void added(std::size_t n, unsigned kind, const Payload& a, const Payload& b, const Floats& want) {
    if (!std::all_of(want.begin(), want.end(), is_finite)) return;  // nor is the sum
    Payload sum = a;
    Floats rounding(n), out(n);
    const Result<Combined> done = impl_.combine(call(), n, sum, b, rounding.data());
    bool ok = done.ok() && done->finite && impl_.check(call(), n, sum).ok() &&
              decode(std::vector<ByteView>{sum}, out).ok();
    double most = 0;
    for (const float v : want) most = std::max(most, std::fabs(double{v}));
    for (std::size_t i = 0; i < n; ++i)
      ok = ok && std::fabs(double{out[i]} + double{rounding[i]} - double{want[i]}) <= most * 0x1p-19;
    agreed_.expect(ok, where(n, kind));
  }

  // Damaged payloads: refused, or read as values; never half of it.
  void honest(std::size_t n) {
    const Payload good = encode(values(kHeavy, n, 1), Floats(n)).payload;
    for (std::uint32_t turn = 0; turn < 200; ++turn) {
      Payload bad = good;
      const auto draw = [&](std::uint32_t k) { return draw32(turn, k); };
      if (turn % 4 == 0) bad.resize(draw(0) % (good.size() + 3));
      if (!bad.empty()) bad[draw(1) % bad.size()] ^= static_cast<std::uint8_t>(1U << draw(2) % 8);
      Floats out(n, 99.0F);
      const Status s = decode(std::vector<ByteView>{bad}, out);
      const bool untouched = std::all_of(out.begin(), out.end(), [](float v) { return v == 99.0F; });
      // With what the phases in front agreed on, decode knows more than check.
      const bool checked = impl_.check(call(), n, bad).ok();
      const bool agrees = last_ == 0 ? s.ok() == checked : checked || !s.ok();
      honest_.expect(agrees && (s.ok() || untouched), where(n, kHeavy));
    }
  }

  void finite(std::size_t n) {
    for (const float odd : {std::bit_cast<float>(0x7fc00000U), INFINITY, -INFINITY}) {
      Floats grad = values(kBell, n, 1);
      grad[n / 2] = odd;
      finite_.expect(!encode(grad, Floats(n)).finite, where(n, kBell));
    }
  }

  // Means over rounds, to within six of their own deviations; energies over the same rounds.
  void claims() {
    constexpr std::uint32_t kRounds = 200;
    constexpr std::size_t n = 1500;
    for (const unsigned kind : {kBell, kHeavy, kTies}) {
      const Floats grad = values(kind, n, 1);
      std::vector<double> sum(n), squares(n);
      double energy = 0, lost = 0;
      Floats out(n);
      const std::uint32_t rounds = codec_.traits.unbiased ? kRounds : 8;
      for (std::uint32_t r = 0; r < rounds; ++r) {
        if (!agree(std::span(&grad, 1), Floats(n), r)) return;
        const Sent sent = encode(grad, Floats(n), r);
        if (!sent.finite || !decode(std::vector<ByteView>{sent.payload}, out).ok()) return;
        for (std::size_t i = 0; i < n; ++i) {
          sum[i] += out[i];
          squares[i] += double{out[i]} * double{out[i]};
          energy += double{grad[i]} * double{grad[i]};
          lost += (double{grad[i]} - double{out[i]}) * (double{grad[i]} - double{out[i]});
        }
      }
      contraction_.expect(lost <= codec_.traits.contraction(settings_, n) * energy * 1.02,
                          fmt::format("{}: {:.4g} of it is lost", where(n, kind), lost / energy));
      if (codec_.traits.unbiased) unbiased_.expect(is_unbiased(grad, sum, squares, rounds), where(n, kind));
    }
  }
  // Of all values together: the sum of what each mean is off by, in units of its deviation, is nearly normal.
  static bool is_unbiased(const Floats& grad, const std::vector<double>& sum,
                          const std::vector<double>& squares, double rounds) {
    double off = 0, variance = 0;
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const double mean = sum[i] / rounds, sign = grad[i] < 0 ? -1 : 1;
      off += sign * (mean - double{grad[i]});
      variance += std::max(0.0, squares[i] / rounds - mean * mean) / rounds;
    }
    return std::fabs(off) <= 6 * std::sqrt(variance) + 1e-6 * std::fabs(off + 1);
  }

  const lang::LoadedProgram& program_;
  const Codec& codec_;
  const Impl& impl_;
  const std::uint8_t last_;  // phase
  Settings settings_;
  Payload context_;  // what was agreed on in front of it
  mutable std::string why_;
  Law pure_{"pure", "the same values give the same bytes"};
  Law bounded_{"bounded", "a payload is no longer than its bound, and all finite values can be sent"};
  Law faithful_{"faithful", "taken = sent + left"};
  Law additive_{"additive", "two payloads decode to the sum of what each does"};
  Law agreed_{"agreed", "payloads combine to the same bytes in any order, and to their sum"};
  Law honest_{"honest",
              "its own bytes are accepted, others refused or read, and nothing is written when refused"};
  Law finite_{"finite", "a value that is not finite is reported"};
  Law unbiased_{"unbiased", "the mean of what is sent is the value"};
  Law contraction_{"contraction", "no more is lost than is claimed"};
};

Result<Report> test(const std::string& path) {
  const Result<const lang::LoadedProgram*> program = lang::load(path);
  if (!program.ok()) return program.status();
  Trial trial(**program);
  trial.run();
  Report report;
  report.json = {{"name", (*program)->name}, {"laws", Json::array()}};
  report.text = (*program)->name + "\n";
  for (const Law* law : trial.laws()) {
    if (law->held == 0 && law->broken.empty()) continue;
    report.failed = report.failed || !law->broken.empty();
    report.text += fmt::format("{:<4} {:<12} {:>6} times  {}\n", law->broken.empty() ? "ok" : "NO", law->name,
                               law->held, law->promise);
    for (const std::string& b : law->broken) report.text += fmt::format("     not of {}\n", b);
    report.json["laws"].push_back({{"law", law->name}, {"held", law->held}, {"broken", law->broken}});
  }
  return report;
}

Run declare(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("IN", *path, "a file in the codec language")->required();
  return [path] { return test(*path); };
}

}  // namespace

const Verb lang_test_verb = {.name = "lang_test",
                             .doc = "hold a codec in the codec language to what every codec promises",
                             .declare = declare};

}  // namespace tithe::cli
