// SPDX-License-Identifier: Apache-2.0
#include "lang/slots.h"

#include <array>
#include <atomic>
#include <utility>

#include "lang/compiled.h"
#include "lang/loader.h"
#include "lang/pairs.h"

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

template <std::size_t kSlot>
constexpr SlotFunctions kFunctions = {
    .bound = [](const Settings& s, std::size_t n) { return lang::bound(program<kSlot>().of(s), s, n); },
    .contraction = [](const Settings& s, std::size_t n) { return program<kSlot>().contraction_of(s, n); },
    .scratch = [](const Settings& s, std::size_t n) { return lang::scratch(program<kSlot>().of(s), s, n); },
    .encode =
        [](const Call& call, const Carry& in, Bytes out) {
          const LoadedProgram& p = program<kSlot>();
          return lang::encode(p.of(call.settings), p.file.name.text, call, in, out);
        },
    .decode =
        [](const Call& call, std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
          const LoadedProgram& p = program<kSlot>();
          return lang::decode(p.of(call.settings), p.file.name.text, call, payloads, merge, out);
        },
    .check =
        [](const Call& call, std::size_t n, ByteView payload) {
          const LoadedProgram& p = program<kSlot>();
          return lang::check(p.of(call.settings), p.file.name.text, call, n, payload);
        },
    .encode_compiled =
        [](const Call& call, const Carry& in, Bytes out) {
          const LoadedProgram& p = program<kSlot>();
          const Combination& of = p.of(call.settings);
          if (of.program.sends_pairs)
            return lang::encode_pairs_as(of, p.file.name.text, call, in, out, encode_plain<kSlot>);
          const Object* object = object_of(of);
          if (object == nullptr) return lang::encode(of, p.file.name.text, call, in, out);
          return lang::encode_compiled(*object, of, p.file.name.text, call, in, out);
        },
    .decode_compiled =
        [](const Call& call, std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
          const LoadedProgram& p = program<kSlot>();
          const Combination& of = p.of(call.settings);
          if (of.program.sends_pairs)
            return lang::decode_pairs(of, p.file.name.text, call, payloads, merge, out);
          const Object* object = object_of(of);
          if (object == nullptr) return lang::decode(of, p.file.name.text, call, payloads, merge, out);
          return lang::decode_compiled(*object, of, p.file.name.text, call, payloads, merge, out);
        },
    .check_compiled =
        [](const Call& call, std::size_t n, ByteView payload) {
          const LoadedProgram& p = program<kSlot>();
          const Combination& of = p.of(call.settings);
          const Object* object = object_of(of);
          if (object == nullptr) return lang::check(of, p.file.name.text, call, n, payload);
          return lang::check_compiled(*object, of, p.file.name.text, call, n, payload);
        }};

template <std::size_t... kAll>
constexpr std::array<SlotFunctions, sizeof...(kAll)> all_functions(std::index_sequence<kAll...>) {
  return {kFunctions<kAll>...};
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
