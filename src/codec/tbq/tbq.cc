// SPDX-License-Identifier: Apache-2.0
#include "codec/tbq/tbq.h"

namespace tithe {
namespace tbq {
namespace {

std::size_t bound(const Settings& s, std::size_t n) {
  return is_literal(s) ? literal::bound(n) : ternary::bound(s, n);
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  return is_literal(call.settings) ? literal::check(n, payload) : ternary::check("tbq", n, payload);
}

bool encode_ref(const Call& call, const Carry& in, std::uint8_t* out) {
  return ternary::encode(Rule(call.settings), in, out);
}

// HiPress' bytes have no vectors.
template <const block::Kernels& kWith>
constexpr block::Kernels kAnyMode = {
    .encode =
        [](const Call& call, const Carry& in, std::uint8_t* out) {
          const auto encode = is_literal(call.settings) ? literal::encode : kWith.encode;
          return encode(call, in, out);
        },
    .decode =
        [](const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
          const auto decode = is_literal(call.settings) ? literal::decode : kWith.decode;
          decode(call, payloads, how, out);
        }};

double contraction(const Settings& s, std::size_t n) {
  if (s[kTau] > 0 || is_literal(s)) return 1;
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, ternary::kBlock)) + 0x1p-20;
}

constexpr std::string_view kModes[] = {"blocks", "literal"};
constexpr ParamSpec kParams[] = {
    {"tau", 0, 0, 1e30,
     "threshold, and what is sent for a value that reaches it; 0 = from each block's values"},
    {"mode", 0, 0, 1, "blocks with their scales, or HiPress' bytes: codes alone, tau (or 1) known to all",
     kModes}};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<tbq_codec, check, kAnyMode<kSimd>>),
                           codec::reference(block::kImpl<tbq_codec, check, kAnyMode<kReference>>)};

}  // namespace

const block::Kernels kReference = {.encode = encode_ref, .decode = ternary::decode_ref};

}  // namespace tbq

const Codec tbq_codec = {.name = "tbq",
                         .doc = "plus or minus a threshold for values that reach it (Strom 2015; HiPress)",
                         .params = tbq::kParams,
                         .phases = tbq::kPhases,
                         .traits = {.fixed_size = true, .contraction = tbq::contraction},
                         .scratch = codec::no_scratch,
                         .impls = tbq::kImpls};

}  // namespace tithe
