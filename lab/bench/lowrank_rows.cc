// SPDX-License-Identifier: Apache-2.0
// powersgd against its two products, P = M Q and Q = M' P, computed by a BLAS. The BLAS does less: no fixed order of
// sums, no orthonormal columns, and, with feedback, no adding of the residual (twice, once per phase) and no writing
// of the new residual.
#include <cblas.h>
#include <fmt/format.h>

#include <array>

#include "advisor/measure/codec_cases.h"
#include "rows.h"

namespace tithe::bench {
namespace {

constexpr std::size_t kSide = 2048;
constexpr int kRank = 4;

enum class Part { kProducts, kEncode, kRound };  // both encodes; with feedback; and decode

class Lowrank final : public CodecCase {
 public:
  Lowrank(Part part, std::size_t n)
      : CodecCase(spec_of(fmt::format("powersgd:rank={},cols={}", kRank, kSide)), n),
        part_(part),
        residual_(n),
        left_(n),
        out_(n),
        rows_(codec_.phases[0].bound(call_.settings, n)),
        columns_(codec_.phases[1].bound(call_.settings, n)),
        memory_{Buffer<std::uint8_t>(codec_.memory(call_.settings, n)),
                Buffer<std::uint8_t>(codec_.memory(call_.settings, n))},
        q_(kSide * kRank),
        p_(n / kSide * kRank) {
    openblas_set_num_threads(1);
    fill_values(q_.span(), 1, 1);
  }

  void fresh(std::uint64_t draw) override {
    fill_values(grad_.span(), 1e-3F, draw);
    fill_values(residual_.span(), 5e-4F, ~draw);
    ++call_.round;
  }
  void kernel() override {
    EncodeInput input{grad_.data(), nullptr, nullptr, grad_.size()};
    if (part_ != Part::kProducts) input.residual = residual_.data();
    call_.phase = 0;
    call_.context = {};
    call_.memory = memory_[turn_].span();
    encode(input, rows_.span());
    if (part_ != Part::kProducts) input.residual_out = left_.data();
    call_.phase = 1;
    call_.context = rows_.span();
    encode(input, columns_.span());
    if (part_ != Part::kRound) return;
    call_.next_memory = memory_[1 - turn_].span();
    const ByteView payload = columns_.span();
    if (const Status s = impl_.decode(call_, {&payload, 1}, {}, out_.span()); !s.ok()) fail(s);
    call_.next_memory = {};
    turn_ = 1 - turn_;
  }
  void reference() override {
    const auto rows = static_cast<int>(grad_.size() / kSide), cols = static_cast<int>(kSide);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, kRank, cols, 1, grad_.data(), cols,
                q_.data(), kRank, 0, p_.data(), kRank);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, cols, kRank, rows, 1, grad_.data(), cols, p_.data(),
                kRank, 0, out_.data(), kRank);
  }

 private:
  const Part part_;
  Buffer<float> residual_, left_, out_;
  Buffer<std::uint8_t> rows_, columns_;
  std::array<Buffer<std::uint8_t>, 2> memory_;
  std::size_t turn_ = 0;
  Buffer<float> q_, p_;
};

}  // namespace

void add_lowrank_rows(std::vector<Row>& rows) {
  const auto add = [&](const char* what, Part part) {
    rows.push_back({.name = fmt::format("powersgd {}", what),
                    .reference = "the two products, OpenBLAS",
                    .n = kSide * kSide,
                    .goal = 0.70,
                    .make = [part](std::size_t n) { return std::make_unique<Lowrank>(part, n); },
                    .bound_by_traffic = false});
  };
  add("encode, both phases", Part::kProducts);
  add("encode, both phases, feedback apart", Part::kEncode);
  add("encode, feedback apart, and decode", Part::kRound);
}

}  // namespace tithe::bench
