// SPDX-License-Identifier: Apache-2.0
#pragma once
// Benchmark cases for the kernels of a codec, created from a spec. Rows derive from them to use another reference.
#include <vector>

#include "advisor/measure/codec_rows.h"
#include "advisor/measure/reference.h"
#include "tithe/seam/spec.h"

namespace tithe::bench {

[[noreturn]] void fail(const Status& why);  // prints the error and ends the process
Spec spec_of(const std::string& text);      // or fail()

// The base: uses the last phase of the codec's fastest implementation.
class CodecCase : public Case {
 public:
  CodecCase(const Spec& spec, std::size_t n)
      : codec_(*spec.codec),
        impl_(codec_.best(this_machine())),
        grad_(n),
        scratch_(codec_.scratch(spec.settings, n)) {
    call_.settings = spec.settings;
    call_.scratch = scratch_.span();
    call_.phase = static_cast<std::uint8_t>(codec_.phases.size() - 1);
  }

 protected:
  std::size_t encode(const EncodeInput& input, Bytes out) {
    const Result<Encoded> e = impl_.encode(call_, input, out);
    if (!e.ok()) fail(e.status());
    return (*e).bytes;
  }

  std::size_t bound() const { return codec_.phases.back().bound(call_.settings, grad_.size()); }
  // Runs the phases before the last one, as if there were no other rank.
  void agree(const EncodeInput& input) {
    call_.context = {};
    for (call_.phase = 0; call_.phase + 1U < codec_.phases.size(); ++call_.phase) {
      std::vector<std::uint8_t> payload(codec_.phases[call_.phase].bound(call_.settings, input.n));
      payload.resize(encode({input.grad, input.residual, nullptr, input.n}, payload));
      context_ = std::move(payload);
      call_.context = context_;
    }
  }

  const Codec& codec_;
  const Impl& impl_;
  Call call_;
  Buffer<float> grad_;
  Buffer<std::uint8_t> scratch_;

 private:
  std::vector<std::uint8_t> context_;
};

class EncodeCase : public CodecCase {
 public:
  EncodeCase(const Spec& spec, Residual residual, std::size_t n)
      : CodecCase(spec, n),
        kind_(residual),
        residual_(residual == Residual::kNone ? 0 : n),
        left_(residual == Residual::kApart ? n : 0),
        payload_(bound()) {}

  void fresh(std::uint64_t draw) override {
    fill_values(grad_.span(), 1e-3F, draw);
    fill_values(residual_.span(), 5e-4F, ~draw);
    ++call_.round;
    agree(input());
  }
  void kernel() override { sent_bytes_ = encode(input(), payload_.span()); }
  void reference() override {
    switch (kind_) {
      case Residual::kNone:
        return copy(grad_.data(), grad_.size(), payload_.data(), sent_bytes_);
      case Residual::kInPlace:
        return add(residual_.data(), grad_.data(), grad_.size());
      case Residual::kApart:
        return add_apart(residual_.data(), grad_.data(), left_.data(), grad_.size());
    }
  }

 private:
  EncodeInput input() const {
    EncodeInput input{grad_.data(), nullptr, nullptr, grad_.size()};
    if (kind_ != Residual::kNone) input.residual = residual_.data();
    if (kind_ == Residual::kInPlace) input.residual_out = residual_.data();
    if (kind_ == Residual::kApart) input.residual_out = left_.data();
    return input;
  }

  const Residual kind_;

 protected:
  Buffer<float> residual_;
  Buffer<float> left_;
  Buffer<std::uint8_t> payload_;

 private:
  std::size_t sent_bytes_ = 0;  // of the last encode; a row runs the kernel before the reference
};

class DecodeCase : public CodecCase {
 public:
  DecodeCase(const Spec& spec, int peers, std::size_t n) : CodecCase(spec, n), out_(n) {
    for (int p = 0; p < peers; ++p) {
      payloads_.emplace_back(bound());
      views_.emplace_back();
    }
  }
  // One payload per call: encoding all takes too long, and one is enough to mislead the branch predictor.
  void fresh(std::uint64_t draw) override {
    const EncodeInput input{grad_.data(), nullptr, nullptr, grad_.size()};
    do {
      fill_values(grad_.span(), 1e-3F, draw++);
      if (views_[next_].empty() && next_ == 0) agree(input);  // all payloads use the same agreed context
      const std::size_t bytes = encode(input, payloads_[next_].span());
      views_[next_] = {payloads_[next_].data(), bytes};
      next_ = (next_ + 1) % payloads_.size();
    } while (views_[next_].empty());
    fill_values(out_.span(), 1e-3F, ~draw);
  }
  void kernel() override { decode({.base = out_.data()}); }
  void reference() override {
    if (scale(out_.data(), out_.size(), 0.75F, views_) == 1) out_.data()[0] += 1.0F;
  }

 protected:
  void decode(const Merge& merge) {
    const Status s = impl_.decode(call_, views_, merge, out_.span());
    if (!s.ok()) fail(s);
  }

  std::span<const ByteView> payloads() const { return views_; }

  Buffer<float> out_;

 private:
  std::vector<Buffer<std::uint8_t>> payloads_;
  std::vector<ByteView> views_;
  std::size_t next_ = 0;
};

}  // namespace tithe::bench
