// SPDX-License-Identifier: Apache-2.0
// Tags of frames (src/frame/tagger.h) against reading the same bytes; and the additional cost for a header alone.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "frame/tagger.h"
#include "rows.h"
#include "traffic.h"

namespace tithe::bench {
namespace {

// Tags `each` bytes at a time.
class TagCase final : public Case {
 public:
  TagCase(std::size_t n, std::size_t each) : values_(n), each_(each), tagger_(Secret{1}) {}
  void fresh(std::uint64_t draw) override { fill_values(values_.span(), 1.0F, draw); }
  void kernel() override {
    const auto begin = std::chrono::steady_clock::now();
    ByteView rest(reinterpret_cast<const std::uint8_t*>(values_.data()), 4 * values_.size());
    for (; !rest.empty(); rest = rest.subspan(std::min(rest.size(), each_))) {
      kept_ += tagger_.tag(0, ++number_, {rest.first(std::min(rest.size(), each_))})[0];
      ++tags_;
    }
    spent_ += std::chrono::steady_clock::now() - begin;
  }
  void reference() override { kept_ += read_values(values_.data(), values_.size()); }
  std::string note() const override {
    return fmt::format("{:.0f} ns per tag",
                       spent_.count() / static_cast<double>(std::max<std::uint64_t>(tags_, 1)));
  }

 private:
  Buffer<float> values_;
  const std::size_t each_;
  Tagger tagger_;
  std::uint64_t number_ = 0, tags_ = 0;
  std::chrono::duration<double, std::nano> spent_{0};
  std::uint32_t kept_ = 0;
};

void add(std::vector<Row>& rows, const std::string& name, std::size_t n, std::size_t each) {
  rows.push_back({.name = name, .reference = "read", .n = n, .goal = 0, .make = [each](std::size_t values) {
                    return std::make_unique<TagCase>(values, each);
                  }});
}

}  // namespace

void add_tag_rows(std::vector<Row>& rows) {
  for (const std::size_t n : {kFromMemory, kInCache}) add(rows, "tag, whole frame", n, 4 * n);
  add(rows, "tag, frames of 16 kB", kInCache, 16384);
  add(rows, "tag, header alone", kInCache, kFrameHeaderBytes);
}

}  // namespace tithe::bench
