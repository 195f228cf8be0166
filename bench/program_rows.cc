// SPDX-License-Identifier: Apache-2.0
// Programs in the codec language, compiled, beside the codecs in C++ of the same bytes; and what interprets them.
#include <fmt/format.h>

#include <memory>

#include "measure/codec_cases.h"
#include "rows.h"

namespace tithe::bench {
namespace {

constexpr double kBlockGoal = 0.90;
constexpr double kSelectingGoal = 0.80;

std::string file_of(const std::string& program) {
  const std::size_t colon = std::min(program.find(':'), program.size());
  return TITHE_SOURCE_DIR "/codecs/" + program.substr(0, colon) + ".codec" + program.substr(colon);
}

// Two codecs at the same work.
template <typename Of>
class Beside2 final : public Case {
 public:
  Beside2(std::unique_ptr<Of> kernel, std::unique_ptr<Of> reference)
      : kernel_(std::move(kernel)), reference_(std::move(reference)) {}
  void fresh(std::uint64_t draw) override {
    kernel_->fresh(draw);
    reference_->fresh(draw);
  }
  void kernel() override { kernel_->kernel(); }
  void reference() override { reference_->kernel(); }

 private:
  const std::unique_ptr<Of> kernel_, reference_;
};

void add_pair(std::vector<Row>& rows, const std::string& program, const std::string& twin, double goal) {
  Row row;
  row.reference = twin + " in C++";
  row.n = kFromMemory;
  row.goal = goal;
  row.bound_by_traffic = false;
  row.name = fmt::format("program {} encode, feedback", program);
  row.make = [=](std::size_t n) {
    const auto of = [&](const std::string& spec) {
      return std::make_unique<EncodeCase>(spec_of(spec), Residual::kInPlace, n);
    };
    return std::make_unique<Beside2<EncodeCase>>(of(file_of(program)), of(twin));
  };
  rows.push_back(row);
  for (const int peers : {1, 4}) {
    row.name = fmt::format("program {} decode and add, {} peer{}", program, peers, peers == 1 ? "" : "s");
    row.make = [=](std::size_t n) {
      const auto of = [&](const std::string& spec) {
        return std::make_unique<DecodeCase>(spec_of(spec), peers, n);
      };
      return std::make_unique<Beside2<DecodeCase>>(of(file_of(program)), of(twin));
    };
    rows.push_back(row);
  }
}

// The interpreter's encode beside the compiled one's.
class Interpreted final : public Case {
 public:
  Interpreted(const Spec& spec, std::size_t n)
      : spec_(spec),
        grad_(n),
        residual_(n),
        payload_(spec.codec->phases[0].bound(spec.settings, n)),
        scratch_(spec.codec->scratch(spec.settings, n)) {}
  void fresh(std::uint64_t draw) override {
    fill_values(grad_.span(), 1e-3F, draw);
    fill_values(residual_.span(), 5e-4F, ~draw);
  }
  void kernel() override { encode(spec_.codec->reference()); }
  void reference() override { encode(spec_.codec->best(this_machine())); }

 private:
  void encode(const Impl& impl) {
    const Call call{.settings = spec_.settings, .scratch = scratch_.span()};
    const Result<Encoded> e =
        impl.encode(call, {grad_.data(), residual_.data(), residual_.data(), grad_.size()}, payload_.span());
    if (!e.ok()) fail(e.status());
  }
  const Spec spec_;
  Buffer<float> grad_, residual_;
  Buffer<std::uint8_t> payload_, scratch_;
};

}  // namespace

void add_program_rows(std::vector<Row>& rows) {
  for (const char* both : {"bf16", "fp16", "minmax", "fp8"})
    add_pair(rows, both, both, kBlockGoal);
  add_pair(rows, "rangefloat", "rangefloat:mantissa=4", kBlockGoal);
  add_pair(rows, "minmax:bits=8", "minmax:bits=8", kBlockGoal);
  for (const char* both : {"threshold", "dgc", "graddrop", "topk"})
    add_pair(rows, both, both, kSelectingGoal);
  for (const char* program : {"onebit", "terngrad", "minmax", "fp8"}) {
    Row row;
    row.name = fmt::format("program {} encode, interpreted", program);
    row.reference = "compiled";
    row.n = kInCache;
    row.make = [=](std::size_t n) { return std::make_unique<Interpreted>(spec_of(file_of(program)), n); };
    rows.push_back(row);
  }
}

}  // namespace tithe::bench
