// SPDX-License-Identifier: Apache-2.0
#include "lang/seam.h"

#include <algorithm>
#include <utility>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/sparsifier.h"
#include "lang/cpp/compiled.h"
#include "lang/lists/indices_fast.h"
#include "lang/lists/pairs.h"
#include "lang/loader.h"
#include "lang/run/walk.h"

namespace tithe::lang::seam {
namespace {

// A codec function receives no pointer to its program, so it finds the program through the settings.
const LoadedProgram& program(const Settings& settings) {
  TITHE_ASSERT(settings.codec != nullptr && settings.codec->program != nullptr);
  return *settings.codec->program;
}

std::string_view name(const Call& call) { return program(call.settings).file.name.text; }
const Combination& phase_of(const Call& call) { return program(call.settings).of(call.settings, call.phase); }

bool of_indices(const Combination& of) { return of.program.sends_indices || of.program.sends_values; }

template <std::size_t kPhase>
std::size_t bound(const Settings& s, std::size_t n) {
  return lang::bound(program(s).of(s, kPhase), s, n);
}
template <std::size_t... kPhase>
constexpr std::array<Bound, kMaxPhases> bounds(std::index_sequence<kPhase...>) {
  return {bound<kPhase>...};
}

// The reference for a program that sends pairs.
Result<Encoded> encode_plain(const Call& call, const EncodeInput& in, Bytes out) {
  return lang::encode_pairs(program(call.settings).of(call.settings), call, in, out);
}

Status check_scratch(const Call& call, std::size_t n) {
  return codec::check_scratch(name(call), call.scratch.size(), scratch(call.settings, n));
}

Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(check_scratch(call, in.n));
  return lang::encode(phase_of(call), name(call), call, in, out);
}
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  return lang::decode(phase_of(call), name(call), call, payloads, merge, out);
}
Status check(const Call& call, std::size_t n, ByteView payload) {
  return lang::check(phase_of(call), name(call), call, n, payload);
}
Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float* residual_out) {
  return lang::combine(phase_of(call), name(call), call, n, acc, in, residual_out, int_fields::kReference);
}

Result<Encoded> encode_compiled(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(check_scratch(call, in.n));
  const Combination& c = phase_of(call);
  if (of_indices(c)) return lang::encode_indices_fast(c, name(call), call, in, out);
  if (c.program.sends_pairs) return lang::encode_pairs_as(c, name(call), call, in, out, encode_plain);
  const Object* object = object_of(c);
  if (object == nullptr) return lang::encode(c, name(call), call, in, out, int_fields::kSimd);
  return lang::encode_compiled(*object, c, name(call), call, in, out);
}
Status decode_compiled(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                       std::span<float> out) {
  const Combination& c = phase_of(call);
  if (of_indices(c)) return lang::decode_values_fast(c, name(call), call, payloads, merge, out);
  if (c.program.sends_pairs) return lang::decode_pairs(c, name(call), call, payloads, merge, out);
  const Object* object = object_of(c);
  if (object == nullptr) return lang::decode(c, name(call), call, payloads, merge, out, int_fields::kSimd);
  return lang::decode_compiled(*object, c, name(call), call, payloads, merge, out);
}
Status check_compiled(const Call& call, std::size_t n, ByteView payload) {
  const Combination& c = phase_of(call);
  const Object* object = object_of(c);
  if (object == nullptr) return lang::check(c, name(call), call, n, payload, int_fields::kSimd);
  return lang::check_compiled(*object, c, name(call), call, n, payload);
}
Result<Combined> combine_compiled(const Call& call, std::size_t n, Bytes acc, ByteView in,
                                  float* residual_out) {
  return lang::combine(phase_of(call), name(call), call, n, acc, in, residual_out, int_fields::kSimd);
}
}  // namespace

const std::array<Bound, kMaxPhases> kBounds = bounds(std::make_index_sequence<kMaxPhases>());

double contraction(const Settings& s, std::size_t n) { return program(s).contraction_of(s, n); }
double error(const Settings& s, double value, double largest) {
  return program(s).error_of(s, value, largest);
}
bool sends_constants(const Settings& s) { return program(s).sends_constants(s); }

std::size_t scratch(const Settings& s, std::size_t n) {
  std::size_t most = 0;
  for (const Combination* c = &program(s).of(s); c != nullptr; c = c->before.get())
    most = std::max(most, by_kernels(*c) ? list_scratch(*c, s, n)
                                         : std::max(walk_bytes(*c, s, n), compiled_bytes(*c, s, n)));
  return most;
}

std::vector<Impl> impls(bool combines, bool pairs) {
  return {{.name = "compiled",
           .usable = codec::with_simd,
           .encode = encode_compiled,
           .decode = decode_compiled,
           .check = check_compiled,
           .combine = combines ? combine_compiled : nullptr,
           .clear_sent = pairs ? sparse::clear_sent_simd : nullptr},
          codec::reference({.encode = encode,
                            .decode = decode,
                            .check = check,
                            .combine = combines ? combine : nullptr,
                            .clear_sent = pairs ? sparse::clear_sent_ref : nullptr})};
}

}  // namespace tithe::lang::seam
