// SPDX-License-Identifier: Apache-2.0
// Statistical checks of a codec program over many rounds: its claims, the scale and offset of its results, and whether
// error feedback keeps the residual bounded.
#include "lang_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "feedback/policy.h"

namespace tithe::cli {

namespace {

constexpr std::size_t kValues = 1500;
// Gradients of several sizes, since a fixed threshold known to all ranks suits only some of them.
constexpr float kSizes[] = {1.0F, 1000.0F, 1e-4F};

Floats times(Floats v, float by) {
  for (float& f : v) f *= by;
  return v;
}

}  // namespace

void Rounds::run() {
  if (first_)
    for (const lang::Claim& claim : subject_.program().file.claims)
      measured_.claims.emplace_back(claim.name.text);
  claims();
  scale();
  feedback();
  first_ = false;
}

// ---- Claims

// The claimed contraction; infinity if nothing is claimed in these settings.
double Rounds::contraction() const {
  const auto stated = subject_.codec().traits.contraction;
  return stated == nullptr ? std::numeric_limits<double>::infinity() : stated(subject_.settings(), kValues);
}

// Means over rounds must hold within six standard deviations; energies are compared over the same rounds.
void Rounds::claims() {
  constexpr std::uint32_t kRounds = 200;
  const Traits& traits = subject_.codec().traits;
  const double claimed = contraction();
  for (const unsigned kind : {kBell, kHeavy, kTies}) {
    const Floats grad = values(kind, kValues, 1);
    std::vector<double> sum(kValues), squares(kValues);
    double all = 0, lost = 0;
    Floats out(kValues);
    const std::uint32_t rounds = traits.unbiased ? kRounds : 8;
    for (std::uint32_t r = 0; r < rounds; ++r) {
      if (!subject_.sends(grad, Floats(kValues), r, out)) return;
      for (std::size_t i = 0; i < kValues; ++i) {
        sum[i] += double{out[i]};
        squares[i] += double{out[i]} * double{out[i]};
        lost += (double{grad[i]} - double{out[i]}) * (double{grad[i]} - double{out[i]});
      }
      all += energy(grad);
    }
    const std::string where = subject_.where(kValues, kind);
    if (std::isfinite(claimed))
      laws_.contraction.expect(lost <= claimed * all * 1.02,
                               fmt::format("{}: {:.4g} of its energy is lost", where, lost / all));
    if (traits.unbiased) laws_.unbiased.expect(is_unbiased(grad, sum, squares, rounds), where);
  }
}

// A test over all values: the sum of the errors of the means, in units of its standard deviation, is nearly normal.
bool Rounds::is_unbiased(const Floats& grad, const std::vector<double>& sum,
                         const std::vector<double>& squares, double rounds) const {
  double off = 0, variance = 0;
  for (std::size_t i = 0; i < grad.size(); ++i) {
    const double mean = sum[i] / rounds, sign = grad[i] < 0 ? -1 : 1;
    off += sign * (mean - double{grad[i]});
    variance += std::max(0.0, squares[i] / rounds - mean * mean) / rounds;
  }
  return std::fabs(off) <= 6 * std::sqrt(variance) + 1e-6 * std::fabs(off + 1);
}

// ---- Scale and offset of the decoded values

Rounds::Measure Rounds::measure(const Floats& grad) {
  constexpr std::uint32_t kRounds = 16;
  const std::size_t n = grad.size();
  const Floats minus = times(grad, -1), none(n);
  Floats out(n), other(n);
  Measure m;
  double all = 0, squares = 0;
  for (std::uint32_t r = 0; r < kRounds; ++r) {
    if (!subject_.sends(grad, none, r, out) || !subject_.sends(minus, none, r, other)) return m;
    for (std::size_t i = 0; i < n; ++i) {
      const double x{grad[i]}, y{out[i]}, both = (double{out[i]} + double{other[i]}) / 2;
      all += x * x;
      m.lost += (x - y) * (x - y);
      m.along += x * y;
      m.size += y * y;
      m.off += both;
      squares += both * both;
    }
  }
  const double count = static_cast<double>(n) * kRounds, size = std::sqrt(all / count);
  m.had = true;
  m.lost /= all;
  m.along /= all;
  m.size /= all;
  m.off /= count * size;
  m.deviation = std::sqrt(std::max(0.0, squares / (count * size * size) - m.off * m.off) / count);
  return m;
}

// A codec may aim at the mean (it is unbiased, and `along` is 1) or at the least loss (`factor` is 1). A codec far from
// both has a wrong scale. The limits follow from published extremes, the 1.5 of a threshold codec and the 0.6 of 3LC,
// with a margin.
void Rounds::scale() {
  constexpr double kLow = 0.4, kHigh = 2.5, kGain = 0.6, kUnbiased = 0.1, kCentred = 1e-3;
  bool fits = false;
  std::string why;
  for (const float size : {kSizes[0], kSizes[1]}) {
    const Measure m = measure(times(values(kBell, kValues, 1), size));
    if (!m.had) continue;
    if (first_ && size == kSizes[0]) measured_.values[kBell] = m;
    laws_.centred.expect(std::fabs(m.off) <= 6 * m.deviation + kCentred,
                         fmt::format("{}: {:.3g} of their size is added to each of them",
                                     subject_.where(kValues, kBell), m.off));
    const bool right = m.size == 0 || std::fabs(m.along - 1) <= kUnbiased ||
                       (m.factor() >= kLow && m.factor() <= kHigh && m.least() >= kGain * m.lost);
    fits = fits || right;
    if (!right)
      why = fmt::format("{:.3g} times as large it would lose {:.2f} of the energy, not {:.2f}", m.factor(),
                        m.least(), m.lost);
  }
  laws_.scaled.expect(fits, fmt::format("{}: {}", subject_.where(kValues, kBell), why));
  if (first_) measured_.values[kHeavy] = measure(values(kHeavy, kValues, 1));
}

// ---- Error feedback

// If a codec loses a share c < 1 of the energy, the residual stays below 2 / (1 - c) gradients (Stich et al., 2018).
// Since c is unknown here, the test looks for growth, over up to kMaxRounds rounds, because a value that is sent late
// settles late.
//   - steady: all gradients are equal, so the residual is the sum of R gradients minus the sum of the decoded values.
//     If the residual is bounded, its share of the sum halves when R doubles; it stays the same if some value is never
//     sent. Sign codecs with one mean lie between, at 0.7: the residual of the largest values grows until the mean has
//     become as large as they are.
//   - random: compares the residual's mean energy over the last quarter of the rounds with that over the second
//     quarter: about equal if bounded, 2.3 to 1 if some value is never sent.
Rounds::Feedback Rounds::feed(unsigned kind, float size, bool steady) {
  constexpr std::uint32_t kMinRounds = 128, kMaxRounds = 4096;
  constexpr double kGrowth = 1.5, kCloser = 0.75, kEnough = 1e-3, kTooMuch = 1e12;
  const Floats same = times(values(kind, kValues, 1), size);
  const double all = energy(same);
  Floats residual(kValues), left(kValues), out(kValues);
  std::vector<double> sum(kValues), energies;
  double closer = 0;  // the error of the mean at half the rounds
  Feedback f;
  for (std::uint32_t r = 0; r < kMaxRounds; ++r) {
    const Floats grad = steady ? same : times(values(kind, kValues, 100 + r), size);
    f.rounds = r + 1;
    if (!subject_.sends(grad, residual, r, out, &left)) {
      f.why = fmt::format("round {} cannot be encoded", r);
      return f;
    }
    residual = left;
    energies.push_back(energy(left));
    f.left = std::sqrt(energies.back() / all);
    f.why = fmt::format("after {} rounds the residual is {:.3g} gradients, and grows", f.rounds, f.left);
    if (!(energies.back() <= kTooMuch * all)) return f;
    for (std::size_t i = 0; i < kValues; ++i) sum[i] += double{out[i]};
    if (f.rounds < kMinRounds / 2 || (f.rounds & r) != 0) continue;  // checks only at powers of two
    double off = 0;
    for (std::size_t i = 0; i < kValues; ++i) {
      const double d = sum[i] / f.rounds - double{same[i]};
      off += d * d;
    }
    off = std::sqrt(off / all);
    const double before = closer;
    closer = off;
    if (f.rounds < kMinRounds) continue;
    const auto mean = [&](std::size_t from, std::size_t to) {
      double e = 0;
      for (std::size_t k = from; k < to; ++k) e += energies[k];
      return e / static_cast<double>(to - from);
    };
    const double early = mean(f.rounds / 4, f.rounds / 2), late = mean(f.rounds / 4 * 3, f.rounds);
    f.converged = steady ? off <= kCloser * before || off <= kEnough
                         : late <= kGrowth * early || late <= kEnough * kEnough * all;
    if (f.converged) return f;
    if (steady)
      f.why = fmt::format(
          "over {} rounds the mean of the decoded values differs by {:.3g} from the gradient, and does not "
          "converge",
          f.rounds, off);
  }
  return f;
}

void Rounds::feedback() {
  // Sessions refuse feedback with these settings.
  if (const auto policy = feedback::policy_of(subject_.settings(), feedback::fallbacks()); !policy.ok()) {
    if (first_) measured_.refused = policy.status().what();
    return;
  }
  const Traits& traits = subject_.codec().traits;
  // A contraction of 1 or more bounds one round, but not the sum over many rounds of feedback.
  const bool no_bound = contraction() >= 1;
  for (const unsigned kind : {kBell, kHeavy})
    for (const bool steady : {true, false}) {
      Feedback f;
      for (const float size : kSizes)
        if (!f.converged) f = feed(kind, size, steady);
      if (first_ && kind == kBell && steady) {
        measured_.left = f.left;
        measured_.rounds = f.rounds;
      }
      // An unbiased codec needs no feedback. With feedback its residual may grow, because it adds as much noise as
      // there is signal. This is reported and does not fail the test.
      if (!f.converged && no_bound && (traits.unbiased || is_random_and_unbiased(kind))) {
        measured_.grows = measured_.grows || first_;
        continue;
      }
      laws_.converged.expect(f.converged, fmt::format("{}, {} gradients: {}", subject_.where(kValues, kind),
                                                      steady ? "steady" : "random", f.why));
    }
}

bool Rounds::is_random_and_unbiased(unsigned kind) {
  constexpr double kUnbiased = 0.05, kNoise = 0.5;
  const Measure m = measure(values(kind, kValues, 1));
  return m.had && std::fabs(m.along - 1) <= kUnbiased && m.lost >= kNoise;
}

// ---- Report

std::string Rounds::Measurements::text() const {
  std::string line = claims.empty() ? "nothing claimed" : fmt::format("claimed: {}", fmt::join(claims, ", "));
  for (const auto& [kind, m] : values)
    if (m.had)
      line += fmt::format("; {} values lose {:.2g} of their energy, their mean is off by {:.2g}",
                          name(static_cast<Kind>(kind)), m.lost, m.off_mean());
  if (!refused.empty())
    line += "; " + refused;
  else if (grows)
    line += "; unbiased, and with feedback the residual grows: use feedback=none";
  else if (rounds != 0)
    line += fmt::format("; with feedback the residual is {:.2g} gradients after {} rounds", left, rounds);
  return line;
}

}  // namespace tithe::cli
