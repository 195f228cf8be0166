// SPDX-License-Identifier: Apache-2.0
// Differences of bf16 weights (codec/shared/delta): vector passes beside the reference passes. Weights have an rms of
// 0.02 and move by 0.2 times a learning rate of 3e-4.
#include <fmt/format.h>

#include "advisor/measure/codec_cases.h"
#include "codec/shared/delta/delta_passes.h"
#include "codec/shared/floats/bf16_format.h"
#include "rows.h"

namespace tithe::bench {
namespace {

constexpr float kRms = 0.02F, kUpdate = 0.2F * 3e-4F;

class DeltaCase final : public Case {
 public:
  DeltaCase(bool encodes, std::size_t n)
      : encodes_(encodes), before_(n), now_(n), out_(n), payload_(delta::bound(n)) {}

  void fresh(std::uint64_t draw) override {
    std::vector<float> weights(now_.size()), updates(now_.size());
    fill_values(weights, kRms, draw);
    fill_values(updates, kUpdate, ~draw);
    for (std::size_t i = 0; i < now_.size(); ++i) {
      before_[i] = bf16::Format::pack(weights[i]);
      now_[i] = bf16::Format::pack(weights[i] + updates[i]);
    }
    bytes_ = delta::encode_by(delta::kSimd, delta::Format::kBf16, before_, now_, payload_);
  }
  void kernel() override { run(delta::kSimd); }
  void reference() override { run(delta::kReference); }
  std::string note() const override {
    return fmt::format("{:.2f} bits per value",
                       8 * static_cast<double>(bytes_) / static_cast<double>(now_.size()));
  }

 private:
  void run(const delta::Passes& passes) {
    if (encodes_) {
      bytes_ = delta::encode_by(passes, delta::Format::kBf16, before_, now_, payload_);
    } else if (const Status s = delta::decode_by(passes, delta::Format::kBf16, before_,
                                                 ByteView(payload_).first(bytes_), out_);
               !s.ok()) {
      fail(s);
    }
  }

  const bool encodes_;
  std::vector<std::uint16_t> before_, now_, out_;
  std::vector<std::uint8_t> payload_;
  std::size_t bytes_ = 0;
};

}  // namespace

void add_delta_rows(std::vector<Row>& rows) {
  for (const bool encodes : {true, false})
    rows.push_back({.name = fmt::format("delta {}, bf16 weights", encodes ? "encode" : "decode"),
                    .reference = "the reference passes",
                    .n = kInCache,
                    .make = [=](std::size_t n) { return std::make_unique<DeltaCase>(encodes, n); },
                    .bound_by_traffic = false});
}

}  // namespace tithe::bench
