// SPDX-License-Identifier: Apache-2.0
// Several blocks side by side, one per lane: value i of all blocks is one vector, so each operation of the reference is
// one vector operation here, and no butterfly shuffles lanes. Values are transposed in 4 x 4 tiles on their way in and
// out. The transform goes depth first, two stages at a time, so its smaller half stays in the L1 cache.
#include <cstring>

#include "codec/fft/fft.h"
#include "codec/shared/common/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/fft/fft_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/fft/fft_abreast_inl.h"
#include "codec/shared/floats/range_codes_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fft::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_SCALAR  // no vectors: the reference does all

std::size_t encode(const Head&, const EncodeInput&, std::uint8_t*, std::uint8_t*, bool&) { return 0; }
std::size_t decode(const Head&, std::span<const ByteView>, const Merge&, std::span<float>, std::uint8_t*) {
  return 0;
}

#else
using namespace range::HWY_NAMESPACE;
using range::HWY_NAMESPACE::magnitude;

HWY_INLINE VF load_value_at(const EncodeInput& in, std::size_t i) {
  return in.residual ? load_value<true>(in, i) : load_value<false>(in, i);
}

// `count` blocks of L values from `first` on. Lanes without a block see zeros.
struct Group {
  std::size_t first;
  std::size_t count;
};

void load_values(const EncodeInput& in, const Group& g, const fourier::Tables& t,
                 const Scale (&scale)[kWidth], float* z) {
  HWY_ALIGN float down[kWidth];
  HWY_ALIGN std::uint32_t live[kWidth];
  std::size_t row[kWidth];
  for (std::size_t r = 0; r < kWidth; ++r) {
    const bool lives = r < g.count && scale[r].down > 0;
    down[r] = scale[r].down;
    live[r] = lives ? ~0U : 0U;
    row[r] = g.first + (lives ? r * 2 * t.length : 0);
  }
  const VF by = hn::Load(Floats(), down);
  const VW mask = hn::Load(Words(), live);
  // Rows are so far apart that few of their lines fit in the cache at once.
  HWY_ALIGN float tile[kWidth * kWidth];
  for (std::size_t i = 0; i < 2 * t.length; i += kWidth) {
    for (std::size_t r = 0; r < kWidth; ++r)
      hn::Store(load_value_at(in, row[r] + i), Floats(), tile + r * kWidth);
    for (std::size_t column = 0; column < kWidth; column += 4) {
      VF v[4];
      for (std::size_t r = 0; r < 4; ++r) v[r] = load_quads(tile + r * kWidth + column);
      turn_quads(v);
      for (VF& value : v) value = hn::Mul(from_bits(hn::And(mask, bits(value))), by);
      const std::size_t j = (i + column) / 2;
      put(z, t.bit_reversed[j], {v[0], v[1]});
      put(z, t.bit_reversed[j + 1], {v[2], v[3]});
    }
  }
}

// Calls emit(i, values from i on) with a vector of each block in turn.
template <typename Emit>
HWY_INLINE void for_values(const Group& g, const fourier::Tables& t, const float* z, Emit emit) {
  HWY_ALIGN float tile[kWidth * kWidth];
  for (std::size_t i = 0; i < 2 * t.length; i += kWidth) {
    for (std::size_t column = 0; column < kWidth; column += 4) {
      const std::size_t j = (i + column) / 2;
      const Z a = get(z, j), b = get(z, j + 1);
      VF v[4] = {a.im, a.re, b.im, b.re};
      turn_quads(v);
      for (std::size_t r = 0; r < 4; ++r) store_quads(v[r], tile + r * kWidth + column);
    }
    for (std::size_t r = 0; r < g.count; ++r)
      emit(g.first + r * 2 * t.length + i, hn::Load(Floats(), tile + r * kWidth));
  }
}

std::uint32_t largest_of(const EncodeInput& in, std::size_t first, std::size_t length) {
  VW most = hn::Zero(Words());
  for (std::size_t i = first; i < first + length; i += kWidth) {
    most = hn::Max(most, magnitude(load_value_at(in, i)));
  }
  return hn::GetLane(hn::MaxOfLanes(Words(), most));
}

// ---- Which bins are sent

// The selected bins of one block: those with an energy above `above`, and the first `ties` with an energy equal to it.
// Energies as integers, which have the same order; -1: all bins.
struct Choice {
  std::int32_t above[kWidth];
  std::int32_t ties[kWidth];
};

// One lane's search: the k-th largest energy is in [low, high); at_low and at_high bins reach low and high.
struct Bracket {
  std::uint32_t low = 0, high;
  std::uint32_t at_low, at_high = 0;

  bool open(std::size_t k) const { return at_low != k && high - low > 1; }
  // The next guess assumes that energies fall off exponentially; every third guess is the middle, for other energies.
  std::uint32_t guess(std::size_t k, int round) const {
    const std::uint32_t middle = low + (high - low) / 2;
    if (round % 3 == 2) return middle;
    const auto l = static_cast<double>(std::bit_cast<float>(low));
    const auto h = static_cast<double>(std::bit_cast<float>(high));
    const double from = std::log(at_low), to = std::log(std::max(0.5, static_cast<double>(at_high)));
    const double at = l + (h - l) * (from - std::log(static_cast<double>(k))) / (from - to);
    if (!(at > l && at < h)) return middle;
    return std::clamp(std::bit_cast<std::uint32_t>(static_cast<float>(at)), low + 1, high - 1);
  }
};

// The k-th largest energy of each lane, by bisection on the bits of positive floats, which sort like integers.
// Invariant: at least k bins reach `low`, fewer than k bins reach `high`. Each round counts the bins of all lanes in
// one pass.
void choose(const float* energy, std::size_t bins, std::size_t k, VF most, Choice& choice) {
  HWY_ALIGN std::uint32_t peak[kWidth], pivot[kWidth], count[kWidth];
  hn::Store(bits(most), Words(), peak);
  Bracket lane[kWidth];
  for (std::size_t r = 0; r < kWidth; ++r) {
    lane[r].high = peak[r] + 1;
    lane[r].at_low = static_cast<std::uint32_t>(bins);
  }
  for (int round = 0;; ++round) {
    bool open = false;
    for (std::size_t r = 0; r < kWidth; ++r) {
      const bool mine = lane[r].open(k);
      pivot[r] = mine ? lane[r].guess(k, round) : 1;
      open = open || mine;
    }
    if (!open) break;
    const auto below = hn::Sub(hn::BitCast(Ints(), hn::Load(Words(), pivot)), hn::Set(Ints(), 1));
    auto reached = hn::Zero(Ints());
    for (std::size_t f = 0; f < bins; ++f) {
      const auto e = hn::BitCast(Ints(), hn::Load(Floats(), energy + f * kWidth));
      reached = hn::Sub(reached, hn::VecFromMask(Ints(), hn::Gt(e, below)));
    }
    hn::Store(hn::BitCast(Words(), reached), Words(), count);
    for (std::size_t r = 0; r < kWidth; ++r) {
      if (!lane[r].open(k)) continue;
      (count[r] >= k ? lane[r].low : lane[r].high) = pivot[r];
      (count[r] >= k ? lane[r].at_low : lane[r].at_high) = count[r];
    }
  }
  for (std::size_t r = 0; r < kWidth; ++r) {
    const bool exact = lane[r].at_low == k;
    choice.above[r] = static_cast<std::int32_t>(lane[r].low) - (exact ? 1 : 0);
    choice.ties[r] = exact ? 0 : static_cast<std::int32_t>(k - lane[r].at_high);
  }
}

// The bitmaps, written over the energies: u32 [bins / 32][W].
std::uint32_t* mark(float* energy, std::size_t bins, const Choice& choice) {
  const auto above = hn::LoadU(Ints(), choice.above);
  auto ties = hn::LoadU(Ints(), choice.ties);
  auto* words = reinterpret_cast<std::uint32_t*>(energy);
  for (std::size_t f = 0; f < bins; f += 32) {
    auto word = hn::Zero(Ints());
    for (std::size_t b = 0; b < std::min<std::size_t>(32, bins - f); ++b) {
      const auto e = hn::BitCast(Ints(), hn::Load(Floats(), energy + (f + b) * kWidth));
      const auto tie = hn::And(hn::Eq(e, above), hn::Gt(ties, hn::Zero(Ints())));
      ties = hn::Add(ties, hn::VecFromMask(Ints(), tie));
      const auto bit = hn::Set(Ints(), static_cast<std::int32_t>(1U << b));
      word = hn::Or(word, hn::IfThenElseZero(hn::Or(hn::Gt(e, above), tie), bit));
    }
    hn::Store(hn::BitCast(Words(), word), Words(), words + f / 32 * kWidth);
  }
  return words;
}

// ---- Payloads

// The range of a run of numbers, and their codes.
void write_codes(const range::Head& code, const float* v, std::size_t count, std::uint8_t* base,
                 std::uint8_t* run) {
  const std::size_t vectors = count / kWidth * kWidth;
  VW most = hn::Zero(Words());
  for (std::size_t i = 0; i < vectors; i += kWidth) most = hn::Max(most, magnitude(load(v + i)));
  std::uint32_t largest = hn::GetLane(hn::MaxOfLanes(Words(), most));
  for (std::size_t i = vectors; i < count; ++i) largest = std::max(largest, magnitude(v[i]));
  const auto codes = range::Codes::ending_at(code, largest);
  wire::put(base, codes.base);
  if (code.bits == 8) {
    const Pack8 pack(codes);
    for (std::size_t i = 0; i < vectors; i += kWidth) pack(load(v + i)).store(run + i);
    for (std::size_t i = vectors; i < count; ++i) run[i] = static_cast<std::uint8_t>(codes.pack(v[i]));
    return;
  }
  std::fill_n(run, bit_packing::bytes_for(count, code.width()), std::uint8_t{0});
  for (std::size_t i = 0; i < count; ++i) bit_packing::put(run, i, code.width(), codes.pack(v[i]));
}

void read_codes(const range::Head& code, std::uint32_t base, const std::uint8_t* run, std::size_t count,
                float* v) {
  const auto codes = range::Codes::of(code, base);
  if (code.bits != 8) {
    for (std::size_t i = 0; i < count; ++i) v[i] = codes.unpack(bit_packing::get(run, i, code.width()));
    return;
  }
  const Unpack8 unpack(codes);
  const std::size_t vectors = count / kWidth * kWidth;
  for (std::size_t i = 0; i < vectors; i += kWidth) hn::StoreU(unpack(run + i), Floats(), v + i);
  for (std::size_t i = vectors; i < count; ++i) v[i] = codes.unpack(run[i]);
}

void write_blocks(const Head& head, const Group& g, const Scale (&scale)[kWidth], const std::uint32_t* words,
                  const Work& work, std::uint8_t* payload) {
  float* to[kWidth];
  for (std::size_t r = 0; r < kWidth; ++r) to[r] = work.kept + r * work.row;
  const std::size_t bins = head.length() / 2;
  for (std::size_t f = 0; f < bins; f += 32)  // 32 bins of all blocks stay in the L1 cache
    for (std::size_t r = 0; r < g.count; ++r) {
      const float* lane = work.z + 2 * f * kWidth + r;
      for (std::uint32_t word = words[f / 32 * kWidth + r]; word != 0; word &= word - 1) {
        const auto b = static_cast<std::size_t>(std::countr_zero(word));
        to[r][0] = lane[2 * b * kWidth] * scale[r].up;
        to[r][1] = lane[(2 * b + 1) * kWidth] * scale[r].up;
        to[r] += 2;
      }
    }
  for (std::size_t r = 0; r < g.count; ++r) {
    std::uint8_t* at = payload + kHead + (g.first / head.length() + r) * block_bytes(head);
    for (std::size_t f = 0; f < bins; f += 32) {
      std::uint8_t word[4];
      wire::put(word, words[f / 32 * kWidth + r]);
      std::memcpy(at + kBlockHead + f / 8, word, std::min<std::size_t>(4, bins / 8));
    }
    write_codes(head.code, work.kept + r * work.row, 2 * head.kept, at, at + kBlockHead + bins / 8);
  }
}

// Adds the bins of a payload to z; bin f is at index bit_reversed[f].
void add_bins(const Head& head, const Group& g, const fourier::Tables& t, const Work& work,
              const std::uint8_t* payload) {
  const std::size_t bins = t.length;
  for (std::size_t r = 0; r < g.count; ++r) {
    const std::uint8_t* at = payload + kHead + (g.first / head.length() + r) * block_bytes(head);
    const float* v = work.kept;
    read_codes(head.code, wire::get<std::uint32_t>(at), at + kBlockHead + bins / 8, 2 * head.kept, work.kept);
    for (std::size_t f = 0; f < bins; f += 32) {
      std::uint8_t bytes[4] = {};
      std::memcpy(bytes, at + kBlockHead + f / 8, std::min<std::size_t>(4, bins / 8));
      for (auto word = wire::get<std::uint32_t>(bytes); word != 0; word &= word - 1) {
        float* z =
            work.z + 2 * t.bit_reversed[f + static_cast<std::size_t>(std::countr_zero(word))] * kWidth + r;
        z[0] += *v++;
        z[kWidth] += *v++;
      }
    }
  }
}

void values_of(const fourier::Tables& t, float* z) {
  join(t, z);
  transform(t, z, t.length);
}

// ---- Both ways

std::size_t encode(const Head& head, const EncodeInput& in, std::uint8_t* payload, std::uint8_t* scratch,
                   bool& finite) {
  const std::size_t blocks = in.n / head.length(), length = head.length();
  const fourier::Tables& t = fourier::tables(head.log - 1);
  const Work work = Work::at(head, scratch);
  for (std::size_t j = 0; j < blocks; j += kWidth) {
    const Group g = {j * length, std::min(kWidth, blocks - j)};
    Scale scale[kWidth];
    for (std::size_t r = 0; r < g.count; ++r) {
      scale[r] = Scale::of(largest_of(in, g.first + r * length, length), head.log);
      finite = finite && scale[r].down > 0;
    }
    load_values(in, g, t, scale, work.z);
    transform(t, work.z, t.length);
    const VF most = split(t, work.z, work.energy);
    Choice choice;
    choose(work.energy, t.length, head.kept, most, choice);
    write_blocks(head, g, scale, mark(work.energy, t.length, choice), work, payload);
    if (!in.residual_out) continue;
    std::fill_n(work.z, 2 * t.length * kWidth, 0.0F);
    add_bins(head, g, t, work, payload);
    values_of(t, work.z);
    for_values(g, t, work.z, [&](std::size_t i, VF sent) HWY_ATTR {
      hn::StoreU(hn::Sub(load_value_at(in, i), sent), Floats(), in.residual_out + i);
    });
  }
  return blocks;
}

std::size_t decode(const Head& head, std::span<const ByteView> payloads, const Merge& how,
                   std::span<float> out, std::uint8_t* scratch) {
  const std::size_t blocks = out.size() / head.length(), length = head.length();
  const fourier::Tables& t = fourier::tables(head.log - 1);
  const Work work = Work::at(head, scratch);
  const VF by = hn::Set(Floats(), how.divide);
  for (std::size_t j = 0; j < blocks; j += kWidth) {
    const Group g = {j * length, std::min(kWidth, blocks - j)};
    std::fill_n(work.z, 2 * t.length * kWidth, 0.0F);
    for (const ByteView p : payloads) add_bins(head, g, t, work, p.data());
    values_of(t, work.z);
    for_values(g, t, work.z, [&](std::size_t i, VF v) HWY_ATTR {
      if (how.base) v = hn::Add(load(how.base + i), v);
      if (how.divide != 1.0F) v = hn::Div(v, by);
      hn::StoreU(v, Floats(), out.data() + i);
    });
  }
  return blocks;
}

#endif
}  // namespace
}  // namespace tithe::fft::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::fft {
TITHE_KERNELS(const Kernels kSimd, encode, decode);
}  // namespace tithe::fft
#endif
