// SPDX-License-Identifier: Apache-2.0
// Weight differences (codec/shared/delta/delta.h). `delta` decodes any payload with both implementations. `delta_step`
// encodes any two versions of weights and decodes them again. `delta_words` reads any floats as a packed payload.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/rng.h"
#include "codec/shared/delta/delta.h"
#include "codec/shared/delta/delta_passes.h"
#include "fuzz/targets.h"

namespace tithe::fuzz {
namespace {

using delta::Format;
using Weights = std::vector<std::uint16_t>;

// Bytes of an input before its payload: the format, the number of values, and the seed of the previous weights.
constexpr std::size_t kHead = 4;

Weights previous(std::size_t n, std::uint8_t seed) {
  Weights out(n);
  for (std::size_t i = 0; i < n; ++i) {
    // Exponents of some neighbouring classes, as weights have; seed 0: all bits at random.
    const std::uint64_t draw = mix64(i + (std::uint64_t{seed} << 32));
    const auto bits = static_cast<std::uint16_t>(draw);
    out[i] = seed == 0 ? bits : static_cast<std::uint16_t>((bits & 0x81ff) | 0x3c00);
  }
  return out;
}

Input encoded(Format format, const Weights& before, const Weights& now) {
  Input payload(delta::bound(now.size()));
  payload.resize(delta::encode(format, before, now, payload));
  return payload;
}

void decode_any(ByteView bytes) {
  if (bytes.size() < kHead) return;
  const Format format = (bytes[0] & 1) != 0 ? Format::kFp16 : Format::kBf16;
  const std::size_t n = wire::get<std::uint16_t>(bytes.data() + 1);
  const Weights before = previous(n, bytes[3]);
  Input payload(bytes.begin() + kHead, bytes.end());
  if (payload.size() >= 8)  // otherwise no mutation would get past the checksum
    wire::put(payload.data(), std::uint64_t{XXH3_64bits(before.data(), sizeof(std::uint16_t) * n)});
  Weights simd(n), reference(n);
  const Status s = delta::decode_by(delta::kSimd, format, before, payload, simd);
  const Status r = delta::decode_by(delta::kReference, format, before, payload, reference);
  if (s.code() != r.code())
    fail(fmt::format("delta: SIMD says {}, the reference {}", name(s.code()), name(r.code())));
  if (!s.ok()) {
    if (s.code() != Code::kCorrupt) fail(fmt::format("delta: {} for damaged bytes", name(s.code())));
    return;
  }
  if (simd != reference) fail("delta: SIMD and the reference decode different weights");
  Weights again(n);
  if (!delta::decode(format, before, encoded(format, before, simd), again).ok() || again != simd)
    fail("delta: encoding and decoding the decoded weights changes them");
}

void encode_any(ByteView bytes) {
  const std::size_t n = bytes.size() / (2 * sizeof(std::uint16_t));
  Weights before(n), now(n);
  if (n > 0) {
    std::memcpy(before.data(), bytes.data(), sizeof(std::uint16_t) * n);
    std::memcpy(now.data(), bytes.data() + sizeof(std::uint16_t) * n, sizeof(std::uint16_t) * n);
  }
  for (const Format format : {Format::kBf16, Format::kFp16}) {
    const Input payload = encoded(format, before, now);
    Input reference(delta::bound(n));
    reference.resize(delta::encode_by(delta::kReference, format, before, now, reference));
    if (payload != reference) fail("delta: SIMD and the reference encode different bytes");
    Weights out = before;
    if (!delta::decode(format, out, payload, out).ok() || out != now) fail("delta: a step is not lossless");
    std::vector<float> words(delta::words(payload.size()));
    delta::pack(payload, words);
    Input room(payload.size());
    const Result<std::size_t> size = delta::unpack(words, room);
    if (!size.ok() || *size != payload.size() || room != payload)
      fail("delta: packing the words gives a different payload");
  }
}

void unpack_any(ByteView bytes) {
  std::vector<float> words(bytes.size() / sizeof(float));
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), sizeof(float) * words.size());
  Input room(4 * words.size());
  const Result<std::size_t> size = delta::unpack(words, room);
  if (!size.ok() && size.status().code() != Code::kCorrupt) fail("delta: unpack does not return kCorrupt");
  if (size.ok() && *size > room.size()) fail("delta: unpack writes past the end of its buffer");
}

Target decode_target() {
  std::vector<Input> seeds;
  for (const std::uint8_t seed : {std::uint8_t{0}, std::uint8_t{1}})
    for (const std::size_t n : {0U, 1U, 40U, 3000U}) {
      const Weights before = previous(n, seed);
      Weights now = before;
      for (std::size_t i = 0; i < n; ++i) now[i] = static_cast<std::uint16_t>(now[i] + mix64(i) % 3);
      Input input{0, 0, 0, seed};
      wire::put(&input[1], static_cast<std::uint16_t>(n));
      const Input payload = encoded(Format::kBf16, before, now);
      input.insert(input.end(), payload.begin(), payload.end());
      seeds.push_back(std::move(input));
    }
  return {"delta", decode_any, std::move(seeds)};
}

Target step_target() {
  Input same(800), near(8000);
  for (std::size_t i = 0; i < near.size(); ++i)
    near[i] = static_cast<std::uint8_t>(i % 2 == 0 ? mix64(i % 4000) + i / 4000 : 0x3c);
  return {"delta_step", encode_any, {same, near}};
}

Target words_target() {
  std::vector<float> words(delta::words(10));
  delta::pack(Input{0, 1, 2, 3, 4, 5, 6, 7, 8, 255}, words);
  Input bytes(sizeof(float) * words.size());
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return {"delta_words", unpack_any, {bytes}};
}

}  // namespace

void add_delta_targets(std::vector<Target>& targets) {
  targets.push_back(decode_target());
  targets.push_back(step_target());
  targets.push_back(words_target());
}

}  // namespace tithe::fuzz
