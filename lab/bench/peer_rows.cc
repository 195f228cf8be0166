// SPDX-License-Identifier: Apache-2.0
// Other libraries on the same job, in the same run: zfp with a fixed accuracy equal to the codec's largest error, and
// zstd on the uncompressed floats. The ratio is the codec's speed divided by theirs.
#include <fmt/format.h>
#include <zfp.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>

#include "advisor/measure/codec_cases.h"
#include "rows.h"

namespace tithe::bench {
namespace {

constexpr std::size_t kPeerValues = 4'194'304;  // zfp takes about 60 ms for these

// One-dimensional values: adjacent values of a gradient are no more correlated than that.
class Zfp {
 public:
  explicit Zfp(std::size_t n)
      : field_(zfp_field_1d(nullptr, zfp_type_float, n), zfp_field_free),
        stream_(zfp_stream_open(nullptr), zfp_stream_close) {}

  void set_tolerance(double tolerance) {
    zfp_stream_set_accuracy(stream_.get(), tolerance);
    const std::size_t bytes = zfp_stream_maximum_size(stream_.get(), field_.get());
    if (buffer_.empty()) buffer_.emplace_back(bytes + bytes / 4);  // slack for other tolerances
    bits_ = {stream_open(buffer_[0].data(), buffer_[0].size()), stream_close};
    zfp_stream_set_bit_stream(stream_.get(), bits_.get());
  }
  void compress(float* from) {
    zfp_field_set_pointer(field_.get(), from);
    zfp_stream_rewind(stream_.get());
    bytes_ = zfp_compress(stream_.get(), field_.get());
    if (bytes_ == 0) fail({Code::kIo, "zfp_compress wrote nothing"});
  }
  void decompress(float* to) {
    zfp_field_set_pointer(field_.get(), to);
    zfp_stream_rewind(stream_.get());
    if (zfp_decompress(stream_.get(), field_.get()) == 0) fail({Code::kIo, "zfp_decompress read nothing"});
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<zfp_field, void (*)(zfp_field*)> field_;
  std::unique_ptr<zfp_stream, void (*)(zfp_stream*)> stream_;
  std::unique_ptr<bitstream, void (*)(bitstream*)> bits_{nullptr, stream_close};
  std::vector<Buffer<std::uint8_t>> buffer_;
  std::size_t bytes_ = 0;
};

float largest_error(std::span<const float> a, std::span<const float> b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

enum class Operation { kEncode, kDecode };

// Encode against zfp_compress, decode against zfp_decompress.
class BesideZfp final : public CodecCase {
 public:
  BesideZfp(const Spec& spec, Operation operation, std::size_t n)
      : CodecCase(spec, n),
        operation_(operation),
        payload_(codec_.phases[0].bound(spec.settings, n)),
        out_(n),
        zfp_(n) {}

  void fresh(std::uint64_t draw) override {
    fill_values(grad_.span(), 1e-3F, draw);
    encode_values();
    if (error_ == 0) match();
    if (operation_ == Operation::kDecode) zfp_.compress(grad_.data());
  }
  void kernel() override { operation_ == Operation::kEncode ? encode_values() : decode_values(); }
  void reference() override {
    operation_ == Operation::kEncode ? zfp_.compress(grad_.data()) : zfp_.decompress(out_.data());
  }
  std::string note() const override {
    const double n = static_cast<double>(grad_.size());
    return fmt::format("largest error {:.2g}, zfp's {:.2g}; {:.1f} bits per value, zfp's {:.1f}", error_,
                       zfp_error_, 8 * static_cast<double>(bytes_) / n,
                       8 * static_cast<double>(zfp_.bytes()) / n);
  }

 private:
  void encode_values() { bytes_ = encode({grad_.data(), nullptr, nullptr, grad_.size()}, payload_.span()); }
  void decode_values() {
    const ByteView view{payload_.data(), bytes_};
    const Status s = impl_.decode(call_, {&view, 1}, {}, out_.span());
    if (!s.ok()) fail(s);
  }
  float zfp_error(double tolerance) {
    zfp_.set_tolerance(tolerance);
    zfp_.compress(grad_.data());
    zfp_.decompress(out_.data());
    return largest_error(grad_.span(), out_.span());
  }
  // zfp rounds tolerances down to powers of two. Selects the smallest one with which zfp's error reaches the codec's,
  // which favours zfp.
  void match() {
    decode_values();
    error_ = largest_error(grad_.span(), out_.span());
    double tolerance = std::exp2(std::ceil(std::log2(error_)) + 4);
    while (zfp_error(tolerance / 2) >= error_) tolerance /= 2;
    zfp_error_ = zfp_error(tolerance);
  }

  const Operation operation_;
  Buffer<std::uint8_t> payload_;
  Buffer<float> out_;
  Zfp zfp_;
  std::size_t bytes_ = 0;
  float error_ = 0;
  float zfp_error_ = 0;
};

class BesideZstd final : public CodecCase {
 public:
  BesideZstd(const Spec& spec, int level, std::size_t n)
      : CodecCase(spec, n),
        level_(level),
        payload_(codec_.phases[0].bound(spec.settings, n)),
        packed_(ZSTD_compressBound(4 * n)) {}

  void fresh(std::uint64_t draw) override { fill_values(grad_.span(), 1e-3F, draw); }
  void kernel() override { bytes_ = encode({grad_.data(), nullptr, nullptr, grad_.size()}, payload_.span()); }
  void reference() override {
    zstd_bytes_ = ZSTD_compressCCtx(context_.get(), packed_.data(), packed_.size(), grad_.data(),
                                    4 * grad_.size(), level_);
    if (ZSTD_isError(zstd_bytes_)) fail({Code::kIo, ZSTD_getErrorName(zstd_bytes_)});
  }
  std::string note() const override {
    const double n = static_cast<double>(grad_.size());
    return fmt::format("{:.1f} bits per value, zstd's {:.1f} without any error",
                       8 * static_cast<double>(bytes_) / n, 8 * static_cast<double>(zstd_bytes_) / n);
  }

 private:
  const int level_;
  Buffer<std::uint8_t> payload_;
  Buffer<std::uint8_t> packed_;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context_{ZSTD_createCCtx(), ZSTD_freeCCtx};
  std::size_t bytes_ = 0;
  std::size_t zstd_bytes_ = 0;
};

void add_row(std::vector<Row>& rows, std::string name, std::string reference, double goal,
             std::function<std::unique_ptr<Case>(std::size_t)> make) {
  rows.push_back({.name = std::move(name),
                  .reference = std::move(reference),
                  .n = kPeerValues,
                  .goal = goal,
                  .make = std::move(make),
                  .bound_by_traffic = false});
}

}  // namespace

void add_peer_rows(std::vector<Row>& rows) {
  for (const char* spec : {"inceptionn", "rangefloat"}) {
    add_row(rows, fmt::format("{} encode beside zfp", spec), "zfp_compress, fixed accuracy", 20,
            [=](std::size_t n) { return std::make_unique<BesideZfp>(spec_of(spec), Operation::kEncode, n); });
    add_row(rows, fmt::format("{} decode beside zfp", spec), "zfp_decompress", 20,
            [=](std::size_t n) { return std::make_unique<BesideZfp>(spec_of(spec), Operation::kDecode, n); });
    for (const int level : {1, 3})
      add_row(rows, fmt::format("{} encode beside zstd", spec), fmt::format("zstd level {}", level), 0,
              [=](std::size_t n) { return std::make_unique<BesideZstd>(spec_of(spec), level, n); });
  }
}

}  // namespace tithe::bench
