// SPDX-License-Identifier: Apache-2.0
#pragma once
// The codec's golden frames as input of the engine: their values, the groups of their payload and the decoded values.
// For frames with the layout split, the codec writes the same groups for the same values.
#include <fstream>
#include <iterator>

#include "golden/golden_cases.h"
#include "golden/golden_values.h"
#include "reference.h"

namespace bench {

struct Golden {
  Bytes values, groups, decoded;
  Setting setting;
};

template <typename Value>
void append(Bytes& to, Value value) {
  std::uint8_t raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  to.insert(to.end(), raw, raw + sizeof value);
}

inline std::vector<float> values_in(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), 4 * values.size());
  return values;
}

inline std::vector<Golden> goldens() {
  std::vector<Golden> all;
  const auto listed = tithe::golden::listed_values();
  for (const std::string name : {"inceptionn_burst", "inceptionn_many", "inceptionn_odd", "inceptionn_one"}) {
    const auto want = listed.at(name);
    Golden g;
    const auto grad = tithe::golden::stream(0, want.n), residual = tithe::golden::stream(1, want.n);
    for (std::size_t i = 0; i < want.n; ++i) append(g.values, grad[i] + residual[i]);
    std::ifstream in(tithe::golden::folder() / (name + ".bin"), std::ios::binary);
    const Bytes frame{std::istreambuf_iterator<char>(in), {}};
    BENCH_CHECK(want.n > 0 && want.n <= tithe::inceptionn::kBlock && frame.size() > 68);
    g.setting = {frame[64] ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict, frame[66]};
    g.groups = frame[65] == tithe::inceptionn::kBurst ? Bytes(frame.begin() + 70, frame.end())
                                                      : encode(g.values, g.setting);
    const auto decoded = decode(g.groups, 4 * want.n, g.setting);
    BENCH_CHECK(decoded && tithe::golden::listed_as(values_in(*decoded)) == want);
    g.decoded = *decoded;
    all.push_back(std::move(g));
  }
  return all;
}

}  // namespace bench
