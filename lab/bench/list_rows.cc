// SPDX-License-Identifier: Apache-2.0
// Every codec of the list at its default settings, with one worker: the time to encode its gradient, all phases
// together, with feedback if that is the default; and the time to decode one payload, or the sum of all payloads.
#include <fmt/format.h>

#include <memory>

#include "advisor/measure/codec_cases.h"
#include "rows.h"
#include "tithe/seam/catalogue.h"
#include "traffic.h"

namespace tithe::bench {
namespace {

class Listed : public CodecCase {
 public:
  Listed(const Spec& spec, std::size_t n)
      : CodecCase(spec, n),
        residual_(codec_.traits.lossless ? 0 : n),
        memory_(codec_.memory == nullptr ? 0 : codec_.memory(call_.settings, n)),
        next_memory_(memory_.size()) {
    for (const Phase& phase : codec_.phases) payloads_.emplace_back(phase.bound(call_.settings, n));
    call_.memory = memory_.span();
  }

  void fresh(std::uint64_t draw) override {
    fill_values(grad_.span(), 1e-3F, draw);
    fill_values(residual_.span(), 5e-4F, ~draw);
    ++call_.round;
  }

 protected:
  void encode_all() {
    EncodeInput input{grad_.data(), nullptr, nullptr, grad_.size()};
    if (residual_.size() > 0) input.residual = residual_.data();
    call_.context = {};
    for (std::size_t phase = 0; phase < payloads_.size(); ++phase) {
      call_.phase = static_cast<std::uint8_t>(phase);
      if (phase + 1 == payloads_.size() && residual_.size() > 0) input.residual_out = residual_.data();
      const std::size_t bytes = encode(input, payloads_[phase].span());
      payload_ = {payloads_[phase].data(), bytes};
      if (phase + 1 < payloads_.size()) call_.context = payload_;
    }
  }
  ByteView payload() const { return payload_; }

  Buffer<float> residual_;
  Buffer<std::uint8_t> memory_, next_memory_;

 private:
  std::vector<Buffer<std::uint8_t>> payloads_;
  ByteView payload_;
};

class Encode final : public Listed {
 public:
  using Listed::Listed;
  void kernel() override { encode_all(); }
  void reference() override {
    if (residual_.size() > 0)
      add(residual_.data(), grad_.data(), grad_.size());
    else if (read_values(grad_.data(), grad_.size()) == 1)
      grad_.data()[0] += 1.0F;
  }
};

class Decode final : public Listed {
 public:
  Decode(const Spec& spec, std::size_t n) : Listed(spec, n), out_(n) {}
  void fresh(std::uint64_t draw) override {
    Listed::fresh(draw);
    encode_all();
    call_.next_memory = next_memory_.span();
  }
  void kernel() override {
    const ByteView view = payload();
    if (const Status s = impl_.decode(call_, {&view, 1}, {}, out_.span()); !s.ok()) fail(s);
  }
  void reference() override { fill_past_caches(out_.data(), out_.size(), 0.75F); }

 private:
  Buffer<float> out_;
};

template <typename Kernel>
void add_row(std::vector<Row>& rows, const Codec& codec, const char* what, const char* reference) {
  rows.push_back({.name = fmt::format("{} {}, default settings", codec.name, what),
                  .reference = reference,
                  .n = kFromMemory,
                  .make = [spec = std::string(codec.name)](
                              std::size_t n) { return std::make_unique<Kernel>(spec_of(spec), n); },
                  .of_every_codec = true});
}

}  // namespace

void add_list_rows(std::vector<Row>& rows) {
  for (const Codec* codec : all_codecs()) {
    add_row<Encode>(rows, *codec, "encode", codec->traits.lossless ? "read-only sum" : "r += g");
    add_row<Decode>(rows, *codec, "decode", "fill past the caches");
  }
}

}  // namespace tithe::bench
