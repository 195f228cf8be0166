// SPDX-License-Identifier: Apache-2.0
// tithe lang test: checks a program in the codec language against the promises at the top of codec.h, and against the
// claims of its author.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/finite.h"
#include "catalogue/programs.h"
#include "lang/loader.h"
#include "lang_damage.h"
#include "lang_rounds.h"
#include "lang_subject.h"
#include "progress.h"
#include "verb.h"

namespace tithe::cli {
namespace {

bool all_finite(const Floats& v) { return std::all_of(v.begin(), v.end(), is_finite); }

class Trial {
 public:
  explicit Trial(const lang::LoadedProgram& program) : subject_(program, laws_), rounds_(subject_, laws_) {}

  void run() {
    const std::vector<Settings> all = settings();
    std::size_t done = 0;
    for (const Settings& s : all) {
      subject_.set(s);
      const std::size_t block = subject_.program().of(s).program.block;
      std::vector<std::size_t> sizes = {0, 1, 7, 8, 33, 1025, 4097};
      if (block > 1 && block <= 4096) sizes.insert(sizes.end(), {block - 1, block, block + 1, 3 * block + 7});
      for (const std::size_t n : sizes)
        for (unsigned kind = 0; kind < kKinds; ++kind) one(n, kind);
      for (const std::size_t n : {1, 65, 1025}) {
        if (at_an_end(s)) damaged(n);
        finite(n);
      }
      if (at_an_end(s)) rounds_.run();
      progress("laws", ++done, all.size());
    }
  }

  Laws& laws() { return laws_; }
  const Rounds& rounds() const { return rounds_; }

 private:
  // The defaults, and variants with one other choice or whole number of one parameter.
  std::vector<Settings> settings() const {
    const Codec& codec = subject_.codec();
    std::vector<Settings> all = {defaults(codec)};
    for (std::size_t p = 0; p < codec.params.size(); ++p)
      for (std::size_t c = 0; c < codec.params[p].choices.size(); ++c) {
        Settings s = defaults(codec);
        if (s.value[p] == static_cast<double>(c)) continue;
        s.value[p] = static_cast<double>(c);
        all.push_back(s);
      }
    return all;
  }

  // Long checks run with every choice of a parameter, but only with the least and the largest of its whole numbers.
  bool at_an_end(const Settings& s) const {
    const auto& params = subject_.program().file.params;
    for (std::size_t p = 0; p < params.size(); ++p) {
      const ParamSpec& spec = subject_.codec().params[p];
      const bool counts = params[p].whole && params[p].words.empty();
      if (counts && s[p] != spec.fallback && s[p] != spec.low && s[p] != spec.high) return false;
    }
    return true;
  }

  void one(std::size_t n, unsigned kind) {
    const Floats residual = values(kind, n, 2);
    const Floats both_ranks[] = {values(kind, n, 1), values(kind, n, 3)};
    const Floats& grad = both_ranks[0];
    const Codec& codec = subject_.codec();
    if (!subject_.agree(both_ranks, residual)) return;
    const Sent sent = subject_.encode(grad, residual), again = subject_.encode(grad, residual);
    laws_.pure.expect(
        sent.payload == again.payload && std::equal(sent.left.begin(), sent.left.end(), again.left.begin()),
        subject_.where(n, kind));
    const std::size_t bound = subject_.last_phase().bound(subject_.settings(), n);
    laws_.bounded.expect(sent.finite && sent.payload.size() <= bound &&
                             (!codec.traits.fixed_size || sent.payload.size() == bound),
                         subject_.where(n, kind));
    const Status own = subject_.impl().check(subject_.call(), n, sent.payload);
    if (!own.ok()) subject_.note(own);
    laws_.honest.expect(own.ok(), subject_.where(n, kind));
    Floats out(n), both(n);
    if (!sent.finite || !subject_.decode(std::vector<ByteView>{sent.payload}, out).ok()) return;
    bool faithful = true;
    for (std::size_t i = 0; i < n; ++i) {
      const float taken = grad[i] + residual[i];
      const double off = double{out[i]} + double{sent.left[i]} - double{taken};
      const float large = std::max(std::fabs(taken), std::fabs(out[i]));
      const double allowed =
          codec.traits.exact_ledger ? 0 : double{std::nextafter(large, INFINITY)} - double{large};
      faithful = faithful && is_finite(out[i]) && is_finite(sent.left[i]) && std::fabs(off) <= allowed;
    }
    laws_.faithful.expect(faithful, subject_.where(n, kind));
    Floats second(n);
    const Sent other = subject_.encode(both_ranks[1], residual);
    if (!other.finite || !subject_.decode(std::vector<ByteView>{other.payload}, second).ok()) return;
    const bool ok = subject_.decode(std::vector<ByteView>{sent.payload, other.payload}, both).ok();
    for (std::size_t i = 0; i < n; ++i) out[i] += second[i];
    laws_.additive.expect(ok && std::equal(out.begin(), out.end(), both.begin()), subject_.where(n, kind));
    if (subject_.last_phase().combines()) added(n, kind, sent.payload, other.payload, out);
  }

  // The combination of two payloads must decode to their sum, up to rounding.
  void added(std::size_t n, unsigned kind, const Payload& a, const Payload& b, const Floats& want) {
    if (!all_finite(want)) return;  // the sum is not finite either
    Payload sum = a;
    Floats rounding(n), out(n);
    const Call call = subject_.call();
    const Result<Combined> done = subject_.impl().combine(call, n, sum, b, rounding.data());
    bool ok = done.ok() && done->finite && subject_.impl().check(call, n, sum).ok() &&
              subject_.decode(std::vector<ByteView>{sum}, out).ok();
    double most = 0;
    for (const float v : want) most = std::max(most, std::fabs(double{v}));
    for (std::size_t i = 0; i < n; ++i)
      ok = ok && std::fabs(double{out[i]} + double{rounding[i]} - double{want[i]}) <= most * 0x1p-19;
    laws_.agreed.expect(ok, subject_.where(n, kind));
  }

  // Damaged payloads must be refused, or decode to finite values. A refused payload must leave the output unchanged.
  void damaged(std::size_t n) {
    const Floats heavy = values(kHeavy, n, 1), none(n);
    if (!subject_.agree(std::span(&heavy, 1), none)) return;
    const auto is_sound = [&](const Floats& out, const std::string& what) {
      const auto odd = std::find_if_not(out.begin(), out.end(), is_finite);
      if (odd == out.end()) {
        ++laws_.sound.held;
        return;
      }
      laws_.sound.expect(false, fmt::format("{}: where {}, decode gives {}; state the condition with 'where'",
                                            subject_.where(n, kHeavy), what, *odd));
    };
    const std::uint8_t last = subject_.last();
    const auto phase = [&](std::size_t p) -> const lang::Checked& {
      return subject_.program().of(subject_.settings(), p).program;
    };
    const Payload good = subject_.encode(heavy, none).payload;
    each_damage(phase(last), n, good, [&](const Payload& bad, const std::string& what) {
      Floats out(n, 99.0F);
      const Status s = subject_.decode(std::vector<ByteView>{bad}, out);
      const bool untouched = std::all_of(out.begin(), out.end(), [](float v) { return v == 99.0F; });
      // With the agreed context, decode() can detect more than check().
      const bool checked = subject_.impl().check(subject_.call(), n, bad).ok();
      const bool agrees = last == 0 ? s.ok() == checked : checked || !s.ok();
      if (agrees && (s.ok() || untouched))
        ++laws_.honest.held;
      else
        laws_.honest.expect(false, subject_.where(n, kHeavy));
      if (s.ok()) is_sound(out, what);
    });
    if (last == 0 || lang::by_kernels(subject_.program().of(subject_.settings()))) return;
    // Damages the agreed payload of the previous phase: payloads encoded with it must decode to finite values, too.
    const Payload agreed = subject_.context();
    Call front = subject_.call();
    --front.phase;
    front.context = {};
    each_damage(phase(last - 1U), n, agreed, [&](const Payload& bad, const std::string& what) {
      if (!subject_.impl().check(front, n, bad).ok()) return;
      subject_.set_context(bad);
      const Sent sent = subject_.encode(heavy, none);
      Floats out(n);
      if (sent.finite && subject_.decode(std::vector<ByteView>{sent.payload}, out).ok()) is_sound(out, what);
      subject_.note({});
    });
    subject_.set_context(agreed);
  }

  void finite(std::size_t n) {
    for (const float odd : {std::bit_cast<float>(0x7fc00000U), INFINITY, -INFINITY}) {
      Floats grad = values(kBell, n, 1);
      grad[n / 2] = odd;
      laws_.finite.expect(!subject_.encode(grad, Floats(n)).finite, subject_.where(n, kBell));
    }
  }

  Laws laws_;
  Subject subject_;
  Rounds rounds_;
};

Json measurements_json(const Rounds::Measurements& measured) {
  Json json = {{"claims", measured.claims},
               {"grows_with_feedback", measured.grows || !measured.refused.empty()},
               {"values", Json::array()}};
  for (const auto& [kind, m] : measured.values)
    if (m.had)
      json["values"].push_back(
          {{"kind", name(static_cast<Kind>(kind))}, {"lost", m.lost}, {"mean_off", m.off_mean()}});
  if (measured.rounds != 0) json["feedback"] = {{"left", measured.left}, {"rounds", measured.rounds}};
  return json;
}

Result<Report> test(const std::string& path) {
  const Result<const lang::LoadedProgram*> program = catalogue::load(path);
  if (!program.ok()) return program.status();
  Trial trial(**program);
  trial.run();
  Report report;
  report.json = {{"name", (*program)->name},
                 {"laws", Json::array()},
                 {"measured", measurements_json(trial.rounds().measured())}};
  report.text = (*program)->name + "\n";
  for (const Law* law : trial.laws().all()) {
    if (law->held == 0 && law->broken.empty()) continue;
    report.failed = report.failed || !law->broken.empty();
    report.text += fmt::format("{:<4} {:<12} {:>6} times  {}\n", law->broken.empty() ? "ok" : "NO", law->name,
                               law->held, law->promise);
    for (const std::string& b : law->broken) report.text += fmt::format("     not of {}\n", b);
    report.json["laws"].push_back({{"law", law->name}, {"held", law->held}, {"broken", law->broken}});
  }
  report.text += trial.rounds().measured().text() + "\n";
  return report;
}

Run declare_lang_test(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("IN", *path, "a file in the codec language")->required();
  return [path] { return test(*path); };
}

}  // namespace

const Verb lang_test_verb = {.name = "lang_test",
                             .doc = "test a codec in the codec language against the promises of every codec",
                             .declare = declare_lang_test};

}  // namespace tithe::cli
