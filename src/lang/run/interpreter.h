// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a checked program: the readable reference of a codec that was written in the language. Its functions are those
// of Impl (tithe/seam/codec.h), for the combination of parameters that `Combination` is.
//
//   encode    reads a block once for each pass, then once more to send it, to decode what it sends, and to leave the
//             rest
//   check     the size, what the receiver knows, finite floats, no bit past an array, and every `where`
//   decode    the same nodes as encode's own decoding, so that what is left is what was not received
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "codec/shared/int_sum/int_fields.h"
#include "lang/run/evaluate.h"
#include "tithe/seam/codec.h"

namespace tithe::lang {

struct Object;

// The instructions that the compiler may use: few levels, so that a shared home directory serves different machines.
enum class Level : std::uint8_t { kBase, kAvx2, kAvx512 };
inline constexpr std::size_t kLevels = 3;

// The objects that run a combination besides the interpreter (lang/cpp/compiled.h).
struct Running {
  std::array<const Object*, kLevels> built_in{};  // of a codec of the library (lang/library.h)
  std::atomic<const Object*> object{nullptr};     // none: the interpreter alone
  bool asked = false;
  Level level{};
  std::string how;
};

struct Combination {
  Checked program;
  Schedule schedule;
  // Where in the settings stands what the language adds: the form of pairs, or how many ranks there may be in a sum.
  std::size_t form = 0;
  std::unique_ptr<Combination> before = nullptr;  // the phase in front of this one
  std::unique_ptr<Running> running = std::make_unique<Running>();
  std::vector<std::uint32_t> known = {};  // per item: its bits, where they follow from the settings

  Combination(Checked of, std::size_t form_at);
};

// A list of values, or one of the phases of one: by the library's kernels (lang/lists/pairs.h, lang/run/indices.h).
inline bool by_kernels(const Combination& of) { return of.program.sends_pairs || of.program.sends_values; }

// The call of the phase in front.
inline Call in_front(Call call) {
  --call.phase;
  call.context = {};
  return call;
}

// The most ranks that may take part, of a program that sums.
inline unsigned most_ranks(const Combination& of, const Settings& settings) {
  return static_cast<unsigned>(settings[of.form]);
}

std::size_t bound(const Combination& of, const Settings& settings, std::size_t n);
// `with`: of a program that sums.
Result<Encoded> encode(const Combination& of, std::string_view name, const Call& call, const EncodeInput& in,
                       Bytes out, const int_fields::Kernels& with = int_fields::kReference);
Status check(const Combination& of, std::string_view name, const Call& call, std::size_t n, ByteView payload,
             const int_fields::Kernels& with = int_fields::kReference);
Status decode(const Combination& of, std::string_view name, const Call& call,
              std::span<const ByteView> payloads, const Merge& merge, std::span<float> out,
              const int_fields::Kernels& with = int_fields::kReference);
// The bits of a sum's fields in this call, as the phase in front says; and whether payloads have them.
unsigned field_bits(const Combination& of, const Call& call);
Status check_widths(const Combination& of, std::string_view name, const Call& call,
                    std::span<const ByteView> payloads);
int_fields::Form sum_form(const Combination& of, std::string_view name, const Settings& settings,
                          std::size_t n);
// For phases that combine by max or sum (lang/run/combine.cc).
Result<Combined> combine(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                         Bytes acc, ByteView in, float* residual_out, const int_fields::Kernels& with);

// The most pairs that a program sends, and how many are kept if there were more.
struct PairsLimits {
  std::size_t most;
  std::size_t keep;
  double slots = 0;  // for each value of a table; 0: there are no tables
};
// Slots for a table of `length` values.
std::uint32_t slots_of(const PairsLimits& limits, std::size_t length);
PairsLimits limits_of(const Combination& of, const Settings& settings, std::size_t n);

// The value of a plan node, of type f64 or f32.
double plan_value(const Combination& of, int node, const Settings& settings, std::size_t n);
float plan_float(const Combination& of, int node, const Settings& settings, std::size_t n);
// The result of a claim: a number, for these arguments, or whether it holds.
double plan_value(const Combination& claim, const Settings& settings, std::size_t n,
                  std::array<double, 2> arguments = {});
bool plan_truth(const Combination& claim, const Settings& settings, std::size_t n);

}  // namespace tithe::lang
