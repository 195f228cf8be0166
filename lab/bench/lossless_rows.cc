// SPDX-License-Identifier: Apache-2.0
// zip against memory bandwidth, and against other lossless coders. zstd compresses the values; of bf16 values only
// the upper halves. The entropy coders of htscodecs compress the exponents only, a byte each, which favours them: the
// time to split and join values is not included.
#include <fmt/format.h>
#include <htscodecs/arith_dynamic.h>
#include <htscodecs/rANS_static4x16.h>
#include <zstd.h>

#include <bit>

#include "advisor/measure/codec_cases.h"
#include "rows.h"
#include "traffic.h"

namespace tithe::bench {
namespace {

constexpr std::size_t kPeerValues = 4'194'304;

enum class Of { kFp32, kBf16 };
enum class Operation { kEncode, kDecode };

class Coder {
 public:
  Coder() = default;
  Coder(const Coder&) = delete;
  Coder& operator=(const Coder&) = delete;
  virtual ~Coder() = default;
  virtual bool whole() const = 0;  // takes values, not exponents alone
  virtual std::size_t compress(std::span<std::uint8_t> from) = 0;
  virtual void decompress(std::span<std::uint8_t> to) = 0;
};

class Zstd final : public Coder {
 public:
  bool whole() const override { return true; }
  std::size_t compress(std::span<std::uint8_t> from) override {
    packed_.resize(ZSTD_compressBound(from.size()));
    bytes_ = ZSTD_compress(packed_.data(), packed_.size(), from.data(), from.size(), 1);
    if (ZSTD_isError(bytes_)) fail({Code::kIo, ZSTD_getErrorName(bytes_)});
    return bytes_;
  }
  void decompress(std::span<std::uint8_t> to) override {
    if (ZSTD_decompress(to.data(), to.size(), packed_.data(), bytes_) != to.size())
      fail({Code::kIo, "zstd gave other bytes back"});
  }

 private:
  std::vector<std::uint8_t> packed_;
  std::size_t bytes_ = 0;
};

// An entropy coder of order 0: an adaptive range coder, or 32 interleaved rANS states with vector instructions.
struct Entropy {
  unsigned (*bound)(unsigned, int);
  unsigned char* (*compress)(unsigned char*, unsigned, unsigned char*, unsigned*, int);
  unsigned char* (*decompress)(unsigned char*, unsigned, unsigned char*, unsigned*);
  int order;
};
constexpr Entropy kRange = {arith_compress_bound, arith_compress_to, arith_uncompress_to, 0};
constexpr Entropy kRans = {rans_compress_bound_4x16, rans_compress_to_4x16, rans_uncompress_to_4x16,
                           RANS_ORDER_X32};

class ByEntropy final : public Coder {
 public:
  explicit ByEntropy(const Entropy& of) : of_(of) {}
  bool whole() const override { return false; }
  std::size_t compress(std::span<std::uint8_t> from) override {
    const auto size = static_cast<unsigned>(from.size());
    packed_.resize(of_.bound(size, of_.order));
    bytes_ = static_cast<unsigned>(packed_.size());
    if (of_.compress(from.data(), size, packed_.data(), &bytes_, of_.order) == nullptr)
      fail({Code::kIo, "an entropy coder wrote nothing"});
    return bytes_;
  }
  void decompress(std::span<std::uint8_t> to) override {
    auto size = static_cast<unsigned>(to.size());
    if (of_.decompress(packed_.data(), bytes_, to.data(), &size) == nullptr || size != to.size())
      fail({Code::kIo, "an entropy coder gave other bytes back"});
  }

 private:
  const Entropy of_;
  std::vector<std::uint8_t> packed_;
  unsigned bytes_ = 0;
};

// zip against another coder, or against one pass over memory.
class ZipBeside final : public CodecCase {
 public:
  ZipBeside(Of of, Operation operation, std::unique_ptr<Coder> coder, std::size_t n)
      : CodecCase(spec_of("zip"), n),
        of_(of),
        operation_(operation),
        coder_(std::move(coder)),
        payload_(bound()),
        out_(n),
        bytes_((coder_ == nullptr  ? 0
                : !coder_->whole() ? 1
                : of == Of::kBf16  ? 2
                                   : 4) *
               n) {}

  void fresh(std::uint64_t draw) override {
    fill_values(grad_.span(), 1e-3F, draw);
    if (of_ == Of::kBf16)
      for (float& v : grad_.span()) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0xffff0000U);
    for (std::size_t i = 0; i < grad_.size() && coder_ != nullptr; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(grad_.data()[i]);
      const std::size_t each = bytes_.size() / grad_.size();
      const std::uint32_t sent = each == 1 ? bits >> 23 : each == 2 ? bits >> 16 : bits;
      for (std::size_t k = 0; k < each; ++k)
        bytes_[i * each + k] = static_cast<std::uint8_t>(sent >> (8 * k));
    }
    encode_values();
    if (coder_ != nullptr) theirs_ = coder_->compress(bytes_);
  }
  void kernel() override {
    if (operation_ == Operation::kEncode) return encode_values();
    const ByteView view{payload_.data(), ours_};
    if (const Status s = impl_.decode(call_, {&view, 1}, {}, out_.span()); !s.ok()) fail(s);
  }
  void reference() override {
    if (coder_ != nullptr && operation_ == Operation::kEncode)
      coder_->compress(bytes_);
    else if (coder_ != nullptr)
      coder_->decompress(bytes_);
    else if (operation_ == Operation::kDecode)
      fill_past_caches(out_.data(), out_.size(), 0.75F);
    else if (read_values(grad_.data(), grad_.size()) == 1)
      grad_.data()[0] += 1.0F;
  }
  std::string note() const override {
    const double n = static_cast<double>(grad_.size());
    const std::string ours = fmt::format("{:.2f} bits per value", 8 * static_cast<double>(ours_) / n);
    if (coder_ == nullptr) return ours;
    const double raw = coder_->whole() ? 0 : of_ == Of::kBf16 ? 8 : 24;
    return fmt::format("{}, theirs {:.2f}", ours, raw + 8 * static_cast<double>(theirs_) / n);
  }

 private:
  void encode_values() { ours_ = encode({grad_.data(), nullptr, nullptr, grad_.size()}, payload_.span()); }

  const Of of_;
  const Operation operation_;
  std::unique_ptr<Coder> coder_;
  Buffer<std::uint8_t> payload_;
  Buffer<float> out_;
  std::vector<std::uint8_t> bytes_;
  std::size_t ours_ = 0, theirs_ = 0;
};

template <typename Make>
void add_pair(std::vector<Row>& rows, const char* beside, std::size_t n, const Make& make) {
  for (const Of of : {Of::kBf16, Of::kFp32})
    for (const Operation operation : {Operation::kEncode, Operation::kDecode})
      rows.push_back(
          {.name = fmt::format("zip {}, {} values", operation == Operation::kEncode ? "encode" : "decode",
                               of == Of::kBf16 ? "bf16" : "fp32"),
           .reference = beside != nullptr                 ? beside
                        : operation == Operation::kEncode ? "read-only sum"
                                                          : "fill past the caches",
           .n = n,
           .make =
               [=](std::size_t values) { return std::make_unique<ZipBeside>(of, operation, make(), values); },
           .bound_by_traffic = beside == nullptr});
}

}  // namespace

void add_lossless_rows(std::vector<Row>& rows) {
  for (const std::size_t n : {kFromMemory, kInCache})
    add_pair(rows, nullptr, n, [] { return std::unique_ptr<Coder>(); });
  add_pair(rows, "zstd level 1", kPeerValues, [] { return std::make_unique<Zstd>(); });
  add_pair(rows, "a range coder, of exponents alone", kPeerValues,
           [] { return std::make_unique<ByEntropy>(kRange); });
  add_pair(rows, "rANS with vectors, of exponents alone", kPeerValues,
           [] { return std::make_unique<ByEntropy>(kRans); });
}

}  // namespace tithe::bench
