// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec turns a run of gradient values into bytes, and bytes back into values.
//
// What every codec promises, and tests/conformance/codec_suite.cc checks:
//   pure      the same values, settings, seeds and keys give the same bytes on every impl
//   bounded   encode writes at most bound(settings, n) bytes, and none past what it returns
//   faithful  taken == sent + residual_out, value by value: bit for bit where traits.exact_ledger says so
//   additive  decode of N payloads onto a base is base + p0 + p1 + ... in that order, then divided: to the bit, but for
//             traits.adds_transformed
//   honest    decode answers any bytes with values or a Status; it never reads past them
//   finite    a NaN or Inf among the taken values is reported, whatever the bytes then are; so is a sum that overflows
//             where payloads combine, and whatever else would leave a NaN or Inf in a residual. A payload that encode
//             wrote and did not report decodes to finite values alone
// A codec knows nothing of ranks, layers, sockets, streams or the environment.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tithe/byte_view.h"
#include "tithe/hd.h"
#include "tithe/status.h"

namespace tithe {

// What a frame says of its codec; the numbers are those of codecs.def.
enum class CodecId : std::uint16_t {};

// ---- Parameters: what stands after the colon of a spec string, `dgc:ratio=0.01,sample=0.02`

inline constexpr std::size_t kMaxParams = 12;

// One parameter of a codec. With choices, the value is the index of the chosen word.
struct ParamSpec {
  std::string_view name;
  double fallback;
  double low;  // both ends allowed
  double high;
  std::string_view doc;                            // one line, with the unit
  std::span<const std::string_view> choices = {};  // empty: a number
};

// The values of a codec's parameters, in the order of Codec::params.
struct Settings {
  std::array<double, kMaxParams> value{};
  double operator[](std::size_t i) const { return value[i]; }
  friend bool operator==(const Settings&, const Settings&) = default;
};

// ---- The seam

// What an encoder reads: the gradient, plus what earlier rounds left unsent.
// take(i) as often as you like, then leave(i, sent) once. Plain pointers: it travels to a kernel by value.
//   residual == residual_out == nullptr   no feedback: what is not sent is lost (and the codec's row says so)
//   residual_out == residual              in place; otherwise the two do not overlap (the engine keeps both)
struct Carry {
  const float* grad;
  const float* residual;
  float* residual_out;
  std::size_t n;

  TITHE_HD float take(std::size_t i) const { return residual ? grad[i] + residual[i] : grad[i]; }
  TITHE_HD void leave(std::size_t i, float sent) const {
    if (residual_out) residual_out[i] = take(i) - sent;
  }
};

// How decoded values meet the output: out[i] = (base[i] + p0[i] + p1[i] + ...) / divide.
//   base == nullptr   starts from p0 (an absent value of a sparse payload is +0)
//   base == out       adds in place; any other base must not overlap out
struct Merge {
  const float* base = nullptr;
  float divide = 1.0F;
};

// How payloads of several workers combine into one (design: "phases and laws").
enum class Law : std::uint8_t { kDecode, kSum, kMax, kConcat, kLeader };
std::string_view name(Law law);  // "decode", "sum", ...

// Everything besides the values that may shape a payload. Randomness is counter-based: a draw is a function
// of (seed, round, tensor, chunk, index) and of nothing else, see base/rng.h.
struct Call {
  Settings settings;
  std::uint64_t seed = 0;         // differs between ranks
  std::uint64_t shared_seed = 0;  // equal on all ranks
  std::uint32_t round = 0;
  std::uint32_t tensor = 0;
  std::uint16_t chunk = 0;
  std::uint8_t phase = 0;
  ByteView context = {};  // the combined payload of the phase before; empty in phase 0
  // Of combine: how many ranks may stand in acc and in together, where payloads count them; 0: as many as the settings
  // allow.
  std::uint32_t ranks = 0;
  Bytes scratch = {};  // at least scratch(settings, n) bytes, 64-byte aligned; holds nothing between calls
  // Of codecs with a memory: what the last committed round left, memory(settings, n) bytes or none; zeros, like none,
  // are the memory of a beginner. The same on all ranks.
  ByteView memory = {};
  Bytes next_memory =
      {};  // of the decode that makes the round's result: as many bytes, all of them written; or none
};

struct Encoded {
  std::size_t bytes = 0;
  // false: some taken value was NaN or Inf, or is too large for this codec to send and to leave as finite numbers; the
  // payload must not be used
  bool finite = true;
};

// What became of two payloads.
struct Combined {
  bool finite = true;  // false: a sum overflowed, or what it leaves; neither acc nor residual_out may be used
};

// What the processor this process runs on can do. Read once, where a program chooses its impls; never by a codec.
struct Machine {
  bool simd = true;  // false forces the reference everywhere
  int sm = 0;        // CUDA compute capability, 90 for Hopper; 0 without a GPU
};

// One way to run a codec, in the phase that the call names. All impls of a codec write the same bytes and the same
// residuals. Who runs a codec chooses an impl once, by best() or reference(), and uses it for everything.
struct Impl {
  std::string_view name = {};
  bool (*usable)(const Machine&) = nullptr;
  // kTooSmall when out.size() < bound(n) or scratch is short, and nothing is written.
  Result<Encoded> (*encode)(const Call&, const Carry&, Bytes out) = nullptr;
  // kCorrupt when a payload is not one that encode writes for out.size() values, and nothing is written.
  Status (*decode)(const Call&, std::span<const ByteView> payloads, const Merge&,
                   std::span<float> out) = nullptr;
  // Whether encode could have written this payload for n values; reads no byte past it. Of the call it reads settings
  // and phase.
  Status (*check)(const Call&, std::size_t n, ByteView payload) = nullptr;
  // Where Phase::combines(): acc := acc (+ or max) in, payload arrays of equal size; beside its maxima a payload of
  // kMax may hold a count of workers, which adds up. Rounding that the stated type forces goes to residual_out
  // (n values, or nullptr), so that the ledger stays whole. Of the call it reads settings, phase, context and ranks.
  // kCorrupt when `in` is not what encode and combine write, kUnsupported when more workers come together than the
  // settings allow; nothing is written then. acc has passed check, or is this rank's own.
  // Whether a sum is finite depends on the payloads alone where residual_out holds what encode left: all ranks decide
  // alike.
  Result<Combined> (*combine)(const Call&, std::size_t n, Bytes acc, ByteView in,
                              float* residual_out) = nullptr;
  // Where traits.selects: sets values[i] to 0 for each index i that a checked payload sends a value other than 0 for.
  void (*clear_sent)(ByteView payload, float* values) = nullptr;
};

// One exchange between the workers. Most codecs have one phase.
struct Phase {
  std::string_view name;
  std::span<const Law> laws;  // by which its payloads may combine, the codec's preference first
  // Payload bytes for n values: the worst case; the exact size where traits.fixed_size.
  std::size_t (*bound)(const Settings&, std::size_t n);

  // Whether payloads of several workers become one by Impl::combine.
  bool combines() const {
    for (const Law law : laws)
      if (law == Law::kSum || law == Law::kMax) return true;
    return false;
  }
};

struct Traits {
  bool exact_ledger = false;  // taken == sent + residual_out holds bit for bit
  bool lossless = false;      // sent == taken: feedback would keep zeros, and is not kept
  bool fixed_size = false;    // bound() is the size of every payload
  // Its payload is a list of indices and values (codec/sparse/sparse.h): a named value is sent whole, any other left
  // whole. Momentum masking asks for the indices (Impl::clear_sent).
  bool selects = false;
  bool unbiased = false;          // E[sent] == taken
  bool one_pass_feedback = true;  // feedback costs no second pass over memory
  // Payloads add in another domain (whole numbers of levels, spectra) and are brought back once: what several decode
  // to, together or combined into one, is the sum of what each decodes to but for rounding, which is at most 2^-20 of
  // the sum of their largest magnitudes.
  bool adds_transformed = false;
  // c of |x - C(x)|^2 <= c |x|^2, in expectation where C draws, for x well inside the normal floats. nullptr: 1,
  // it never makes things worse. Below 1 feedback converges (Stich et al., NeurIPS 2018).
  double (*contraction)(const Settings&, std::size_t n) = nullptr;
  // What |x_i - C(x)_i| never exceeds, but for rounding to a float, for x_i = value of a tensor whose largest magnitude
  // is `largest`; infinity or nullptr: nothing is said of single values.
  double (*error)(const Settings&, double value, double largest) = nullptr;
  // Whether n equal normal floats arrive bit for bit. nullptr: no.
  bool (*exact_constants)(const Settings&) = nullptr;
};

struct Codec {
  std::string_view name;
  std::string_view doc;  // one line: what is sent, and who published it
  std::span<const ParamSpec> params;
  std::span<const Phase> phases;
  Traits traits;
  // Bytes of scratch that encode and decode may use; the caller keeps them between calls.
  std::size_t (*scratch)(const Settings&, std::size_t n);
  // Bytes that decode leaves to the next round of the same n values, a function of what all ranks share; nullptr: none.
  // The caller keeps them with the residuals: a round that fails or is dropped changes nothing.
  std::size_t (*memory)(const Settings&, std::size_t n) = nullptr;
  std::span<const Impl> impls;  // fastest first; the last one is the readable reference

  const Impl& reference() const { return impls.back(); }
  const Impl& best(const Machine& machine) const {
    for (const Impl& impl : impls)
      if (impl.usable(machine)) return impl;
    return impls.back();
  }
};

std::span<const Codec* const> all_codecs();      // in the order of codecs.def
const Codec* find_codec(std::string_view name);  // nullptr: no such name
const Codec* find_codec(CodecId id);             // nullptr: no such id
CodecId id_of(const Codec& codec);               // 0: it is not in codecs.def
const Machine& this_machine();                   // TITHE_FORCE_REFERENCE=1 turns simd off (docs/cli.md)

// Settings with every parameter at its fallback.
Settings defaults(const Codec& codec);

}  // namespace tithe
