// SPDX-License-Identifier: Apache-2.0
#include "codec/threshold/threshold.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/select.h"
#include "codec/shared/sparse/select_fast.h"
#include "codec/shared/sparse/sparse_typical.h"
#include "codec/shared/sparse/sparsifier.h"

namespace tithe {
namespace threshold {
namespace {

enum Param : std::size_t { kTau, kForm };
constexpr ParamSpec kParams[] = {
    {"tau", 0.01, 0, 1e38, "smallest magnitude that is sent, in units of gradient plus residual"},
    sparse::kValuesParam,
    sparse::kIndicesParam};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }

std::uint32_t least(const Settings& s) {
  return std::max<std::uint32_t>(1, sparse::magnitude(static_cast<float>(s[kTau])));
}

std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), n, n); }

// The unsent rest of a value adds up until it passes tau: in steps of the usual deviation that takes (tau + 0.58)^2 of
// them, the mean time until a random walk passes a barrier, which it oversteps by 0.58 (Siegmund 1985).
std::size_t typical(const Settings& s, std::size_t n) {
  constexpr double kOver = 0.583;
  const double steps = s[kTau] / codec::kUsualDeviation + kOver;
  return sparse::typical(form(s), static_cast<double>(n) * std::min(1.0, 1 / (steps * steps)), n);
}

Status check(const Call&, std::size_t n, ByteView payload) {
  return sparse::check("threshold", n, n, payload);
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("threshold", in.n));
  TITHE_TRY(codec::check_room("threshold", out.size(), bound(call.settings, in.n)));
  return select::send_from(least(call.settings), {.k = in.n, .most = in.n}, form(call.settings), in, out);
}

// Scratch: the indices of one segment, then all values; the offset of the values in the payload is known at the end
// only.
struct Layout {
  std::size_t index;  // elements
  std::size_t value;
  std::size_t bytes() const { return 4 * (index + value); }
};
Layout layout(std::size_t n) {
  return {.index = std::min(n, select::kSegment) + select::kSlack, .value = n + select::kSlack};
}

std::size_t own_scratch(const Settings&, std::size_t n) { return layout(n).bytes(); }
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), n);
}

Result<Encoded> encode_plain(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("threshold", in.n));
  TITHE_TRY(codec::check_room("threshold", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("threshold", call.scratch.size(), scratch(call.settings, in.n)));
  auto* index = reinterpret_cast<std::uint32_t*>(call.scratch.data());
  auto* value = reinterpret_cast<float*>(index + layout(in.n).index);
  std::uint8_t* const to = out.data() + sparse::kHead;
  std::size_t count = 0;
  std::uint32_t peak = 0;
  for (std::size_t start = 0; start < in.n; start += select::kSegment) {
    const std::size_t length = std::min(select::kSegment, in.n - start);
    const select::Found found =
        select::collect(in, start, length, least(call.settings), index, value + count);
    std::memcpy(to + 4 * count, index, 4 * found.count);
    count += found.count;
    peak = std::max(peak, found.peak);
  }
  std::memcpy(to + 4 * count, value, 4 * count);
  wire::put(out.data(), static_cast<std::uint32_t>(count));
  return Encoded{.bytes = sparse::bytes(count), .finite = peak < sparse::kFirstNonFinite};
}

// Traits::error for values that are sent as they are; the rounded forms give no bound.
double error(const Settings& s, double, double) {
  return form(s).values == sparse::ValueForm::kF32 ? static_cast<float>(s[kTau])
                                                   : std::numeric_limits<double>::infinity();
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound}};
constexpr std::span<const Impl> kImpls =
    sparse::kImpls<threshold_codec, kForm, check, encode, encode_plain, own_scratch>;

}  // namespace
}  // namespace threshold

const Codec threshold_codec = {.name = "threshold",
                               .doc = "every value at or above a magnitude that you give",
                               .params = threshold::kParams,
                               .phases = threshold::kPhases,
                               .traits = {.exact_ledger = true, .selects = true, .error = threshold::error},
                               .scratch = threshold::scratch,
                               .impls = threshold::kImpls};

std::size_t threshold_typical(const Settings& s, std::size_t n) { return threshold::typical(s, n); }

}  // namespace tithe
