// SPDX-License-Identifier: Apache-2.0
// Codecs whose ranks share scales or signs and then add payloads: each step of a round of 4 ranks.
#include <fmt/format.h>

#include <memory>

#include "advisor/measure/codec_cases.h"
#include "rows.h"
#include "traffic.h"

namespace tithe::bench {
namespace {

constexpr int kRanks = 4;

// Payloads of both phases; each row runs one kernel on them.
class SumCase : public CodecCase {
 public:
  SumCase(const Spec& spec, std::size_t n)
      : CodecCase(spec, n),
        residual_(n),
        agreed_(codec_.phases[0].bound(spec.settings, n)),
        payload_(codec_.phases[1].bound(spec.settings, n)) {}

  void fresh(std::uint64_t draw) override {
    fill_values(grad_.span(), 1e-3F, draw);
    fill_values(residual_.span(), 5e-4F, ~draw);
    ++call_.round;
    meet({grad_.data(), residual_.data(), nullptr, grad_.size()});
    if (bytes_ == 0) send({grad_.data(), nullptr, nullptr, grad_.size()});
  }

 protected:
  void meet(const EncodeInput& input) {
    call_.phase = 0;
    call_.context = {};
    const std::size_t bytes = encode(input, agreed_.span());
    const std::vector<std::uint8_t> own(agreed_.data(), agreed_.data() + bytes);
    const Bytes all = agreed_.span().first(bytes);
    for (int rank = 1; rank < kRanks; ++rank) combine(0, all, own);
    call_.phase = 1;
    call_.context = all;
  }
  void send(const EncodeInput& input) { bytes_ = encode(input, payload_.span()); }
  void combine(std::uint8_t phase, Bytes acc, ByteView in) {
    Call call = call_;
    call.phase = phase;
    const Result<Combined> done = impl_.combine(call, grad_.size(), acc, in, nullptr);
    if (!done.ok()) fail(done.status());
  }
  Bytes payload() { return payload_.span().first(bytes_); }

  Buffer<float> residual_;

 private:
  Buffer<std::uint8_t> agreed_;
  Buffer<std::uint8_t> payload_;
  std::size_t bytes_ = 0;
};

class Agree final : public SumCase {
 public:
  using SumCase::SumCase;
  void kernel() override { meet({grad_.data(), nullptr, nullptr, grad_.size()}); }
  void reference() override {
    if (read_values(grad_.data(), grad_.size()) == 1) grad_.data()[0] += 1.0F;
  }
};

// The first phase's encode alone.
class Vote final : public SumCase {
 public:
  using SumCase::SumCase;
  void kernel() override {
    call_.phase = 0;
    call_.context = {};
    encode({grad_.data(), residual_.data(), nullptr, grad_.size()}, votes_);
  }
  void reference() override { add(residual_.data(), grad_.data(), grad_.size()); }

 private:
  std::vector<std::uint8_t> votes_ =
      std::vector<std::uint8_t>(codec_.phases[0].bound(call_.settings, grad_.size()));
};

class Send final : public SumCase {
 public:
  using SumCase::SumCase;
  void kernel() override { send({grad_.data(), residual_.data(), residual_.data(), grad_.size()}); }
  void reference() override { add(residual_.data(), grad_.data(), grad_.size()); }
};

class Add final : public SumCase {
 public:
  using SumCase::SumCase;
  // Both operands are new each time, so that no sum exceeds that of 4 ranks.
  void fresh(std::uint64_t draw) override {
    SumCase::fresh(draw);
    send({grad_.data(), nullptr, nullptr, grad_.size()});
    in_.assign(payload().begin(), payload().end());
  }
  void kernel() override { combine(1, payload(), in_); }
  // The same bytes as floats.
  void reference() override {
    add(reinterpret_cast<float*>(payload().data()), reinterpret_cast<const float*>(in_.data()),
        in_.size() / 4);
  }

 private:
  std::vector<std::uint8_t> in_;
};

class Receive final : public SumCase {
 public:
  Receive(const Spec& spec, std::size_t n) : SumCase(spec, n), out_(n) {}
  void kernel() override {
    const ByteView view = payload();
    const Status s = impl_.decode(call_, {&view, 1}, {.divide = kRanks}, out_.span());
    if (!s.ok()) fail(s);
  }
  void reference() override { fill_past_caches(out_.data(), out_.size(), 0.75F); }

 private:
  Buffer<float> out_;
};

template <typename Kernel>
void add_row(std::vector<Row>& rows, const std::string& spec, const char* what, const char* reference) {
  Row row;
  row.name = fmt::format("{} {}, {} ranks", spec, what, kRanks);
  row.reference = reference;
  row.n = kFromMemory;
  row.make = [=](std::size_t n) { return std::make_unique<Kernel>(spec_of(spec), n); };
  rows.push_back(row);
}

}  // namespace

void add_sum_rows(std::vector<Row>& rows) {
  for (const char* spec : {"thc", "fp8_shared", "terngrad_shared", "qsgd_shared"}) {
    add_row<Agree>(rows, spec, "agree", "read-only sum");
    add_row<Send>(rows, spec, "encode, feedback", "r += g");
    add_row<Add>(rows, spec, "add payloads", "the same bytes, a += b");
    add_row<Receive>(rows, spec, "decode", "fill past the caches");
  }
  add_row<Vote>(rows, "sign_majority", "votes", "r += g");
  add_row<Send>(rows, "sign_majority", "encode, feedback", "r += g");
  rows.back().goal = 0.50;
  add_row<Receive>(rows, "sign_majority", "decode", "fill past the caches");
}

}  // namespace tithe::bench
