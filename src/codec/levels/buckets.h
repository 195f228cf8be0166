// SPDX-License-Identifier: Apache-2.0
#pragma once
// What qsgd and nuqsgd share: buckets of values under one norm, and a code of a few bits per value.
//
// Layout   u8 bits, 2 .. 8 | u8 log2 of the bucket | per bucket (the last one may be shorter), back to back:
//          f32 norm, finite and not negative | ceil(len * bits / 8) bytes of codes, the lowest bit first, 0 behind the
//          last one
#include "base/bytes.h"
#include "codec/common/bit_packing.h"
#include "codec/common/block.h"

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

inline constexpr std::size_t kTop = 2;     // bytes in front of the first bucket
inline constexpr std::size_t kHead = 4;    // bytes in front of a bucket's codes
inline constexpr unsigned kLeastBits = 2;  // the first choices of the parameters
inline constexpr unsigned kLeastBucket = 6;

// How a payload is cut up.
struct Shape {
  unsigned bits;
  unsigned log2_bucket;

  explicit Shape(const Settings& s)
      : bits(static_cast<unsigned>(s[kBits]) + kLeastBits),
        log2_bucket(static_cast<unsigned>(s[kBucket]) + kLeastBucket) {}
  std::uint32_t steps() const { return (1U << (bits - 1)) - 1; }
  std::size_t bucket() const { return std::size_t{1} << log2_bucket; }
  std::size_t bucket_bytes(std::size_t len) const { return kHead + bit_packing::bytes_for(len, bits); }
  // Where bucket k starts.
  std::size_t start(std::size_t k) const { return kTop + k * bucket_bytes(bucket()); }
};

std::size_t bound(const Settings& s, std::size_t n);
Status check(std::string_view codec, const Settings& s, std::size_t n, ByteView payload);

// The norm of a bucket of finite values; finite, and at least the largest magnitude.
float norm_of(const Settings& s, const Carry& bucket, const block::Look& look);

// What a bucket's norm is at most; whether it is the largest magnitude.
inline double most_norm(const Settings& s, double largest) {
  return s[kNorm] == 0 ? largest : largest * std::sqrt(static_cast<double>(Shape(s).bucket()));
}
inline bool by_largest(const Settings& s) { return s[kNorm] == 0; }

inline constexpr Traits traits(double (*contraction)(const Settings&, std::size_t),
                               double (*error)(const Settings&, double, double)) {
  return {.fixed_size = true,
          .unbiased = true,
          .contraction = contraction,
          .error = error,
          .exact_constants = by_largest};
}

// A bucket that holds a value that is not finite.
void send_nothing(const Shape& shape, const Carry& in, std::uint8_t* out);
void put_top(const Shape& shape, std::uint8_t* out);

}  // namespace tithe::buckets
