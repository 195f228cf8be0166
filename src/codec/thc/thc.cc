// SPDX-License-Identifier: Apache-2.0
#include "codec/thc/thc.h"

#include <algorithm>
#include <numbers>
#include <span>

#include "base/finite.h"
#include "base/fold.h"
#include "codec/shared/common/block.h"
#include "codec/shared/rotation/rotation.h"

namespace tithe {
namespace thc {
namespace {

// ---- The reference

double squares(const EncodeInput& block) {
  Fold<double> sum;
  for (std::size_t i = 0; i < block.n; ++i) {
    const double v = block.value(i);
    sum.add(i, v * v);
  }
  return sum.total();
}

// Rotated value -> position in [0, top] on the grid -> stochastic rounding to a level.
bool levels(const Grid& grid, bool table, std::uint64_t own, const EncodeInput& block, Levels& out) {
  bool finite = true;
  Values x{};
  for (std::size_t i = 0; i < block.n; ++i) {
    const float v = block.value(i);
    finite = finite && is_finite(v);
    x[i] = rotation::turned(v * grid.inverse, grid.key, grid.first + i);
  }
  rotation::transform(x.data(), grid.width);
  const auto top = static_cast<float>(grid.top);
  for (std::size_t i = 0; i < grid.width; ++i) {
    const float at = x[i] * grid.per + grid.middle;
    const float held = at > 0 ? (at < top ? at : top) : 0.0F;
    out[i] = round(held, draw(own, grid.first + i), table);
  }
  return finite;
}

void values(const Grid& grid, unsigned added, const Levels& sums, Values& out) {
  std::array<std::int32_t, kBlock> x;
  for (std::size_t i = 0; i < grid.width; ++i)
    x[i] = static_cast<std::int32_t>(2 * sums[i]) - static_cast<std::int32_t>(added * grid.top);
  rotation::transform(x.data(), grid.width);
  for (std::size_t i = 0; i < grid.width; ++i) {
    out[i] = rotation::turned(static_cast<float>(x[i]) * grid.unit, grid.key, grid.first + i);
  }
}

// ---- Payloads

constexpr std::string_view kWords[] = {"2", "3", "4", "5", "6", "7", "8"};
constexpr std::string_view kModes[] = {"even", "literal"};
constexpr ParamSpec kParams[] = {
    {"bits", 2, 0, 6, "bits per value of one rank; int fields hold sums and are wider", kWords},
    {"mode", 0, 0, 1, "even: 2^bits levels, evenly spaced; literal: the published 16 of 31 levels", kModes},
    int_fields::kWorkers};

constexpr std::size_t kHead = 12;  // bytes before the ranges
constexpr std::size_t blocks(std::size_t n) { return (n + kBlock - 1) / kBlock; }

std::size_t bound_ranges(const Settings&, std::size_t n) { return kHead + 4 * blocks(n); }
std::size_t bound_fields(const Settings& s, std::size_t n) {
  const Quantizer quantizer(s);
  return int_fields::bytes(fields_for(n), int_fields::bits_for(quantizer.top, quantizer.most));
}
int_fields::Form form(const Settings& s, std::size_t n) {
  const Quantizer quantizer(s);
  return {"thc", fields_for(n), quantizer.top, quantizer.most};
}

unsigned workers_of(ByteView ranges) { return wire::get<std::uint16_t>(ranges.data()); }
std::uint64_t key_of(ByteView ranges) { return wire::get<std::uint64_t>(ranges.data() + 4); }
float range_of(ByteView ranges, std::size_t block) {
  return wire::get<float>(ranges.data() + kHead + 4 * block);
}

Status check_ranges(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("thc", payload.size(), bound_ranges(call.settings, n)));
  const Quantizer quantizer(call.settings);
  if (workers_of(payload) == 0 || workers_of(payload) > quantizer.most)
    return {Code::kCorrupt, "thc: more ranks than workers= allows"};
  if (wire::get<std::uint16_t>(payload.data() + 2) != quantizer.top)
    return {Code::kCorrupt, "thc: other levels"};
  for (std::size_t b = 0; b < blocks(n); ++b) {
    const float range = range_of(payload, b);
    if (std::bit_cast<std::uint32_t>(range) != 0 && !(range >= kMinRange && range <= kMaxFloat))
      return {Code::kCorrupt, "thc: no range"};
  }
  return {};
}

template <const Kernels& kWith>
Status check(const Call& call, std::size_t n, ByteView payload) {
  return call.phase == 0 ? check_ranges(call, n, payload)
                         : int_fields::check(kWith.fields, form(call.settings, n), payload);
}

Result<Combined> widest(const Call& call, std::size_t n, Bytes acc, ByteView in) {
  TITHE_TRY(codec::check_size("thc", in.size(), acc.size()));
  TITHE_TRY(check_ranges(call, n, in));
  if (key_of(acc) != key_of(in)) return Status(Code::kCorrupt, "thc: ranks drew different signs");
  TITHE_TRY(int_fields::count(form(call.settings, n), call, acc, in));
  for (std::size_t b = 0; b < blocks(n); ++b)
    wire::put(&acc[kHead + 4 * b], std::max(range_of(acc, b), range_of(in, b)));
  return Combined{};
}

template <const Kernels& kWith>
Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
  if (call.phase == 0) return widest(call, n, acc, in);
  TITHE_TRY(int_fields::add(kWith.fields, form(call.settings, n), call, acc, in));
  return Combined{};
}

// ---- Encode and decode

Encoded encode_ranges(const Kernels& with, const Call& call, const EncodeInput& in, Bytes out) {
  const Quantizer quantizer(call.settings);
  wire::put(out.data(), std::uint16_t{1});
  wire::put(out.data() + 2, static_cast<std::uint16_t>(quantizer.top));
  wire::put(out.data() + 4, rng_key(call.shared_seed, call.round, call.tensor, call.chunk, call.phase));
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput block = block::part(in, first, std::min(kBlock, in.n - first));
    const double energy = with.squares(block);
    finite = finite && std::isfinite(energy);  // squares of floats do not overflow
    const double range = quantizer.reach * std::sqrt(energy / static_cast<double>(width(block.n)));
    const bool some = std::isfinite(energy) && range >= double{kMinRange};
    wire::put(&out[kHead + first / kBlock * 4],
              some ? static_cast<float>(std::min<double>(range, kMaxFloat)) : 0.0F);
  }
  return {bound_ranges(call.settings, in.n), finite};
}

// A block with range 0 sends zeros and keeps its values as the residual. Beyond kSafeRange the decoded values could
// overflow, so they are computed even without a residual.
Encoded encode_fields(const Kernels& with, const Call& call, const EncodeInput& in, Bytes out) {
  const Quantizer quantizer(call.settings);
  const std::uint64_t own = rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
  const unsigned bits = int_fields::bits_for(quantizer.top, workers_of(call.context));
  bool finite = true;
  Levels steps;
  Values sent;
  int_fields::put_head(out.data(), {1, bits});
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput block = block::part(in, first, std::min(kBlock, in.n - first));
    const float range = range_of(call.context, first / kBlock);
    if (range == 0.0F) {
      finite = std::isfinite(with.squares(block)) && finite;
      steps.fill(0);
      for (std::size_t i = 0; i < block.n; ++i) block.store_residual(i, 0.0F);
    } else {
      const Grid grid(quantizer, key_of(call.context), first, block.n, range);
      finite = with.levels(grid, quantizer.table, own, block, steps) && finite;
      if (in.residual_out || range > kSafeRange) {
        with.values(grid, 1, steps, sent);
        for (std::size_t i = 0; i < block.n; ++i) block.store_residual(i, sent[i]);
        finite = all_finite(in.residual_out ? std::span(block.residual_out, block.n)
                                            : std::span(sent.data(), block.n)) &&
                 finite;
      }
    }
    with.fields.pack(steps.data(), first, width(block.n), bits, out.data());
  }
  return {int_fields::bytes(fields_for(in.n), bits), finite};
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const Phase& phase = thc_codec.phases[call.phase];
  TITHE_TRY(codec::check_room("thc", out.size(), phase.bound(call.settings, in.n)));
  return call.phase == 0 ? encode_ranges(kWith, call, in, out) : encode_fields(kWith, call, in, out);
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(check<kWith>, call, payloads, out.size()));
  const Quantizer quantizer(call.settings);
  const unsigned bits = int_fields::bits_for(quantizer.top, workers_of(call.context));
  for (const ByteView p : payloads)
    if (int_fields::head_of(p).bits != bits || int_fields::head_of(p).added > workers_of(call.context))
      return {Code::kCorrupt, "thc: int fields for another number of ranks"};
  Levels sums;
  Values sum, values;
  for (std::size_t first = 0; first < out.size(); first += kBlock) {
    const std::size_t len = std::min(kBlock, out.size() - first);
    const float range = range_of(call.context, first / kBlock);
    // A single payload keeps -0.
    const bool starts = merge.base == nullptr && !payloads.empty() && range != 0.0F;
    std::fill_n(sum.begin(), len, 0.0F);
    if (merge.base) std::copy_n(merge.base + first, len, sum.begin());
    for (std::size_t p = 0; p < payloads.size() && range != 0.0F; ++p) {
      const Grid grid(quantizer, key_of(call.context), first, len, range);
      kWith.fields.unpack(payloads[p].data(), first, grid.width, bits, sums.data());
      kWith.values(grid, int_fields::head_of(payloads[p]).added, sums, values);
      for (std::size_t i = 0; i < len; ++i) sum[i] = starts && p == 0 ? values[i] : sum[i] + values[i];
    }
    for (std::size_t i = 0; i < len; ++i)
      out[first + i] = merge.divide == 1.0F ? sum[i] : sum[i] / merge.divide;
  }
  return {};
}

// Stochastic rounding loses at most a quarter of a step's square; a step is 2 reach / top standard deviations. Clipping
// at the range: the tails of H with random signs are below 2 exp(-u^2 / 2) (Hoeffding), so the mean of (|y| - t)^2
// beyond t is at most the integral of 4 (u - t) exp(-u^2 / 2).
double contraction(const Settings& s, std::size_t) {
  const Quantizer quantizer(s);
  const double t = quantizer.reach;
  const double widest = quantizer.table ? 3.0 : 1.0;  // gap between neighbours
  const double step = widest * t / quantizer.top;
  const double tail =
      std::exp(-t * t / 2) - t * std::sqrt(std::numbers::pi / 2) * std::erfc(t / std::sqrt(2.0));
  return step * step + 4 * tail + 0x1p-20;
}

constexpr Law kLargest[] = {Law::kMax};
constexpr Law kAdds[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "ranges", .laws = kLargest, .bound = bound_ranges},
                             {.name = "levels", .laws = kAdds, .bound = bound_fields}};
template <const Kernels& kWith>
constexpr Impl kImpl = {
    .encode = encode<kWith>, .decode = decode<kWith>, .check = check<kWith>, .combine = combine<kWith>};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {
    .squares = squares, .levels = levels, .values = values, .fields = int_fields::kReference};

}  // namespace thc

const Codec thc_codec = {
    .name = "thc",
    .doc = "levels of rotated values, added as whole numbers (Li et al. 2024)",
    .params = thc::kParams,
    .phases = thc::kPhases,
    .traits = {.one_pass_feedback = false, .adds_transformed = true, .contraction = thc::contraction},
    .scratch = codec::no_scratch,
    .impls = thc::kImpls};

}  // namespace tithe
