// SPDX-License-Identifier: Apache-2.0
#include "lang/cpp/compiled.h"

#include <fmt/format.h>

#include "codec/shared/common/payload.h"
#include "lang/cpp/flat_payload.h"
#include "lang/cpp/object_cache.h"
#include "lang/run/context.h"

namespace tithe::lang {

namespace {

// Prefetching the residual depends on the vendor (lab/results/programs.md): up to a third faster on an Intel
// processor, up to a fifth slower on an AMD processor.
bool asks_for_residual() {
#ifdef __x86_64__
  static const bool kIntel = __builtin_cpu_is("intel") != 0;
  return kIntel;
#else
  return false;
#endif
}

// `agreed` is nullptr in a first phase.
ObjectCall object_call(const Combination& of, const Call& call, std::size_t n,
                       const Agreed* agreed = nullptr) {
  return {.settings = call.settings.value.data(),
          .n = n,
          .key = key_of(call, call.seed),
          .shared_key = key_of(call, call.shared_seed),
          .block = of.program.block,
          .known = of.known.data(),
          .asks_for_residual = asks_for_residual(),
          .agreed = agreed == nullptr ? nullptr : agreed->numbers(),
          .agreed_ranks = agreed == nullptr ? 1 : agreed->ranks(),
          .max_ranks = of.program.counts ? max_ranks(of, call.settings) : 0,
          .field_bits = agreed != nullptr && of.program.adds() ? field_bits(of, call) : 0,
          .pack = int_fields::kSimd.pack,
          .unpack = int_fields::kSimd.unpack};
}

constexpr std::size_t kAtOnce = 16, kFlatAtOnce = 4;  // payloads decoded together

// Bytes of `payloads` flat payloads (lang/cpp/flat_payload.h); 0 for programs without flat payloads.
std::size_t flat_memory(const Checked& program, std::size_t n, std::size_t payloads) {
  return program.varies() ? payloads * flat_bytes(program, n) : 0;
}

// Checks the context with the check function of the previous phase.
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
                                const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room(name, out.size(), bound(of, call.settings, in.n)));
  TITHE_TRY(check_context(of, name, call, in.n));
  CallMemory memory(call.scratch, compiled_bytes(of, call.settings, in.n));
  const Agreed agreed(of, name, call, in.n, memory);
  const ObjectCall object_args = object_call(of, call, in.n, &agreed);
  const bool adds = of.program.adds(), varies = of.program.varies();
  std::size_t bytes =
      adds ? int_fields::bytes(in.n, object_args.field_bits) : payload_bytes(of.program, in.n);
  std::uint8_t* const flat = memory.take<std::uint8_t>(flat_memory(of.program, in.n, 1));
  if (adds) int_fields::put_head(out.data(), {1, object_args.field_bits});
  ObjectAnswer answer{.finite = 1, .broken = 0, .block = 0};
  object.encode(&object_args, in.grad, in.residual, in.residual_out, varies ? flat : out.data(), &answer);
  if (answer.broken != 0) {
    const Item& item = of.program.items[answer.broken - 1];
    const bool once = of.program.node(item.where).stage == Stage::kAll;
    return Status(Code::kUnsupported,
                  fmt::format("{}: '{}'{} violates its 'where' condition", name, item.name,
                              once ? std::string() : fmt::format(" of block {}", answer.block)));
  }
  if (varies) bytes = to_payload(of.program, flat, in.n, out.data());
  return Encoded{bytes, answer.finite != 0};
}

Status check_compiled(const Object& object, const Combination& of, std::string_view name, const Call& call,
                      std::size_t n, ByteView payload) {
  if (of.program.adds()) return check(of, name, call, n, payload, int_fields::kSimd);
  const ObjectCall object_args = object_call(of, call, n);
  if (of.program.varies()) {
    CallMemory memory(call.scratch, compiled_bytes(of, call.settings, n));
    std::uint8_t* const flat = memory.take<std::uint8_t>(flat_memory(of.program, n, 1));
    if (to_flat(of.program, payload, n, flat) && object.check(&object_args, flat) != 0) return {};
  } else if (payload.size() == payload_bytes(of.program, n) &&
             object.check(&object_args, payload.data()) != 0) {
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
  const ObjectCall object_args = object_call(of, call, out.size(), &agreed);
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
                           object.decode(&object_args, all, some.size(), how.base, how.divide, to.data());
                         });
  return {};
}

// ---- Verification against the interpreter

bool matches_interpreter(const Object& object, const Combination& of, const Settings& settings,
                         unsigned kinds) {
  const auto encode = [&](std::string_view name, const Call& call, const EncodeInput& in, Bytes out) {
    return encode_compiled(object, of, name, call, in, out);
  };
  const auto decode = [&](std::string_view name, const Call& call, std::span<const ByteView> payloads,
                          const Merge& merge, std::span<float> out) {
    return decode_compiled(object, of, name, call, payloads, merge, out);
  };
  return matches_interpreter({encode, decode}, of, settings, kinds);
}

// ---- From a text to an object

const Object* object_of(const Combination& of) {
  const Object* own = of.running->built_in[static_cast<std::size_t>(level_in_use())];
  return own != nullptr ? own : of.running->object.load(std::memory_order_acquire);
}

void prepare_phase(const Combination& of, const Settings& settings, Level level) {
  Running& running = *of.running;
  if (running.built_in[static_cast<std::size_t>(level)] != nullptr) return;
  if (by_kernels(of) || (running.prepared && running.level == level)) return;
  Found found;
  if (const char* why = only_interpreted(of.program)) {
    found.how = fmt::format("interpreted: {}", why);
  } else {
    const CppBody body = emit_cpp(of.program, of.schedule);
    found = find_object(body, level, [&](const Object& object, unsigned kinds) {
      return matches_interpreter(object, of, settings, kinds);
    });
  }
  running.prepared = true;
  running.level = level;
  running.how = found.how;
  running.object.store(found.object, std::memory_order_release);
}

}  // namespace tithe::lang
