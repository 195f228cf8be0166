// SPDX-License-Identifier: Apache-2.0
// Prices the steps of a compiled program with the curves of its codecs.
#include "advisor/sim/costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codec/typical.h"
#include "engine/program/laws.h"
#include "plan/codec_cost.h"
#include "tithe/seam/frame.h"

namespace tithe::sim {
namespace {

using engine::Program;
using engine::Step;
using engine::StepKind;

// Prices each step of a program from the codec's curves. A step that reads frames pays for their checksums unless a
// step of its own checks them.
class Pricer {
 public:
  Pricer(const Costs& costs, const Plan& plan, const Program& program, bool copies,
         std::span<const int> payloads)
      : costs_(costs), plan_(plan), program_(program), copies_(copies), payloads_(payloads) {}

  Result<Priced> run() {
    for (const Part& part : plan_.parts) {
      const Result<const CodecCosts*> found = costs_.of(part.spec);
      if (!found.ok()) return found.status();
      codecs_.push_back(*found);
      const Result<const CodecCosts*> inside = part.inside ? costs_.of(*part.inside) : found;
      if (!inside.ok()) return inside.status();
      inside_.push_back(*inside);
    }
    out_.bytes.resize(program_.slots.size());
    // Frame sizes first, since the cost of reading a frame depends on its size.
    for (const Step& s : program_.steps)
      if (s.kind == StepKind::kEncode || s.kind == StepKind::kOwn || s.kind == StepKind::kCheck) frame(s);
    for (const Step& s : program_.checks) frame(s);
    for (const Step& s : program_.steps) out_.seconds.push_back(seconds(s) + copying(s));
    return std::move(out_);
  }

 private:
  const CodecCosts& codec(const Step& s) const {
    const bool inside = s.stage == Stage::kInside;
    return (inside ? inside_ : codecs_)[static_cast<std::size_t>(s.part)]->of_phase(inside ? 0 : s.phase);
  }
  const Spec& spec(const Step& s) const { return s.stage == Stage::kInside ? *part(s).inside : part(s).spec; }
  const Part& part(const Step& s) const { return plan_.parts[static_cast<std::size_t>(s.part)]; }
  const engine::PartLayout& layout(const Step& s) const {
    return program_.parts[static_cast<std::size_t>(s.part)];
  }
  double values(const Step& s) const { return static_cast<double>(layout(s).size(s.chunk)); }
  const engine::LawRule& law(const Step& s) const {
    return engine::rule_of(s.stage == Stage::kInside ? Law::kDecode : layout(s).laws[s.phase]);
  }

  void frame(const Step& s) {
    const std::size_t n = layout(s).size(s.chunk);
    const double payloads = law(s).joins ? joined(s.slot) : 1;
    const double each = codec(s).payload_bytes(spec(s), s.phase, n) + (payloads > 1 ? 8 : 0);
    out_.bytes[static_cast<std::size_t>(s.slot)] = static_cast<double>(kFrameHeaderBytes) + payloads * each;
  }

  // The number of payloads that a step reads: a frame holds several under a law that joins payloads.
  double payloads(const Step& s) const {
    double count = 0;
    for (std::uint32_t k = 0; k < s.frames.count; ++k)
      count += law(s).joins ? joined(program_.indices[s.frames.first + k]) : 1;
    return count;
  }
  double joined(int slot) const {
    return payloads_.empty() ? 1.0 : static_cast<double>(payloads_[static_cast<std::size_t>(slot)]);
  }
  // The checksum time of frames that have no kCheck step.
  Seconds checks(const Step& s) const {
    double bytes = 0;
    for (std::uint32_t k = 0; k < s.frames.count; ++k) {
      const auto slot = static_cast<std::size_t>(program_.indices[s.frames.first + k]);
      if (program_.check_of[slot] >= 0) bytes += out_.bytes[slot];
    }
    return bytes * costs_.checksum_byte;
  }

  // The first access to a chunk copies it in; the last store copies it out.
  Seconds copying(const Step& s) const {
    if (!copies_) return 0;
    if (s.chunk == engine::kWholePart) return static_cast<double>(part(s).n) * costs_.copy_value;
    const bool in = s.loads || s.kind == StepKind::kLoad;
    const bool out = s.kind == StepKind::kStore && std::size_t{s.phase} + 1 == layout(s).laws.size();
    return in || out ? values(s) * costs_.copy_value * (in && out ? 2 : 1) : 0;
  }

  Seconds seconds(const Step& s) const {
    const double n = s.kind == StepKind::kSend || s.kind == StepKind::kLoad ? 0 : values(s);
    switch (s.kind) {
      case StepKind::kLoad:
        return costs_.step;
      case StepKind::kOwn:
        return costs_.step + codec(s).encode.at(n);
      case StepKind::kEncode: {
        const double bytes = out_.bytes[static_cast<std::size_t>(s.slot)];
        // After kOwn the payload exists and only needs its checksum.
        const bool made = law(s).own_first && !s.direct;
        return costs_.step + (made ? 0 : codec(s).encode.at(n)) + bytes * costs_.checksum_byte;
      }
      case StepKind::kCheck:
        return costs_.step + out_.bytes[static_cast<std::size_t>(s.slot)] * costs_.checksum_byte;
      case StepKind::kMerge:
        // Under a law that joins payloads, a merge only collects them; the store decodes them.
        return costs_.step + checks(s) + (law(s).joins ? 0 : payloads(s) * codec(s).merge.at(n));
      case StepKind::kStore:
        return costs_.step + checks(s) + codec(s).store.at(n) +
               (std::max(1.0, payloads(s)) - 1) * codec(s).merge.at(n);
      case StepKind::kSend:
      case StepKind::kRecv:
        return 0;
    }
    return 0;
  }

  const Costs& costs_;
  const Plan& plan_;
  const Program& program_;
  const bool copies_;
  const std::span<const int> payloads_;
  std::vector<const CodecCosts*> codecs_, inside_;  // by part
  Priced out_;
};

}  // namespace

Seconds Curve::at(double values) const {
  if (points.empty() || values <= 0) return 0;
  const auto above =
      std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.first >= values; });
  if (above == points.begin()) return above->second * values / above->first;
  if (above == points.end()) return points.back().second * values / points.back().first;
  const auto below = above - 1;
  const double share = (values - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

const CodecCosts& CodecCosts::of_phase(std::size_t phase) const {
  return phase == 0 || later.empty() ? *this : later[std::min(phase, later.size()) - 1];
}

double CodecCosts::payload_bytes(const Spec& spec, std::size_t phase, std::size_t n) const {
  return typical > 0 ? typical * static_cast<double>(spec.codec->phases[phase].bound(spec.settings, n))
                     : static_cast<double>(codec::expected_bytes(*spec.codec, phase, spec.settings, n));
}

Result<const CodecCosts*> Costs::of(const Spec& spec) const {
  for (const std::string& name : {to_string(spec), std::string(spec.codec->name)})
    if (const auto found = codecs.find(name); found != codecs.end()) return &found->second;
  return know({&spec, 1});
}

Status Costs::know(std::span<const Spec> specs) const {
  std::vector<std::string> missing;
  for (const Spec& spec : specs) {
    const std::string text = to_string(spec);
    if (codecs.contains(text) || codecs.contains(spec.codec->name)) continue;
    if (std::ranges::find(missing, text) == missing.end()) missing.push_back(text);
  }
  if (missing.empty()) return {};
  return {Code::kInvalid,
          fmt::format("the profile has no costs of {}: add them with tithe profile --codec {}",
                      fmt::join(missing, ", "), fmt::join(missing, " --codec "))};
}

Costs default_costs() {
  constexpr double kValues = 1 << 20;
  Costs costs;
  const auto add = [&](const char* codec, double encode_ns, double merge_ns) {
    const auto line = [&](double ns) { return Curve{{{kValues, ns * 1e-9 * kValues}}}; };
    costs.codecs[codec] = {.encode = line(encode_ns), .store = line(merge_ns), .merge = line(merge_ns)};
  };
#define TITHE_CODEC_COST(codec, encode_ns, merge_ns) add(#codec, encode_ns, merge_ns);
#include "plan/codec_cost.def"
#undef TITHE_CODEC_COST
  return costs;
}

// Sources: lab/results/engine.md for the step, src/plan/codec_cost.h for the costs of a frame.
Costs assumed_costs() {
  Costs costs = default_costs();
  costs.step = 0.5e-6;
  costs.post = costs.complete = plan::kOfMessage;
  costs.wake = costs.turn = 8e-6;
  costs.checksum_byte = plan::kChecksumByte;
  costs.copy_value = 0.3e-9;
  costs.many_to_one = kDefaultManyToOne;
  costs.long_messages = long_messages_of(kDefaultTransport);
  return costs;
}

Result<Priced> price(const Costs& costs, const Plan& plan, const engine::Program& program, bool copies,
                     std::span<const int> payloads) {
  return Pricer(costs, plan, program, copies, payloads).run();
}

}  // namespace tithe::sim
