// SPDX-License-Identifier: Apache-2.0
#pragma once
// Interprets a checked program: the readable reference implementation of a codec in the codec language. The functions
// are those of Impl (tithe/seam/codec.h), for one combination of parameters.
//
//   encode    reads a block once per pass, then once more to send it, to decode the sent values, and to compute the
//             residual
//   check     verifies the size, items that the receiver can compute, finite floats, zero padding, and every `where`
//   decode    computes the nodes that encode used for its own decoding, so sent value + residual = input on every rank
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/rng.h"
#include "codec/shared/int_sum/int_fields.h"
#include "lang/run/evaluate.h"
#include "tithe/seam/codec.h"

namespace tithe::lang {

struct Object;

// Instruction sets for compiled code. There are few levels, so machines that share a home directory share cached
// objects.
enum class Level : std::uint8_t { kBase, kAvx2, kAvx512 };
inline constexpr std::size_t kLevels = 3;

// The compiled objects of a combination (lang/cpp/compiled.h).
struct Running {
  std::array<const Object*, kLevels> built_in{};  // linked into the library (lang/library.h)
  std::atomic<const Object*> object{nullptr};     // compiled or loaded at run time; nullptr: interpret
  bool prepared = false;
  Level level{};
  std::string how;
};

struct Combination {
  Checked program;
  Schedule schedule;
  // The index in Settings of the parameter that the language adds: the form of pairs, or the maximum number of ranks
  // in a sum.
  std::size_t form = 0;
  std::unique_ptr<Combination> before = nullptr;  // the previous phase
  std::unique_ptr<Running> running = std::make_unique<Running>();
  std::vector<std::uint32_t> known = {};  // per item: its bits, if they follow from the settings

  Combination(Checked of, std::size_t form_at);
};

// True for a phase that sends pairs or values at indices: the library's sparse kernels run it (lang/lists/pairs.h,
// lang/run/indices.h).
inline bool by_kernels(const Combination& of) { return of.program.sends_pairs || of.program.sends_values; }

// The same call for the previous phase.
inline Call in_front(Call call) {
  --call.phase;
  call.context = {};
  return call;
}

// The key of a call's random draws, from its seed or its shared seed.
inline std::uint64_t key_of(const Call& call, std::uint64_t seed) {
  return rng_key(seed, call.round, call.tensor, call.chunk, call.phase);
}

// The maximum number of ranks in a sum.
inline unsigned max_ranks(const Combination& of, const Settings& settings) {
  return static_cast<unsigned>(settings[of.form]);
}

std::size_t bound(const Combination& of, const Settings& settings, std::size_t n);
// `with`: the kernels for programs that sum.
Result<Encoded> encode(const Combination& of, std::string_view name, const Call& call, const EncodeInput& in,
                       Bytes out, const int_fields::Kernels& with = int_fields::kReference);
Status check(const Combination& of, std::string_view name, const Call& call, std::size_t n, ByteView payload,
             const int_fields::Kernels& with = int_fields::kReference);
Status decode(const Combination& of, std::string_view name, const Call& call,
              std::span<const ByteView> payloads, const Merge& merge, std::span<float> out,
              const int_fields::Kernels& with = int_fields::kReference);
// The bits per field of a sum in this call, from the previous phase; and a check that payloads have that width.
unsigned field_bits(const Combination& of, const Call& call);
Status check_widths(const Combination& of, std::string_view name, const Call& call,
                    std::span<const ByteView> payloads);
int_fields::Form sum_form(const Combination& of, std::string_view name, const Settings& settings,
                          std::size_t n);
// For phases by max or sum (lang/run/combine.cc).
Result<Combined> combine(const Combination& of, std::string_view name, const Call& call, std::size_t n,
                         Bytes acc, ByteView in, float* residual_out, const int_fields::Kernels& with);

// The maximum number of pairs, and the number kept if more values were selected.
struct PairsLimits {
  std::size_t most;
  std::size_t keep;
  double slots = 0;  // per value; 0: no hash table
};
// The number of slots for `length` values.
std::uint32_t slots_of(const PairsLimits& limits, std::size_t length);
PairsLimits limits_of(const Combination& of, const Settings& settings, std::size_t n);

// The value of a plan node of type f64 or f32.
double plan_value(const Combination& of, int node, const Settings& settings, std::size_t n);
float plan_float(const Combination& of, int node, const Settings& settings, std::size_t n);
// The result of a claim: the bound for these arguments, or whether the claim applies.
double plan_value(const Combination& claim, const Settings& settings, std::size_t n,
                  std::array<double, 2> arguments = {});
bool plan_truth(const Combination& claim, const Settings& settings, std::size_t n);

}  // namespace tithe::lang
