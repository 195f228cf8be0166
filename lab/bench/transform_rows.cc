// SPDX-License-Identifier: Apache-2.0
// Codecs with a transform against the transform alone: the real FFT of kissfft's C library, over the same blocks,
// into a buffer that stays in the L1 cache. It is kissfft's fastest variant.
#include <fmt/format.h>
#include <kiss_fftr.h>

#include "advisor/measure/codec_cases.h"
#include "rows.h"

namespace tithe::bench {
namespace {

constexpr std::size_t kLength = 4096;  // the codec's default

class Kiss {
 public:
  explicit Kiss(bool inverse)
      : plan_(kiss_fftr_alloc(kLength, inverse ? 1 : 0, nullptr, nullptr), kiss_fftr_free),
        bins_(kLength / 2 + 1) {}
  void forward(std::span<const float> values) {
    for (std::size_t i = 0; i + kLength <= values.size(); i += kLength)
      kiss_fftr(plan_.get(), values.data() + i, bins_.data());
  }
  void inverse(std::span<float> values) {
    for (std::size_t i = 0; i + kLength <= values.size(); i += kLength)
      kiss_fftri(plan_.get(), bins_.data(), values.data() + i);
  }
  // Bins that are not all zeros.
  void set_bins(std::span<const float> values) {
    kiss_fftr(Kiss(false).plan_.get(), values.data(), bins_.data());
  }

 private:
  std::unique_ptr<kiss_fftr_state, void (*)(void*)> plan_;
  std::vector<kiss_fft_cpx> bins_;
};

class FftEncode final : public EncodeCase {
 public:
  FftEncode(Residual residual, std::size_t n)
      : EncodeCase(spec_of("fft"), residual, n), feedback_(residual != Residual::kNone) {}
  void fresh(std::uint64_t draw) override {
    EncodeCase::fresh(draw);
    inverse_.set_bins(grad_.span());
  }
  void reference() override {
    forward_.forward(grad_.span());
    if (feedback_) inverse_.inverse(back_.span());
  }

 private:
  const bool feedback_;
  Kiss forward_{false}, inverse_{true};
  Buffer<float> back_{feedback_ ? grad_.size() : 0};
};

class FftDecode final : public DecodeCase {
 public:
  FftDecode(int peers, std::size_t n) : DecodeCase(spec_of("fft"), peers, n) {}
  void fresh(std::uint64_t draw) override {
    DecodeCase::fresh(draw);
    inverse_.set_bins(grad_.span());
  }
  void kernel() override { decode({}); }
  void reference() override { inverse_.inverse(out_.span()); }

 private:
  Kiss inverse_{true};
};

}  // namespace

void add_transform_rows(std::vector<Row>& rows) {
  const auto add = [&](const char* name, const char* reference, double goal, auto make) {
    for (const std::size_t n : {kFromMemory, kInCache})
      rows.push_back({.name = name,
                      .reference = reference,
                      .n = n,
                      .goal = goal,
                      .make = make,
                      .bound_by_traffic = false});
  };
  add("fft encode", "kissfft's forward real FFT alone", 0.85,
      [](std::size_t n) { return std::make_unique<FftEncode>(Residual::kNone, n); });
  add("fft decode, 1 peer", "kissfft's inverse real FFT alone", 0.85,
      [](std::size_t n) { return std::make_unique<FftDecode>(1, n); });
  add("fft encode, feedback", "kissfft, forward and inverse", 0,
      [](std::size_t n) { return std::make_unique<FftEncode>(Residual::kInPlace, n); });
  add("fft decode, 4 peers", "kissfft's inverse real FFT alone, once", 0,
      [](std::size_t n) { return std::make_unique<FftDecode>(4, n); });
  for (const char* spec : {"eden", "eden:bits=2", "eden:bits=1.6", "eden:bits=1"}) {
    add_encode(rows, spec, Residual::kInPlace, 0);
    add_decode(rows, spec, 4, 0);
  }
}

}  // namespace tithe::bench
