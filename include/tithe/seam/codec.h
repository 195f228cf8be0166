// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec encodes a range of gradient values as bytes, and decodes bytes to values.
//
// Every codec promises this, and tests/conformance/codec_suite.cc checks it:
//   pure      the same values, settings, seeds and keys give the same bytes with every impl
//   bounded   encode writes at most bound(settings, n) bytes, and no byte after those it returns
//   faithful  taken == sent + residual_out for each value; bit for bit if traits.exact_ledger is set
//   additive  decoding N payloads onto a base gives base + p0 + p1 + ... in that order, then divided: bit for bit,
//             unless traits.adds_transformed is set
//   honest    decode answers any bytes with values or a Status, and never reads past them
//   finite    encode and combine report a NaN or Inf among the taken values, a sum that overflows, and any other case
//             in which a NaN or Inf would enter a residual; the bytes are then unspecified. A payload that encode wrote
//             without such a report decodes to finite values only. So does any payload that check accepts, with the
//             exception named there
// A codec does not depend on ranks, layers, sockets, streams or the environment.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tithe/byte_view.h"
#include "tithe/seam/hd.h"
#include "tithe/seam/machine.h"
#include "tithe/status.h"

namespace tithe {

namespace lang {
struct LoadedProgram;
}

// The number of a codec, in frames and in codecs.def.
enum class CodecId : std::uint16_t {};

// ---- Parameters: the part of a spec string after the colon, `dgc:ratio=0.01,sample=0.02`

inline constexpr std::size_t kMaxParams = 12;

// The meaning of a parameter to code other than the codec.
enum class Role : std::uint8_t {
  kOwn,    // none
  kRatio,  // the fraction of the values that is sent; schedules change it
  kCols,   // the values of a row; 0: from the tensor's shape
};

// One parameter of a codec. With choices, the value is the index of the chosen word.
struct ParamSpec {
  std::string_view name;
  double fallback;  // the default
  double low;       // low and high are allowed values
  double high;
  std::string_view doc;                            // one line, with the unit
  std::span<const std::string_view> choices = {};  // empty: a number
  Role role = Role::kOwn;
  bool whole = false;  // only whole numbers are valid: the parameter counts something
};

// Declares a parameter that counts something: fractions are refused. fallback, low and high must be whole.
constexpr ParamSpec whole_number(ParamSpec param) {
  param.whole = true;
  return param;
}

struct Codec;

// The values of a codec's parameters, in the order of Codec::params, and the codec, for functions that implement
// several codecs.
struct Settings {
  std::array<double, kMaxParams> value{};
  const Codec* codec = nullptr;
  double operator[](std::size_t i) const { return value[i]; }
  friend bool operator==(const Settings&, const Settings&) = default;
};

// ---- The seam

// The input of an encoder: the gradient, plus the residual of earlier rounds. Per value call value(i) any number of
// times, then store_residual(i, sent) once. Plain pointers, so that it can be passed to a kernel by value.
//   residual == residual_out == nullptr   no feedback: unsent values are lost
//   residual_out == residual              in place; otherwise the two must not overlap
struct EncodeInput {
  const float* grad;
  const float* residual;
  float* residual_out;
  std::size_t n;

  TITHE_HD float value(std::size_t i) const { return residual ? grad[i] + residual[i] : grad[i]; }
  TITHE_HD void store_residual(std::size_t i, float sent) const {
    if (residual_out) residual_out[i] = value(i) - sent;
  }
};

// How decode combines payloads with a base: out[i] = (base[i] + p0[i] + p1[i] + ...) / divide.
//   base == nullptr   the sum starts with p0 (a value that a sparse payload lacks is +0)
//   base == out       adds in place; any other base must not overlap out
struct Merge {
  const float* base = nullptr;
  float divide = 1.0F;
};

// How payloads of several workers combine into one (docs/inside/flow.md, "Phases and laws").
enum class Law : std::uint8_t { kDecode, kSum, kMax, kConcat, kLeader };
std::string_view name(Law law);  // "decode", "sum", ...

// The inputs of a payload other than the values. Random numbers are counter-based: a draw depends on
// (seed, round, tensor, chunk, phase, index) and on nothing else (base/rng.h).
struct Call {
  Settings settings;
  std::uint64_t seed = 0;         // differs between ranks
  std::uint64_t shared_seed = 0;  // equal on all ranks
  std::uint32_t round = 0;
  std::uint32_t tensor = 0;
  std::uint16_t chunk = 0;
  std::uint8_t phase = 0;
  ByteView context = {};  // the combined payload of the phase before; empty in phase 0
  // For combine, if payloads count ranks: the largest number of ranks that acc and in may count together; 0: the
  // largest that the settings allow.
  std::uint32_t ranks = 0;
  Bytes scratch = {};  // scratch(settings, n) bytes or more, 64-byte aligned; only valid during the call
  // For codecs with a memory: the memory after the last committed round, memory(settings, n) bytes, equal on all ranks.
  // Empty or zeros: there was no such round.
  ByteView memory = {};
  // Only in the decode that makes the round's result: decode writes all bytes of the memory after this round,
  // memory(settings, n) bytes. Otherwise empty.
  Bytes next_memory = {};
};

struct Encoded {
  std::size_t bytes = 0;
  // false: some taken value is NaN, Inf, or too large for finite sent and residual values. The payload must not be
  // used.
  bool finite = true;
};

// The result of combine.
struct Combined {
  bool finite = true;  // false: a sum or a residual overflowed; neither acc nor residual_out may be used
};

// One implementation of a codec, for all its phases: call.phase selects one. All impls of a codec write the same bytes
// and the same residuals. A caller chooses an impl once, by best() or reference(), and uses it for everything.
struct Impl {
  std::string_view name = {};
  bool (*usable)(const Machine&) = nullptr;
  // kTooSmall, and nothing is written, if out.size() < bound(settings, n) or scratch is too small.
  Result<Encoded> (*encode)(const Call&, const EncodeInput&, Bytes out) = nullptr;
  // kCorrupt, and nothing is written, if a payload is not one that encode writes for out.size() values.
  Status (*decode)(const Call&, std::span<const ByteView> payloads, const Merge&,
                   std::span<float> out) = nullptr;
  // kCorrupt unless encode could have written this payload for n values. Exception: a NaN or Inf in a dense array of
  // floats is accepted (fp32, bf16, fp16, fp8, inceptionn, snap, zip; docs/reference/format.md). Reads only the
  // payload, settings and phase.
  Status (*check)(const Call&, std::size_t n, ByteView payload) = nullptr;
  // For phases that combine: acc := acc (+ or max) in, both payloads of equal size. A kMax payload may also hold a
  // count of workers; counts add up. Rounding errors are added to residual_out (n values, or nullptr), so that the
  // ledger holds. Reads settings, phase, context and ranks of the call. acc has passed check, or is this rank's own
  // payload. kCorrupt if `in` is not what encode and combine write; kUnsupported if more workers come together than the
  // settings allow; nothing is written then.
  // If residual_out is the output of encode, Combined::finite depends only on the payloads, so all ranks get the same
  // result.
  Result<Combined> (*combine)(const Call&, std::size_t n, Bytes acc, ByteView in,
                              float* residual_out) = nullptr;
  // If traits.selects: sets values[i] to 0 for each index i for which a checked payload sends a value other than 0.
  void (*clear_sent)(ByteView payload, float* values) = nullptr;
};

// One exchange between the workers. Most codecs have one phase.
struct Phase {
  std::string_view name;
  std::span<const Law> laws;  // the laws by which its payloads may combine, the codec's preference first
  // Payload bytes for n values: the most; if traits.fixed_size, the exact number.
  std::size_t (*bound)(const Settings&, std::size_t n);

  // True if Impl::combine combines its payloads: one of its laws is kSum or kMax.
  bool combines() const {
    for (const Law law : laws)
      if (law == Law::kSum || law == Law::kMax) return true;
    return false;
  }
};

struct Traits {
  bool exact_ledger = false;  // taken == sent + residual_out holds bit for bit
  bool lossless = false;      // sent == taken: residuals would be zero, so there are none
  bool fixed_size = false;    // bound() is the size of every payload
  // The payload is the memory of the values. So values are sent without a copy, and any range of a payload is the
  // payload of the values in that range. Implies lossless.
  bool uncompressed = false;
  // Rounds so little that plans may use it without permission; the same holds for lossless codecs.
  bool always_allowed = false;
  // Plans may use it between the ranks of a host: it costs little time, and loses little.
  bool inside_hosts = false;
  // The payload is a list of indices and values (sparse/sparse.h); values without an index stay in the residual.
  // Impl::clear_sent provides the indices for momentum masking.
  bool selects = false;
  bool unbiased = false;          // E[sent] == taken
  bool one_pass_feedback = true;  // feedback costs no second pass over memory
  // Payloads add up in another domain (integers, spectra) and are transformed back once. So several payloads, decoded
  // together or combined into one, give the sum of the single decodes only up to rounding: at most 2^-20 of the sum of
  // their largest magnitudes.
  bool adds_transformed = false;
  // A payload counts as one rank, with any values: a rank without gradients must not send one.
  bool votes = false;
  // c in |x - C(x)|^2 <= c |x|^2, in expectation if C is random, for x well inside the range of normal floats. nullptr:
  // 1. With c below 1 feedback converges (Stich et al., NeurIPS 2018).
  double (*contraction)(const Settings&, std::size_t n) = nullptr;
  // An upper bound of |x_i - C(x)_i|, up to rounding to a float, for x_i = value in a tensor whose largest magnitude is
  // `largest`. Infinity or nullptr: there is no bound for single values.
  double (*error)(const Settings&, double value, double largest) = nullptr;
  // True if n equal normal floats are sent bit for bit. nullptr: they are not.
  bool (*exact_constants)(const Settings&) = nullptr;
};

struct Codec {
  std::string_view name;
  std::string_view doc;  // one line: the payload, and the source
  std::span<const ParamSpec> params;
  std::span<const Phase> phases;
  Traits traits;
  // Bytes of scratch that encode and decode need. check and combine use it if it is given; otherwise they may
  // allocate.
  std::size_t (*scratch)(const Settings&, std::size_t n);
  // Bytes of memory that decode writes for the next round of the same n values; the contents depend only on what all
  // ranks share. nullptr: none. The caller keeps memory with the residuals: a round that fails or is dropped changes
  // neither.
  std::size_t (*memory)(const Settings&, std::size_t n) = nullptr;
  std::span<const Impl> impls;  // fastest first; the last one is the readable reference
  // The program that defines the codec; nullptr: it is written in C++.
  const lang::LoadedProgram* program = nullptr;
  // Returns the CUDA source of the codec's own kernels for these settings (lang/cuda/device_program.h). nullptr: the
  // codec has no kernels, or a program is their source.
  std::string (*kernels)(const Settings&) = nullptr;

  // The index in params of the parameter with this role; params.size(): none.
  std::size_t param(Role role) const {
    std::size_t at = 0;
    while (at < params.size() && params[at].role != role) ++at;
    return at;
  }
  const Impl& reference() const { return impls.back(); }
  const Impl& best(const Machine& machine) const {
    for (const Impl& impl : impls)
      if (impl.usable(machine)) return impl;
    return impls.back();
  }
};

// Settings of this codec with every parameter at its fallback.
Settings defaults(const Codec& codec);

}  // namespace tithe
