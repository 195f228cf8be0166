// SPDX-License-Identifier: Apache-2.0
#include "lang/slots.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "lang/cpp/compiled.h"
#include "lang/lists/indices_fast.h"
#include "lang/lists/pairs.h"
#include "lang/loader.h"

namespace tithe::lang {

namespace {

std::array<std::atomic<const LoadedProgram*>, kSlots> slots{};

template <std::size_t kSlot>
const LoadedProgram& program() {
  return *slots[kSlot].load(std::memory_order_acquire);
}

// The object that runs a combination, if there is one.
const Object* object_of(const Combination& of) { return of.running->object.load(std::memory_order_acquire); }

// Of a program that sends pairs by the library's kernels.
template <std::size_t kSlot>
Result<Encoded> encode_plain(const Call& call, const Carry& in, Bytes out) {
  return lang::encode_pairs(program<kSlot>().of(call.settings), call, in, out);
}

bool of_indices(const Combination& of) { return of.program.sends_indices || of.program.sends_values; }

// One set of functions; what differs in them is whose they are.
template <std::size_t kSlot>
struct Functions {
  static const LoadedProgram& of() { return program<kSlot>(); }
  static std::string_view name() { return of().file.name.text; }
  static const Combination& phase_of(const Call& call) { return of().of(call.settings, call.phase); }

  template <std::size_t kPhase>
  static std::size_t bound(const Settings& s, std::size_t n) {
    return lang::bound(of().of(s, kPhase), s, n);
  }
  template <std::size_t... kPhase>
  static constexpr auto bounds(std::index_sequence<kPhase...>) {
    return std::array<std::size_t (*)(const Settings&, std::size_t), kMostPhases>{bound<kPhase>...};
  }
  static double contraction(const Settings& s, std::size_t n) { return of().contraction_of(s, n); }
  static std::size_t scratch(const Settings& s, std::size_t n) {
    std::size_t most = 0;
    for (const Combination* c = &of().of(s); c != nullptr; c = c->before.get())
      most = std::max(most, lang::scratch(*c, s, n));
    return most;
  }

  static Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
    return lang::encode(phase_of(call), name(), call, in, out);
  }
  static Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                       std::span<float> out) {
    return lang::decode(phase_of(call), name(), call, payloads, merge, out);
  }
  static Status check(const Call& call, std::size_t n, ByteView payload) {
    return lang::check(phase_of(call), name(), call, n, payload);
  }
  static Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in,
                                  float* residual_out) {
    return lang::combine(phase_of(call), name(), call, n, acc, in, residual_out, int_fields::kReference);
  }

  static Result<Encoded> encode_compiled(const Call& call, const Carry& in, Bytes out) {
    const Combination& c = phase_of(call);
    if (of_indices(c)) return lang::encode_indices_fast(c, name(), call, in, out);
    if (c.program.sends_pairs) return lang::encode_pairs_as(c, name(), call, in, out, encode_plain<kSlot>);
    const Object* object = object_of(c);
    if (object == nullptr) return lang::encode(c, name(), call, in, out, int_fields::kSimd);
    return lang::encode_compiled(*object, c, name(), call, in, out);
  }
  static Status decode_compiled(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
                                std::span<float> out) {
    const Combination& c = phase_of(call);
    if (of_indices(c)) return lang::decode_values_fast(c, name(), call, payloads, merge, out);
    if (c.program.sends_pairs) return lang::decode_pairs(c, name(), call, payloads, merge, out);
    const Object* object = object_of(c);
    if (object == nullptr) return lang::decode(c, name(), call, payloads, merge, out, int_fields::kSimd);
    return lang::decode_compiled(*object, c, name(), call, payloads, merge, out);
  }
  static Status check_compiled(const Call& call, std::size_t n, ByteView payload) {
    const Combination& c = phase_of(call);
    const Object* object = object_of(c);
    if (object == nullptr) return lang::check(c, name(), call, n, payload, int_fields::kSimd);
    return lang::check_compiled(*object, c, name(), call, n, payload);
  }
  static Result<Combined> combine_compiled(const Call& call, std::size_t n, Bytes acc, ByteView in,
                                           float* residual_out) {
    return lang::combine(phase_of(call), name(), call, n, acc, in, residual_out, int_fields::kSimd);
  }
};

template <typename F>
constexpr SlotFunctions kFunctions = {.bound = F::bounds(std::make_index_sequence<kMostPhases>()),
                                      .contraction = F::contraction,
                                      .scratch = F::scratch,
                                      .encode = F::encode,
                                      .decode = F::decode,
                                      .check = F::check,
                                      .combine = F::combine,
                                      .encode_compiled = F::encode_compiled,
                                      .decode_compiled = F::decode_compiled,
                                      .check_compiled = F::check_compiled,
                                      .combine_compiled = F::combine_compiled};

template <std::size_t... kAll>
constexpr std::array<SlotFunctions, sizeof...(kAll)> all_functions(std::index_sequence<kAll...>) {
  return {kFunctions<Functions<kAll>>...};
}
constexpr auto kAllFunctions = all_functions(std::make_index_sequence<kSlots>());

}  // namespace

const SlotFunctions* take_slot(const LoadedProgram& program) {
  for (std::size_t k = 0; k < kSlots; ++k) {
    const LoadedProgram* nobody = nullptr;
    if (slots[k].compare_exchange_strong(nobody, &program, std::memory_order_acq_rel))
      return &kAllFunctions[k];
  }
  return nullptr;
}

void give_back_slot(const LoadedProgram& program) {
  for (auto& slot : slots) {
    const LoadedProgram* own = &program;
    slot.compare_exchange_strong(own, nullptr, std::memory_order_acq_rel);
  }
}

}  // namespace tithe::lang
