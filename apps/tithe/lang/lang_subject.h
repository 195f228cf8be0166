// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec program with settings, as `tithe lang test` checks it against the laws.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lang/loader.h"

namespace tithe::cli {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

enum Kind : unsigned { kBell, kHeavy, kConstant, kSparse, kZeros, kTiny, kHuge, kTies, kKinds };
const char* name(Kind kind);

// Test values; bell-shaped ones have a size of about 1e-3.
Floats values(unsigned kind, std::size_t n, unsigned seed);

double energy(std::span<const float> v);

struct Law {
  const char* name;
  const char* promise;
  std::size_t held = 0;
  std::vector<std::string> broken = {};
  void expect(bool holds, const std::string& where);
};

struct Laws {
  Law pure{"pure", "the same values give the same bytes"};
  Law bounded{"bounded", "a payload is no longer than its bound, and all finite values can be sent"};
  Law faithful{"faithful", "taken = sent + left"};
  Law additive{"additive", "two payloads decode to the sum of their values"};
  Law agreed{"agreed", "payloads combine to the same bytes in any order, and to their sum"};
  Law honest{"honest",
             "its own bytes are accepted, others refused or read, and nothing is written when refused"};
  Law sound{"sound", "a damaged payload is refused, or decodes to finite values"};
  Law finite{"finite", "a value that is not finite is reported"};
  Law unbiased{"unbiased", "the mean of the decoded values is the value"};
  Law contraction{"contraction", "the loss is at most the claimed loss"};
  Law scaled{"scaled",
             "decoded values have about the size of the values: another factor would not lose much less"};
  Law centred{"centred", "negated values decode to negated values: the codec adds no offset"};
  Law converged{
      "settled",
      "with feedback, the residual does not grow, and the mean of the decoded values converges to the value"};
  std::vector<Law*> all();
};

struct Sent {
  Payload payload;
  Floats left;
  bool finite = true;
};

class Subject {
 public:
  Subject(const lang::LoadedProgram& program, Laws& laws);

  const lang::LoadedProgram& program() const { return program_; }
  const Codec& codec() const { return codec_; }
  const Impl& impl() const { return impl_; }
  const Settings& settings() const { return settings_; }
  void set(const Settings& settings) { settings_ = settings; }
  std::uint8_t last() const { return last_; }  // index of the last phase
  const Phase& last_phase() const { return codec_.phases[last_]; }
  const Payload& context() const { return context_; }
  void set_context(Payload context) { context_ = std::move(context); }

  Call call(std::uint32_t round = 3) const;

  // Runs all ranks through the phases before the last one; the first rank leads. False if a law was broken and the last
  // phase has no context.
  bool agree(std::span<const Floats> ranks, const Floats& residual, std::uint32_t round = 3);
  Sent encode(const Floats& grad, const Floats& residual, std::uint32_t round = 3) const;
  Status decode(std::span<const ByteView> payloads, Floats& out, std::uint32_t round = 3) const;
  // Decodes the payload of one rank; a codec with several phases agrees with itself alone. False if this fails.
  bool sends(const Floats& grad, const Floats& residual, std::uint32_t round, Floats& out,
             Floats* left = nullptr);

  // Describes the values and the settings, and the last error noted since the previous call.
  std::string where(std::size_t n, unsigned kind) const;
  void note(const Status& why) const { why_ = why.what(); }

 private:
  bool combine(const Call& phase_call, std::size_t n, std::vector<Payload>& sent);
  std::string phase_text(std::size_t phase) const;

  const lang::LoadedProgram& program_;
  const Codec& codec_;
  const Impl& impl_;
  const std::uint8_t last_;
  Laws& laws_;
  Settings settings_;
  Payload context_;  // the agreed context of the last phase
  mutable std::string why_;
};

}  // namespace tithe::cli
