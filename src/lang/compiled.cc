// SPDX-License-Identifier: Apache-2.0
#include "lang/compiled.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <mutex>

#include "base/rng.h"
#include "codec/common/payload.h"
#include "lang/loader.h"
#include "lang/object_cache.h"
#include "lang/pairs.h"

namespace tithe::lang {

namespace {

ObjectCall object_call(const Call& call, std::size_t n) {
  const auto key = [&](std::uint64_t seed) {
    return rng_key(seed, call.round, call.tensor, call.chunk, call.phase);
  };
  return {.settings = call.settings.value.data(),
          .n = n,
          .key = key(call.seed),
          .shared_key = key(call.shared_seed)};
}

}  // namespace

Result<Encoded> encode_compiled(const Object& object, const Combination& of, std::string_view name,
                                const Call& call, const Carry& in, Bytes out) {
  const std::size_t bytes = payload_bytes(of.program, in.n);
  TITHE_TRY(codec::check_room(name, out.size(), bytes));
  const ObjectCall told = object_call(call, in.n);
  ObjectAnswer answer{.finite = 1, .broken = 0, .block = 0};
  object.encode(&told, in.grad, in.residual, in.residual_out, out.data(), &answer);
  if (answer.broken != 0)
    return Status(Code::kUnsupported, fmt::format("{}: '{}' of block {} is not what its 'where' says", name,
                                                  of.program.items[answer.broken - 1].name, answer.block));
  return Encoded{bytes, answer.finite != 0};
}

Status check_compiled(const Object& object, const Combination& of, std::string_view name, const Call& call,
                      std::size_t n, ByteView payload) {
  const ObjectCall told = object_call(call, n);
  if (payload.size() == payload_bytes(of.program, n) && object.check(&told, payload.data()) != 0) return {};
  return check(of, name, call, n, payload);
}

Status decode_compiled(const Object& object, const Combination& of, std::string_view name, const Call& call,
                       std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  constexpr std::size_t kAtOnce = 16;
  if (payloads.empty()) return decode(of, name, call, payloads, merge, out);
  for (const ByteView p : payloads) TITHE_TRY(check_compiled(object, of, name, call, out.size(), p));
  const ObjectCall told = object_call(call, out.size());
  const std::uint8_t* all[kAtOnce];
  codec::merge_in_groups(kAtOnce, payloads, merge, out,
                         [&](std::span<const ByteView> some, const Merge& how, std::span<float> to) {
                           for (std::size_t p = 0; p < some.size(); ++p) all[p] = some[p].data();
                           object.decode(&told, all, some.size(), how.base, how.divide, to.data());
                         });
  return {};
}

// ---- Held to the interpreter

namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

Floats values_of(unsigned kind, std::size_t n, std::uint32_t seed) {
  Floats v(n);
  const std::uint64_t key = rng_key(seed, kind, 0, 0, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t draw = draw32(key, static_cast<std::uint32_t>(i));
    const float even = static_cast<float>(draw >> 8) * 0x1p-23F - 1;
    const float all[kAllKinds] = {even * even * even,
                                  std::ldexp(even, static_cast<int>(draw % 64) - 32),
                                  static_cast<float>(static_cast<int>(draw % 5) - 2) * 0.25F,
                                  draw % 2 == 0 ? 0.0F : -0.0F,
                                  even * 0x1p-130F,
                                  draw % 32 == 0 ? std::copysign(0x1.fffffep126F, even) : even};
    v[i] = all[kind];
  }
  return v;
}

struct Outcome {
  bool ok = false;
  Payload payload;
  Floats left, decoded;
};

// Floats by their bits.
bool same(const Floats& a, const Floats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

template <typename Encode, typename Decode>
Outcome outcome_of(const Floats& grad, const Floats& before, std::size_t bytes, const Encode& encode,
                   const Decode& decode) {
  Outcome o{.payload = Payload(bytes), .left = Floats(grad.size()), .decoded = before};
  const bool feedback = grad.size() % 2 == 1;
  const Carry in = {grad.data(), feedback ? before.data() : nullptr, o.left.data(), grad.size()};
  const Result<Encoded> done = encode(in, o.payload);
  o.ok = done.ok() && done->finite;
  if (!o.ok) return o;
  const ByteView several[] = {o.payload, o.payload, o.payload, o.payload, o.payload};
  o.ok = decode(std::span(several), Merge{.base = feedback ? before.data() : nullptr, .divide = 3}, o.decoded)
             .ok();
  return o;
}

}  // namespace

bool same_as_interpreter(const Object& object, const Combination& of, const Settings& settings,
                         unsigned kinds) {
  const std::size_t block = std::min<std::size_t>(of.program.block == 0 ? 1024 : of.program.block, 2048);
  const std::size_t sizes[] = {0, 1, 15, 16, 17, block - 1, block, block + 1, 2 * block + 39};
  const Call call{.settings = settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
  constexpr std::string_view kName = "self-check";
  for (unsigned kind = 0; kind < kinds; ++kind)
    for (const std::size_t n : sizes) {
      const Floats grad = values_of(kind, n, 1), before = values_of(kind, n, 2);
      const std::size_t bytes = payload_bytes(of.program, n);
      const Outcome want = outcome_of(
          grad, before, bytes, [&](const Carry& in, Bytes out) { return encode(of, kName, call, in, out); },
          [&](auto payloads, const Merge& how, std::span<float> out) {
            return decode(of, kName, call, payloads, how, out);
          });
      const Outcome got = outcome_of(
          grad, before, bytes,
          [&](const Carry& in, Bytes out) { return encode_compiled(object, of, kName, call, in, out); },
          [&](auto payloads, const Merge& how, std::span<float> out) {
            return decode_compiled(object, of, kName, call, payloads, how, out);
          });
      if (got.ok != want.ok) return false;
      if (want.ok &&
          (got.payload != want.payload || !same(got.left, want.left) || !same(got.decoded, want.decoded)))
        return false;
    }
  return true;
}

// ---- From a text to an object

void prepare(const LoadedProgram& program, const Settings& settings) {
  const Combination& of = program.of(settings);
  if (of.program.sends_pairs || of.program.sends_values || !this_machine().simd) return;
  const Level level = level_in_use();
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  Running& running = *of.running;
  if (running.asked && running.level == level) return;
  if (const char* why = only_interpreted(of.program)) {
    running.asked = true;
    running.level = level;
    running.how = fmt::format("interpreted: {}", why);
    return;
  }
  const CppBody body = emit_cpp(of.program, of.schedule);
  const Found found = find_object(body, level, [&](const Object& object, unsigned kinds) {
    return same_as_interpreter(object, of, settings, kinds);
  });
  running.asked = true;
  running.level = level;
  running.how = found.how;
  running.object.store(found.object, std::memory_order_release);
}

std::string how_it_runs(const LoadedProgram& program, const Settings& settings) {
  if (!this_machine().simd) return "interpreted, as TITHE_FORCE_REFERENCE says";
  const Combination& last = program.of(settings);
  const Combination& of = last.program.sends_values ? *last.before : last;
  if (of.program.sends_pairs)
    return plan_pairs(of.program).kind == PairsKind::kOther
               ? "interpreted: it chooses values as none of the library's kernels does"
               : "by the library's kernels for lists of values";
  prepare(program, settings);
  return of.running->how;
}

}  // namespace tithe::lang
