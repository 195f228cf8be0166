// SPDX-License-Identifier: Apache-2.0
// The interpreter of the codec language against the compiled code of the same codec.
#include <fmt/format.h>

#include <memory>

#include "advisor/measure/codec_cases.h"
#include "rows.h"

namespace tithe::bench {
namespace {

// The interpreter's encode against the compiled one.
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
  for (const char* program : {"onebit", "terngrad", "nuqsgd"}) {
    Row row;
    row.name = fmt::format("program {} encode, interpreted", program);
    row.reference = "compiled";
    row.n = kInCache;
    row.make = [=](std::size_t n) { return std::make_unique<Interpreted>(spec_of(program), n); };
    rows.push_back(row);
  }
}

}  // namespace tithe::bench
