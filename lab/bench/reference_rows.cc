// SPDX-License-Identifier: Apache-2.0
// Rows made from a spec, with references other than those of `tithe bench codec`.
#include <fmt/format.h>

#include <algorithm>

#include "advisor/measure/codec_cases.h"
#include "codec/shared/sparse/sparse.h"
#include "rows.h"
#include "traffic.h"

namespace tithe::bench {
namespace {

// Reads or writes `values` once, the least traffic of one side.
void move_one_side(Beside beside, std::span<float> values) {
  if (beside == Beside::kFill)
    fill_past_caches(values.data(), values.size(), 0.75F);
  else if (read_values(values.data(), values.size()) == 1)
    values[0] += 1.0F;
}

class EncodeBeside final : public EncodeCase {
 public:
  EncodeBeside(const Spec& spec, Beside beside, std::size_t n)
      : EncodeCase(spec, Residual::kNone, n), beside_(beside) {}
  void reference() override { move_one_side(beside_, grad_.span()); }

 private:
  const Beside beside_;
};

class EncodeOnward final : public EncodeCase {
 public:
  EncodeOnward(const Spec& spec, std::size_t n) : EncodeCase(spec, Residual::kInPlace, n) {}
  void reference() override {
    move_on(residual_.data(), grad_.data(), reinterpret_cast<float*>(payload_.data()), grad_.size());
  }
};

class DecodeBeside final : public DecodeCase {
 public:
  DecodeBeside(const Spec& spec, Beside beside, std::size_t n) : DecodeCase(spec, 1, n), beside_(beside) {}
  void kernel() override { decode({}); }
  void reference() override { move_one_side(beside_, out_.span()); }

 private:
  const Beside beside_;
};

// The reference for a merge of sparse payloads: each payload is read once, and each cache line of the output that some
// pair touches is read and written once. With P payloads and a share q of the values, evenly spread, a share t = 1 - (1
// - q)^(16 P) of the lines is touched: per value 8 q P + 4 t bytes are read and 4 t written; with 16 peers and q = 1 %,
// that is 4.97 and 3.69. The reference moves as many bytes, but its rewritten lines are contiguous.
class SparseMerge final : public DecodeCase {
 public:
  using DecodeCase::DecodeCase;
  void fresh(std::uint64_t draw) override {
    DecodeCase::fresh(draw);
    std::vector<bool> named((out_.size() + kLine - 1) / kLine);
    for (const ByteView payload : payloads())
      for (sparse::Cursor c(payload); !c.done(); c.next()) named[c.index() / kLine] = true;
    lines_ = static_cast<std::size_t>(std::count(named.begin(), named.end(), true));
  }
  void reference() override {
    if (scale(out_.data(), std::min(lines_ * kLine, out_.size()), 0.75F, payloads()) == 1)
      out_.data()[0] += 1.0F;
  }
  std::string note() const override {
    const double n = static_cast<double>(out_.size());
    double read = 0;
    for (const ByteView payload : payloads()) read += static_cast<double>(payload.size());
    const double lines = 4.0 * static_cast<double>(kLine * lines_);
    return fmt::format("{:.2f} B read, {:.2f} B written per value", (read + lines) / n, lines / n);
  }

 private:
  static constexpr std::size_t kLine = 16;  // values per cache line
  std::size_t lines_ = 0;
};

}  // namespace

void add_encode_onward(std::vector<Row>& rows, const std::string& spec, double goal) {
  Row row;
  row.name = fmt::format("{} encode, feedback, onward", spec);
  row.reference = "out = r + g, r = g";
  row.make = [=](std::size_t n) { return std::make_unique<EncodeOnward>(spec_of(spec), n); };
  add_both_sizes(rows, row, goal);
}

void add_sparse_merge(std::vector<Row>& rows, const std::string& spec, int peers, double goal) {
  Row row;
  row.name = fmt::format("{} merge in one pass, {} peers", spec, peers);
  row.reference = "bytes touched: named lines rewritten + payloads";
  row.n = kFromMemory;
  row.goal = goal;
  row.make = [=](std::size_t n) { return std::make_unique<SparseMerge>(spec_of(spec), peers, n); };
  rows.push_back(row);
}

namespace {

template <typename Kernel>
void add_beside(std::vector<Row>& rows, const std::string& spec, const char* what, Beside beside,
                double goal) {
  Row row;
  row.name = fmt::format("{} {}", spec, what);
  row.reference = beside == Beside::kSum ? "read-only sum" : "fill past the caches";
  row.n = kFromMemory;
  row.goal = goal;
  row.make = [=](std::size_t n) { return std::make_unique<Kernel>(spec_of(spec), beside, n); };
  rows.push_back(row);
}

}  // namespace

void add_encode_beside(std::vector<Row>& rows, const std::string& spec, Beside beside, double goal) {
  add_beside<EncodeBeside>(rows, spec, "encode, one side", beside, goal);
}

void add_decode_beside(std::vector<Row>& rows, const std::string& spec, Beside beside, double goal) {
  add_beside<DecodeBeside>(rows, spec, "decode, one side", beside, goal);
}

}  // namespace tithe::bench
