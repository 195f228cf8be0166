// SPDX-License-Identifier: Apache-2.0
#pragma once
// The payloads of nuqsgd and qsgd_shared, as codecs/qsgd.codec has them: a norm per bucket of values, and a code of a
// few bits per value. (A bucket here is a block, under the name that QSGD gives it; the parameter is called so too.)
//
// Layout   u8 bits, 2 .. 8 | u8 log2 of the bucket | per bucket (the last one may be shorter), back to back:
//          f32 norm, finite and not negative | ceil(len * bits / 8) bytes of codes, lowest bit first, padding bits 0
#include "base/bytes.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/shared/common/block.h"

namespace tithe::buckets {

enum Param : std::size_t { kBits, kNorm, kBucket };

inline constexpr std::string_view kNorms[] = {"max", "l2"};
inline constexpr std::string_view kBuckets[] = {"64", "128", "256", "512", "1024", "2048", "4096", "8192"};
inline constexpr std::string_view kWidths[] = {"2", "3", "4", "5", "6", "7", "8"};
inline constexpr ParamSpec kParams[] = {
    {"bits", 2, 0, 6, "bits per value: a sign and 2^(bits - 1) levels, zero among them", kWidths},
    {"norm", 0, 0, 1, "what the largest level stands for: the bucket's largest magnitude or its L2 norm",
     kNorms},
    {"bucket", 4, 0, 7, "values that share a norm", kBuckets}};

inline constexpr std::size_t kTop = 2;       // bytes before the first bucket
inline constexpr std::size_t kHead = 4;      // bytes before the codes of a bucket
inline constexpr unsigned kLeastBits = 2;    // the first choice of `bits`
inline constexpr unsigned kLeastBucket = 6;  // log2 of the first choice of `bucket`

// Bits per code and values per norm, and the byte layout that follows from them.
struct LevelFormat {
  unsigned bits;
  unsigned log2_bucket;

  explicit LevelFormat(const Settings& s)
      : bits(static_cast<unsigned>(s[kBits]) + kLeastBits),
        log2_bucket(static_cast<unsigned>(s[kBucket]) + kLeastBucket) {}
  std::uint32_t steps() const { return (1U << (bits - 1)) - 1; }
  std::size_t bucket() const { return std::size_t{1} << log2_bucket; }
  std::size_t bucket_bytes(std::size_t len) const { return kHead + bit_packing::bytes_for(len, bits); }
  // The offset of bucket k in the payload.
  std::size_t start(std::size_t k) const { return kTop + k * bucket_bytes(bucket()); }
};

std::size_t bound(const Settings& s, std::size_t n);
Status check(std::string_view codec, const Settings& s, std::size_t n, ByteView payload);

// The norm of a bucket of finite values; finite, and at least the largest magnitude.
float norm_of(const Settings& s, const Carry& bucket, const block::Stats& stats);

// An upper bound of a bucket's norm, given the largest magnitude.
inline double most_norm(const Settings& s, double largest) {
  return s[kNorm] == 0 ? largest : largest * std::sqrt(static_cast<double>(LevelFormat(s).bucket()));
}
// True if the norm is the largest magnitude.
inline bool by_largest(const Settings& s) { return s[kNorm] == 0; }

inline constexpr Traits traits(double (*contraction)(const Settings&, std::size_t),
                               double (*error)(const Settings&, double, double)) {
  return {.fixed_size = true,
          .unbiased = true,
          .contraction = contraction,
          .error = error,
          .exact_constants = by_largest};
}

// Writes a bucket that holds a value that is not finite: norm and codes 0, all values left whole.
void send_nothing(const LevelFormat& format, const Carry& in, std::uint8_t* out);
// Writes the kTop bytes.
void put_top(const LevelFormat& format, std::uint8_t* out);

}  // namespace tithe::buckets
