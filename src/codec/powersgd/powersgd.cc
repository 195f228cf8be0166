// SPDX-License-Identifier: Apache-2.0
#include "codec/powersgd/powersgd.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/finite.h"
#include "base/fold.h"
#include "base/rng.h"
#include "codec/shared/common/float_sums.h"
#include "codec/shared/common/payload.h"

namespace tithe {
namespace powersgd {
namespace {

enum Param : std::size_t { kRank, kCols };
constexpr ParamSpec kParams[] = {
    whole_number({"rank", 4, 1, kMaxRank, "columns of each factor (whole number)"}),
    whole_number({"cols",
                  0,
                  0,
                  0x1p31,
                  "values per row of the matrix (whole number); 0 = the tensor's rows, or a square",
                  {},
                  Role::kCols})};

std::size_t whole(double v) { return static_cast<std::size_t>(v); }

std::size_t factor_p(const MatrixShape& s) { return s.rows * s.rank; }
std::size_t factor_q(const MatrixShape& s) { return s.cols * s.rank; }

std::size_t bound_p(const Settings& s, std::size_t n) { return kHead + 4 * factor_p(shape_of(s, n)); }
std::size_t bound_q(const Settings& s, std::size_t n) {
  const MatrixShape shape = shape_of(s, n);
  return 4 * (shape.rank == 0 ? n : factor_q(shape));
}
std::size_t memory(const Settings& s, std::size_t n) { return 4 * factor_q(shape_of(s, n)); }

Status check_p(const Call& call, std::size_t n, ByteView payload) {
  const MatrixShape shape = shape_of(call.settings, n);
  TITHE_TRY(codec::check_size("powersgd", payload.size(), bound_p(call.settings, n)));
  const bool same = wire::get<std::uint32_t>(payload.data()) == shape.rank &&
                    wire::get<std::uint32_t>(payload.data() + 4) == shape.cols &&
                    (shape.rank != 0 || wire::get<std::uint64_t>(payload.data() + 8) == 0);
  return same ? Status() : Status(Code::kCorrupt, "powersgd: a factor of another shape");
}
Status check_q(const Call& call, std::size_t n, ByteView payload) {
  return codec::check_size("powersgd", payload.size(), bound_q(call.settings, n));
}
constexpr codec::Check check = codec::by_phase<check_p, check_q>;

// ---- Room

struct Room {
  double* work;  // rows x rank
  float* p;      // rows x rank
  float* q;      // rank x width
};
constexpr std::size_t up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
std::size_t scratch(const Settings& s, std::size_t n) {
  const MatrixShape shape = shape_of(s, n);
  return up(8 * factor_p(shape)) + up(4 * factor_p(shape)) + up(4 * shape.rank * shape.width);
}
Room room_in(Bytes scratch, const MatrixShape& s) {
  std::uint8_t* work = scratch.data();
  std::uint8_t* p = work + up(8 * factor_p(s));
  return {reinterpret_cast<double*>(work), reinterpret_cast<float*>(p),
          reinterpret_cast<float*>(p + up(4 * factor_p(s)))};
}

void read(ByteView from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = wire::get<float>(&from[4 * i]);
}

// Rows in a payload have cols values; in Room zeros extend them to width.
void read_q(ByteView from, const MatrixShape& s, float* q) {
  for (std::size_t k = 0; k < s.rank; ++k) {
    read(from.subspan(4 * k * s.cols), s.cols, q + k * s.width);
    std::fill(q + k * s.width + s.cols, q + (k + 1) * s.width, 0.0F);
  }
}
void write_q(const MatrixShape& s, const float* q, Bytes to) {
  for (std::size_t k = 0; k < s.rank; ++k)
    for (std::size_t j = 0; j < s.cols; ++j) wire::put(&to[4 * (k * s.cols + j)], q[k * s.width + j]);
}

// ---- Q from round to round

int smaller_by(const MatrixShape& s) { return 8 + static_cast<int>(std::bit_width(s.cols)); }

// The Q of this round's start: the memory, with random numbers for columns that are 0.
void begin(const Call& call, const MatrixShape& s, float* q) {
  if (call.memory.empty())
    std::fill(q, q + s.rank * s.width, 0.0F);
  else
    read_q(call.memory, s, q);
  const std::uint64_t key = rng_key(call.shared_seed, call.round, call.tensor, call.chunk, call.phase);
  const float unit = std::ldexp(0x1p-23F, -smaller_by(s));
  for (std::size_t k = 0; k < s.rank; ++k) {
    float* column = q + k * s.width;
    if (std::any_of(column, column + s.cols, [](float v) { return v != 0.0F; })) continue;
    for (std::size_t j = 0; j < s.cols; ++j)
      column[j] =
          unit * static_cast<float>(
                     static_cast<std::int32_t>(draw32(key, static_cast<std::uint32_t>(k * s.cols + j))) >> 8);
  }
}

std::uint64_t hash(const MatrixShape& s, const float* q) {
  std::uint64_t h = s.cols;
  for (std::size_t i = 0; i < s.rank * s.width; i += 2)
    h = mix64(h ^ (std::uint64_t{std::bit_cast<std::uint32_t>(q[i])} |
                   std::uint64_t{std::bit_cast<std::uint32_t>(q[i + 1])} << 32));
  return h;
}

// A column below this counts as 0 (its power of two would not be reliable), as does one that is not finite.
constexpr float kMinColumn = 0x1p-100F;

// Stores the next round's Q: each column is scaled by a power of two to the range that powersgd.h states. A column
// that is tiny or not finite becomes 0, and is drawn anew in the next round.
void remember(const MatrixShape& s, const float* q, Bytes memory) {
  for (std::size_t k = 0; k < s.rank; ++k) {
    const float* column = q + k * s.width;
    float most = 0;
    bool finite = true;
    for (std::size_t j = 0; j < s.cols; ++j) {
      most = std::max(most, std::fabs(column[j]));
      finite = finite && is_finite(column[j]);
    }
    int exponent = 0;
    std::frexp(most, &exponent);
    const double by = finite && most >= kMinColumn ? std::ldexp(1.0, -exponent - smaller_by(s)) : 0;
    for (std::size_t j = 0; j < s.cols; ++j)
      wire::put(&memory[4 * (k * s.cols + j)], by == 0 ? 0.0F : static_cast<float>(by * double{column[j]}));
  }
}

// ---- Encode and decode

template <const Kernels& kWith>
Result<Encoded> encode_p(const Call& call, const EncodeInput& in, const MatrixShape& s, Bytes out) {
  wire::put(out.data(), static_cast<std::uint32_t>(s.rank));
  wire::put(out.data() + 4, static_cast<std::uint32_t>(s.cols));
  if (s.rank == 0) {
    wire::put(out.data() + 8, std::uint64_t{0});
    bool finite = true;
    for (std::size_t i = 0; i < in.n; ++i) finite = finite && is_finite(in.value(i));
    return Encoded{kHead, finite};
  }
  const Room room = room_in(call.scratch, s);
  begin(call, s, room.q);
  wire::put(out.data() + 8, hash(s, room.q));
  kWith.times({in, s, 0}, room.q, room.p);
  bool finite = true;  // no column of Q is 0 and no sum overflows, so a NaN or Inf in M shows in P
  for (std::size_t i = 0; i < factor_p(s); ++i) {
    finite = finite && is_finite(room.p[i]);
    wire::put(&out[kHead + 4 * i], room.p[i]);
  }
  return Encoded{kHead + 4 * factor_p(s), finite};
}

// Below this limit no partial sum has overflowed, in any order, and the sums of 256 ranks add up to a finite value.
constexpr float kLargeSum = 0x1p112F;
constexpr float kShrink = 0x1p-40F;

// True if all sums are finite and below the limit.
bool all_moderate(const float* v, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i)
    most = std::max(most, std::bit_cast<std::uint32_t>(v[i]) & 0x7fffffffU);
  return most < std::bit_cast<std::uint32_t>(kLargeSum);
}

// Phase 1: P^ is the orthonormalised sum of all P; Q = M' P^ and the residual is M - P^ Q'. If Q could overflow in
// the sum over ranks, it is computed from kShrink M.
template <const Kernels& kWith>
Result<Encoded> encode_q(const Call& call, const EncodeInput& in, const MatrixShape& s, Bytes out) {
  if (s.rank == 0) {
    const bool finite = sums::encode_from(0, in, out.data());
    return Encoded{4 * in.n, finite};
  }
  const Room room = room_in(call.scratch, s);
  const std::size_t sums = s.rank * s.width;
  read(call.context.subspan(kHead), factor_p(s), room.p);
  make_orthonormal(s.rows, s.rank, room.p, room.work);
  const Rows all = {in, s, 0};
  std::fill(room.q, room.q + sums, 0.0F);
  kWith.transposed_times(all, room.p, room.q);
  if (!all_moderate(room.q, sums)) {
    std::fill(room.q, room.q + sums, 0.0F);
    transposed_times_from(all, room.p, kShrink, room.q);
  }
  const bool finite = all_moderate(room.q, sums);
  write_q(s, room.q, out);
  if (in.residual_out) kWith.store_residual(all, room.p, room.q);
  return Encoded{4 * factor_q(s), finite};
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const MatrixShape s = shape_of(call.settings, in.n);
  const Phase& phase = powersgd_codec.phases[call.phase];
  TITHE_TRY(codec::check_room("powersgd", out.size(), phase.bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("powersgd", call.scratch.size(), scratch(call.settings, in.n)));
  return call.phase == 0 ? encode_p<kWith>(call, in, s, out) : encode_q<kWith>(call, in, s, out);
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  TITHE_TRY(codec::check_scratch("powersgd", call.scratch.size(), scratch(call.settings, out.size())));
  const MatrixShape s = shape_of(call.settings, out.size());
  if (s.rank == 0 || payloads.empty()) {
    codec::merge_values(payloads, merge, out, sums::value_at);
    std::fill(call.next_memory.begin(), call.next_memory.end(), std::uint8_t{0});
    return {};
  }
  const Room room = room_in(call.scratch, s);
  read(call.context.subspan(kHead), factor_p(s), room.p);
  make_orthonormal(s.rows, s.rank, room.p, room.work);
  for (std::size_t k = 0; k < payloads.size(); ++k) {
    read_q(payloads[k], s, room.q);
    kWith.values(
        s, room.p, room.q,
        {.base = k == 0 ? merge.base : out.data(), .divide = k + 1 == payloads.size() ? merge.divide : 1.0F},
        out);
  }
  if (call.next_memory.empty()) return {};
  for (std::size_t k = 0; k + 1 < payloads.size(); ++k)
    for (std::size_t i = 0; i < factor_q(s); ++i)
      room.q[i / s.cols * s.width + i % s.cols] += wire::get<float>(&payloads[k][4 * i]);
  remember(s, room.q, call.next_memory);
  return {};
}

Result<Combined> add_p(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(check_p(call, n, acc));
  TITHE_TRY(check_p(call, n, in));
  if (std::memcmp(acc.data(), in.data(), kHead) != 0)
    return Status(Code::kCorrupt,
                  "powersgd: ranks have different factors of the last round: restore states of the same "
                  "round on all ranks, or on none");
  return Combined{sums::add(acc.subspan(kHead), in.subspan(kHead))};
}
Result<Combined> add_q(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(check_q(call, n, acc));
  TITHE_TRY(check_q(call, n, in));
  return Combined{sums::add(acc, in)};
}

constexpr Law kSumLaw[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "rows", .laws = kSumLaw, .bound = bound_p},
                             {.name = "columns", .laws = kSumLaw, .bound = bound_q}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>,
                        .decode = decode<kWith>,
                        .check = check,
                        .combine = codec::by_phase<add_p, add_q>};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

MatrixShape shape_of(const Settings& s, std::size_t n) {
  MatrixShape shape{.n = n};
  shape.cols = whole(s[kCols]);
  if (shape.cols == 0) {
    shape.cols = whole(std::sqrt(static_cast<double>(n)));
    while (shape.cols * shape.cols < n) ++shape.cols;
  }
  shape.rank = whole(s[kRank]);
  if (shape.cols > 0) shape.rows = (n + shape.cols - 1) / shape.cols;
  if (shape.rank * (shape.rows + shape.cols) >= n) return {.n = n};
  shape.width = (shape.cols + kWide - 1) / kWide * kWide;
  return shape;
}

// ---- The products, value by value

namespace {
std::size_t row_length(const MatrixShape& s, std::size_t i) { return std::min(s.cols, s.n - i * s.cols); }
}  // namespace

void times_from(const Rows& m, const float* q, float* p) {
  const MatrixShape& s = m.shape;
  for (std::size_t i = m.first; i < s.rows; ++i)
    for (std::size_t k = 0; k < s.rank; ++k) {
      Fold<float> sum;
      for (std::size_t j = 0; j < row_length(s, i); ++j)
        sum.add(j, m.in.value(i * s.cols + j) * q[k * s.width + j]);
      p[i * s.rank + k] = sum.total();
    }
}

void transposed_times_from(const Rows& m, const float* p, float scale, float* q) {
  const MatrixShape& s = m.shape;
  for (std::size_t i = m.first; i < s.rows; ++i)
    for (std::size_t j = 0; j < row_length(s, i); ++j)
      for (std::size_t k = 0; k < s.rank; ++k)
        q[k * s.width + j] += m.in.value(i * s.cols + j) * scale * p[i * s.rank + k];
}

void store_residual_from(const Rows& m, const float* p, const float* q) {
  const MatrixShape& s = m.shape;
  for (std::size_t i = m.first; i < s.rows; ++i)
    for (std::size_t j = 0; j < row_length(s, i); ++j)
      m.in.store_residual(i * s.cols + j, value(s, p, q, i, j));
}

void values_from(const MatrixShape& s, std::size_t first, const float* p, const float* q, const Merge& merge,
                 std::span<float> out) {
  for (std::size_t i = first; i < s.rows; ++i)
    for (std::size_t j = 0; j < row_length(s, i); ++j) {
      const std::size_t at = i * s.cols + j;
      out[at] = codec::merged(merge, at, value(s, p, q, i, j));
    }
}

const Kernels kReference = {
    .times = times_from,
    .transposed_times = [](const Rows& m, const float* p, float* q) { transposed_times_from(m, p, 1.0F, q); },
    .store_residual = store_residual_from,
    .values = [](const MatrixShape& s, const float* p, const float* q, const Merge& merge,
                 std::span<float> out) { values_from(s, 0, p, q, merge, out); }};

}  // namespace powersgd

const Codec powersgd_codec = {
    .name = "powersgd",
    .doc = "two factors of low rank, starting from the last round's (Vogels et al. 2019)",
    .params = powersgd::kParams,
    .phases = powersgd::kPhases,
    .traits = {.fixed_size = true, .one_pass_feedback = false, .adds_transformed = true},
    .scratch = powersgd::scratch,
    .memory = powersgd::memory,
    .impls = powersgd::kImpls};

}  // namespace tithe
