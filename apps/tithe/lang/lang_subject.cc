// SPDX-License-Identifier: Apache-2.0
// Runs a codec program outside a session, with all ranks in this process, and checks each law on the way.
#include "lang_subject.h"

#include <fmt/format.h>

#include <cmath>

#include "advisor/measure/codec_speed.h"
#include "base/rng.h"

namespace tithe::cli {

namespace {
constexpr std::size_t kMaxShown = 3;  // reported failures per law
}  // namespace

const char* name(Kind kind) {
  constexpr const char* kNames[] = {"bell-shaped", "heavy-tailed", "equal", "sparse",
                                    "zero",        "tiny",         "huge",  "few different"};
  return kNames[kind];
}

// A sum of three uniform draws approximates a bell curve.
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

double energy(std::span<const float> v) {
  double sum = 0;
  for (const float f : v) sum += double{f} * double{f};
  return sum;
}

void Law::expect(bool holds, const std::string& where) {
  if (holds)
    ++held;
  else if (broken.size() < kMaxShown)
    broken.push_back(where);
}

std::vector<Law*> Laws::all() {
  return {&pure,   &bounded,  &faithful,    &additive, &agreed,  &honest,   &sound,
          &finite, &unbiased, &contraction, &scaled,   &centred, &converged};
}

Subject::Subject(const lang::LoadedProgram& program, Laws& laws)
    : program_(program),
      codec_(program.codec),
      impl_(program.codec.reference()),
      last_(static_cast<std::uint8_t>(codec_.phases.size() - 1)),
      laws_(laws),
      settings_(defaults(codec_)) {}

Call Subject::call(std::uint32_t round) const {
  return {.settings = settings_,
          .seed = 7,
          .shared_seed = 8,
          .round = round,
          .tensor = 2,
          .chunk = 1,
          .phase = last_,
          .context = context_};
}

bool Subject::agree(std::span<const Floats> ranks, const Floats& residual, std::uint32_t round) {
  context_.clear();
  Call phase_call = call(round);
  for (phase_call.phase = 0; phase_call.phase < last_; ++phase_call.phase) {
    const Phase& phase = codec_.phases[phase_call.phase];
    std::vector<Payload> sent;
    for (const Floats& grad : ranks) {
      Payload& own = sent.emplace_back(phase.bound(settings_, grad.size()));
      phase_call.seed = 7 + sent.size();
      phase_call.context = context_;
      const sim::Scratch scratch(codec_.scratch(settings_, grad.size()));
      phase_call.scratch = scratch.all();
      const Result<Encoded> done =
          impl_.encode(phase_call, {grad.data(), residual.data(), nullptr, grad.size()}, own);
      phase_call.scratch = {};
      laws_.bounded.expect(done.ok() && done->finite && done->bytes <= own.size(),
                           phase_text(phase_call.phase));
      if (!done.ok() || !done->finite) return false;
      own.resize(done->bytes);
      laws_.honest.expect(impl_.check(phase_call, grad.size(), own).ok(), phase_text(phase_call.phase));
    }
    if (phase.combines() && !combine(phase_call, ranks[0].size(), sent)) return false;
    context_ = std::move(sent[0]);
  }
  return true;
}

std::string Subject::phase_text(std::size_t phase) const {
  return fmt::format("phase {}", codec_.phases[phase].name);
}

// Combines all payloads into the first one, and again in reverse order: the bytes must be equal.
bool Subject::combine(const Call& phase_call, std::size_t n, std::vector<Payload>& sent) {
  Payload other = sent.back();
  bool ok = true;
  for (std::size_t k = sent.size() - 1; k-- > 0;)
    ok = ok && impl_.combine(phase_call, n, other, sent[k], nullptr).ok();
  for (std::size_t k = 1; k < sent.size(); ++k)
    ok = ok && impl_.combine(phase_call, n, sent[0], sent[k], nullptr).ok();
  ok = ok && impl_.check(phase_call, n, sent[0]).ok();
  laws_.agreed.expect(ok && other == sent[0], phase_text(phase_call.phase));
  return ok;
}

Sent Subject::encode(const Floats& grad, const Floats& residual, std::uint32_t round) const {
  Sent sent{Payload(last_phase().bound(settings_, grad.size())), Floats(grad.size()), true};
  const sim::Scratch scratch(codec_.scratch(settings_, grad.size()));
  Call phase_call = call(round);
  phase_call.scratch = scratch.all();
  const Result<Encoded> done =
      impl_.encode(phase_call, {grad.data(), residual.data(), sent.left.data(), grad.size()}, sent.payload);
  sent.finite = done.ok() && done->finite;
  if (done.ok()) sent.payload.resize(done->bytes);
  if (!done.ok()) note(done.status());
  return sent;
}

Status Subject::decode(std::span<const ByteView> payloads, Floats& out, std::uint32_t round) const {
  return impl_.decode(call(round), payloads, {}, out);
}

bool Subject::sends(const Floats& grad, const Floats& residual, std::uint32_t round, Floats& out,
                    Floats* left) {
  if (!agree(std::span(&grad, 1), residual, round)) return false;
  Sent sent = encode(grad, residual, round);
  if (!sent.finite || !decode(std::vector<ByteView>{sent.payload}, out, round).ok()) return false;
  if (left != nullptr) *left = std::move(sent.left);
  return true;
}

std::string Subject::where(std::size_t n, unsigned kind) const {
  std::string text = fmt::format("{} values, {}", n, name(static_cast<Kind>(kind)));
  for (std::size_t p = 0; p < codec_.params.size(); ++p)
    if (const ParamSpec& param = codec_.params[p]; settings_[p] != param.fallback && !param.choices.empty())
      text += fmt::format(", {}={}", param.name, param.choices[static_cast<std::size_t>(settings_[p])]);
  if (!why_.empty()) text += ": " + why_;
  why_.clear();
  return text;
}

}  // namespace tithe::cli
