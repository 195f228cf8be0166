// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/sparse.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "codec/shared/common/payload.h"

namespace tithe::sparse {

std::size_t count_of(double ratio, std::size_t n) {
  if (n == 0) return 0;
  const double k = std::ceil(ratio * static_cast<double>(n));
  if (k >= static_cast<double>(n)) return n;
  return std::max<std::size_t>(1, static_cast<std::size_t>(k));
}

Status check_values(std::string_view codec, std::size_t n) {
  if (n <= kMaxValues) return {};
  return {Code::kUnsupported, std::string(codec) + ": " + std::to_string(n) +
                                  " values in one payload, indices reach only " + std::to_string(kMaxValues) +
                                  ": cut it into partitions"};
}

// Indices must increase and be below n, so that decode needs no tests per value.
Status check(std::string_view codec, std::size_t n, std::size_t most, ByteView payload) {
  const auto corrupt = [&](const std::string& why) {
    return Status(Code::kCorrupt, std::string(codec) + why);
  };
  TITHE_TRY(check_values(codec, n));
  if (payload.size() >= kHead && is_packed(payload)) return check_packed(codec, n, most, payload);
  if (payload.size() < kHead)
    return corrupt(": payload of " + std::to_string(payload.size()) + " bytes has no count");
  const std::size_t count = wire::get<std::uint32_t>(payload.data());
  if (count > most)
    return corrupt(": " + std::to_string(count) + " pairs, at most " + std::to_string(most) + " fit " +
                   std::to_string(n) + " values");
  if (payload.size() != bytes(count))
    return corrupt(": payload of " + std::to_string(payload.size()) + " bytes, " + std::to_string(count) +
                   " pairs take " + std::to_string(bytes(count)));
  const Pairs pairs(payload);
  std::uint32_t unsorted = 0;
  for (std::size_t j = 1; j < count; ++j) unsorted |= pairs.index(j - 1) >= pairs.index(j);
  if (unsorted) return corrupt(": indices do not increase");
  if (count > 0 && pairs.index(count - 1) >= n)
    return corrupt(": index " + std::to_string(pairs.index(count - 1)) + " of " + std::to_string(n) +
                   " values");
  if (!values_hold(ValueForm::kF32, {pairs.values(), 4 * count}, count))
    return corrupt(": a value that is not finite");
  return {};
}

void clear_sent_ref(ByteView payload, float* values) {
  for (Cursor c(payload); !c.done(); c.next())
    if (c.value() != 0.0F) values[c.index()] = 0.0F;
}

void clear_sent_simd(ByteView payload, float* values) {
  std::uint32_t index[Unpacker::kMaxPairs];
  float value[Unpacker::kMaxPairs];
  Unpacker pairs(payload);
  for (std::size_t count = pairs.read(index, value); count > 0; count = pairs.read(index, value))
    for (std::size_t k = 0; k < count; ++k)
      if (value[k] != 0.0F) values[index[k]] = 0.0F;
}

void decode_ref(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  codec::begin_sum(merge, out);
  for (const ByteView payload : payloads)
    for (Cursor c(payload); !c.done(); c.next()) out[c.index()] += c.value();
  codec::end_sum(merge, out);
}

}  // namespace tithe::sparse
