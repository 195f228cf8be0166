// SPDX-License-Identifier: Apache-2.0
#include "lang/cpp/compiled.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "codec/shared/common/payload.h"
#include "lang/cpp/flat_payload.h"
#include "lang/cpp/object_cache.h"
#include "lang/run/context.h"

namespace tithe::lang {

namespace {

// Where the two were measured (bench/results/programs.md): an Intel processor is faster by up to a third then, one of
// AMD slower by up to a fifth.
bool asks_for_residual() {
#ifdef __x86_64__
  static const bool kIntel = __builtin_cpu_is("intel") != 0;
  return kIntel;
#else
  return false;
#endif
}

// `agreed` and int fields for those who read them.
ObjectCall object_call(const Combination& of, const Call& call, std::size_t n,
                       const Agreed* agreed = nullptr) {
  const auto key = [&](std::uint64_t seed) {
    return rng_key(seed, call.round, call.tensor, call.chunk, call.phase);
  };
  return {.settings = call.settings.value.data(),
          .n = n,
          .key = key(call.seed),
          .shared_key = key(call.shared_seed),
          .block = of.program.block,
          .known = of.known.data(),
          .asks_for_residual = asks_for_residual(),
          .agreed = agreed == nullptr ? nullptr : agreed->numbers(),
          .agreed_ranks = agreed == nullptr ? 1 : agreed->ranks(),
          .most_ranks = of.program.counts ? most_ranks(of, call.settings) : 0,
          .field_bits = agreed != nullptr && of.program.adds() ? field_bits(of, call) : 0,
          .pack = int_fields::kSimd.pack,
          .unpack = int_fields::kSimd.unpack};
}

constexpr std::size_t kAtOnce = 16, kFlatAtOnce = 4;  // payloads that are decoded in one go

// Bytes of so many flat payloads (lang/cpp/flat_payload.h); 0 for programs that have none.
std::size_t flat_memory(const Checked& program, std::size_t n, std::size_t payloads) {
  return program.varies() ? payloads * flat_bytes(program, n) : 0;
}

// The context, by what the phase in front is checked with.
Status check_context(const Combination& of, std::string_view name, const Call& call, std::size_t n) {
  if (of.before == nullptr) return {};
  const Call front = in_front(call);
  const Object* object = object_of(*of.before);
  if (object != nullptr) return check_compiled(*object, *of.before, name, front, n, call.context);
  return check(*of.before, name, front, n, call.context, int_fields::kSimd);
}

}  // namespace

std::size_t compiled_bytes(const Combination& of, const Settings& settings, std::size_t n) {
  CallMemory flat;
  flat.take<std::uint8_t>(flat_memory(of.program, n, kFlatAtOnce));
  return agreed_bytes(of, settings, n) + flat.used();
}

Result<Encoded> encode_compiled(const Object& object, const Combination& of, std::string_view name,
                                const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room(name, out.size(), bound(of, call.settings, in.n)));
  TITHE_TRY(check_context(of, name, call, in.n));
  CallMemory memory(call.scratch, compiled_bytes(of, call.settings, in.n));
  const Agreed agreed(of, name, call, in.n, memory);
  const ObjectCall told = object_call(of, call, in.n, &agreed);
  const bool adds = of.program.adds(), varies = of.program.varies();
  std::size_t bytes = adds ? int_fields::bytes(in.n, told.field_bits) : payload_bytes(of.program, in.n);
  std::uint8_t* const flat = memory.take<std::uint8_t>(flat_memory(of.program, in.n, 1));
  if (adds) int_fields::put_head(out.data(), {1, told.field_bits});
  ObjectAnswer answer{.finite = 1, .broken = 0, .block = 0};
  object.encode(&told, in.grad, in.residual, in.residual_out, varies ? flat : out.data(), &answer);
  if (answer.broken != 0) {
    const Item& item = of.program.items[answer.broken - 1];
    const bool once = of.program.node(item.where).stage == Stage::kAll;
    return Status(Code::kUnsupported,
                  fmt::format("{}: '{}'{} is not what its 'where' says", name, item.name,
                              once ? std::string() : fmt::format(" of block {}", answer.block)));
  }
  if (varies) bytes = to_payload(of.program, flat, in.n, out.data());
  return Encoded{bytes, answer.finite != 0};
}

Status check_compiled(const Object& object, const Combination& of, std::string_view name, const Call& call,
                      std::size_t n, ByteView payload) {
  if (of.program.adds()) return check(of, name, call, n, payload, int_fields::kSimd);
  const ObjectCall told = object_call(of, call, n);
  if (of.program.varies()) {
    CallMemory memory(call.scratch, compiled_bytes(of, call.settings, n));
    std::uint8_t* const flat = memory.take<std::uint8_t>(flat_memory(of.program, n, 1));
    if (to_flat(of.program, payload, n, flat) && object.check(&told, flat) != 0) return {};
  } else if (payload.size() == payload_bytes(of.program, n) && object.check(&told, payload.data()) != 0) {
    return {};
  }
  return check(of, name, call, n, payload);
}

Status decode_compiled(const Object& object, const Combination& of, std::string_view name, const Call& call,
                       std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  if (payloads.empty() || object.decode == nullptr)
    return decode(of, name, call, payloads, merge, out, int_fields::kSimd);
  for (const ByteView p : payloads) TITHE_TRY(check_compiled(object, of, name, call, out.size(), p));
  TITHE_TRY(check_context(of, name, call, out.size()));
  if (of.program.adds()) TITHE_TRY(check_widths(of, name, call, payloads));
  CallMemory memory(call.scratch, compiled_bytes(of, call.settings, out.size()));
  const Agreed agreed(of, name, call, out.size(), memory);
  const ObjectCall told = object_call(of, call, out.size(), &agreed);
  const std::uint8_t* all[kAtOnce];
  const bool varies = of.program.varies();
  const std::size_t at_once = varies ? std::min(kFlatAtOnce, payloads.size()) : kAtOnce;
  const std::size_t size = flat_memory(of.program, out.size(), 1);
  std::uint8_t* const flat = memory.take<std::uint8_t>(at_once * size);
  codec::merge_in_groups(at_once, payloads, merge, out,
                         [&](std::span<const ByteView> some, const Merge& how, std::span<float> to) {
                           for (std::size_t p = 0; p < some.size(); ++p) {
                             all[p] = varies ? flat + p * size : some[p].data();
                             if (varies) to_flat(of.program, some[p], to.size(), flat + p * size);
                           }
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

constexpr std::string_view kName = "self-check";

// Some ranks, and the values that they have; what they agreed on.
struct Company {
  unsigned ranks;
  unsigned kind;
};
std::vector<Company> companies(const Combination& of, const Settings& settings) {
  bool counts = false, sums = of.program.adds();
  for (const Combination* c = of.before.get(); c != nullptr; c = c->before.get()) {
    counts = counts || c->program.counts;
    sums = sums || c->program.adds();
  }
  if (of.before == nullptr && !sums) return {{1, 0}};
  constexpr unsigned kMany = 24;  // fields of other widths than three ranks have
  const unsigned most = counts || sums ? std::min(kMany, most_ranks(of, settings)) : 3;
  return {{1, 3}, {std::min(3U, most), 0}, {most, 2}};
}

// What the ranks' payloads of a phase combine to, by the interpreter. Nothing: there is none of these values.
std::optional<Payload> combined(const Combination& of, const Call& call, std::size_t n, const Company& who,
                                unsigned kind) {
  constexpr unsigned kApart = 3;  // ranks with values of their own
  std::vector<Payload> own;
  for (unsigned rank = 0; rank < std::min(who.ranks, kApart); ++rank) {
    const Floats grad = values_of((kind + who.kind + rank) % kAllKinds, n, 3 + rank);
    Payload& payload = own.emplace_back(bound(of, call.settings, n));
    const Result<Encoded> done = encode(of, kName, call, {grad.data(), nullptr, nullptr, n}, payload);
    if (!done.ok() || !done->finite) return {};
    payload.resize(done->bytes);
  }
  Payload all = own[0];
  for (unsigned rank = 1; rank < who.ranks && of.program.law != Law::kLeader; ++rank) {
    const auto done =
        combine(of, kName, call, n, all, own[rank % own.size()], nullptr, int_fields::kReference);
    if (!done.ok() || !done->finite) return {};
  }
  return all;
}

std::optional<Payload> context_of(const Combination& of, const Call& call, std::size_t n, const Company& who,
                                  unsigned kind) {
  if (of.before == nullptr) return Payload{};
  Call front = in_front(call);
  const std::optional<Payload> agreed = context_of(*of.before, front, n, who, kind);
  if (!agreed) return {};
  front.context = *agreed;
  return combined(*of.before, front, n, who, kind);
}

// What is encoded of these values, and what five payloads decode to; of a sum two of them are of all ranks.
template <typename Encode, typename Decode>
Outcome outcome_of(const Combination& of, const Call& call, const Floats& grad, const Floats& before,
                   unsigned ranks, const Encode& encode, const Decode& decode) {
  Outcome o{.payload = Payload(bound(of, call.settings, grad.size())),
            .left = Floats(grad.size()),
            .decoded = before};
  const bool feedback = grad.size() % 2 == 1;
  const Carry in = {grad.data(), feedback ? before.data() : nullptr, o.left.data(), grad.size()};
  const Result<Encoded> done = encode(in, o.payload);
  o.ok = done.ok() && done->finite;
  if (!o.ok) return o;
  o.payload.resize(done->bytes);
  if (of.program.result == kNone) return o;
  Payload sum = o.payload;
  for (unsigned rank = 1; rank < ranks && of.program.adds(); ++rank)
    if (!combine(of, kName, call, grad.size(), sum, o.payload, nullptr, int_fields::kReference).ok())
      o.ok = false;
  const ByteView several[] = {o.payload, sum, o.payload, sum, o.payload};
  o.ok = o.ok &&
         decode(std::span(several), Merge{.base = feedback ? before.data() : nullptr, .divide = 3}, o.decoded)
             .ok();
  return o;
}

bool same_outcome(const Object& object, const Combination& of, const Call& call, std::size_t n, unsigned kind,
                  unsigned ranks) {
  const Floats grad = values_of(kind, n, 1), before = values_of(kind, n, 2);
  const Outcome want = outcome_of(
      of, call, grad, before, ranks,
      [&](const Carry& in, Bytes out) { return encode(of, kName, call, in, out); },
      [&](auto payloads, const Merge& how, std::span<float> out) {
        return decode(of, kName, call, payloads, how, out);
      });
  const Outcome got = outcome_of(
      of, call, grad, before, ranks,
      [&](const Carry& in, Bytes out) { return encode_compiled(object, of, kName, call, in, out); },
      [&](auto payloads, const Merge& how, std::span<float> out) {
        return decode_compiled(object, of, kName, call, payloads, how, out);
      });
  return got.ok == want.ok && (!want.ok || (got.payload == want.payload && same(got.left, want.left) &&
                                            same(got.decoded, want.decoded)));
}

}  // namespace

bool same_as_interpreter(const Object& object, const Combination& of, const Settings& settings,
                         unsigned kinds) {
  const std::size_t block = std::min<std::size_t>(of.program.block == 0 ? 1024 : of.program.block, 2048);
  const std::size_t sizes[] = {0, 1, 15, 16, 17, block - 1, block, block + 1, 2 * block + 39};
  Call call{.settings = settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
  for (const Combination* c = of.before.get(); c != nullptr; c = c->before.get()) ++call.phase;
  for (unsigned kind = 0; kind < kinds; ++kind)
    for (const std::size_t n : sizes)
      for (const Company& who : companies(of, settings)) {
        const std::optional<Payload> context = context_of(of, call, n, who, kind);
        if (!context) continue;
        call.context = *context;
        if (!same_outcome(object, of, call, n, kind, who.ranks)) return false;
      }
  return true;
}

// ---- From a text to an object

const Object* object_of(const Combination& of) {
  const Object* own = of.running->built_in[static_cast<std::size_t>(level_in_use())];
  return own != nullptr ? own : of.running->object.load(std::memory_order_acquire);
}

void prepare_phase(const Combination& of, const Settings& settings, Level level) {
  Running& running = *of.running;
  if (running.built_in[static_cast<std::size_t>(level)] != nullptr) return;
  if (by_kernels(of) || (running.asked && running.level == level)) return;
  Found found;
  if (const char* why = only_interpreted(of.program)) {
    found.how = fmt::format("interpreted: {}", why);
  } else {
    const CppBody body = emit_cpp(of.program, of.schedule);
    found = find_object(body, level, [&](const Object& object, unsigned kinds) {
      return same_as_interpreter(object, of, settings, kinds);
    });
  }
  running.asked = true;
  running.level = level;
  running.how = found.how;
  running.object.store(found.object, std::memory_order_release);
}

}  // namespace tithe::lang
