// SPDX-License-Identifier: Apache-2.0
#pragma once
// The codec's golden frames as the engine sees them: their values, the groups of their payload and the values that
// these decode to. Of frames with the layout split the groups are what the codec writes for the same values.
#include <fstream>
#include <iterator>
#include <sstream>

#include "golden/golden_cases.h"
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

inline Bytes golden_text(const std::string& path) {
  Bytes values;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    char* rest = nullptr;
    const float v = std::strtof(line.c_str(), &rest);
    const long times = *rest == ' ' ? std::strtol(rest + 2, nullptr, 10) : 1;
    for (long i = 0; i < times; ++i) append(values, v);
  }
  return values;
}

inline std::vector<Golden> goldens() {
  std::vector<Golden> all;
  for (const std::string name : {"burst", "many", "odd", "one"}) {
    const std::string path = std::string(TITHE_SOURCE_DIR) + "/tests/golden/inceptionn_" + name;
    Golden g;
    g.decoded = golden_text(path + ".txt");
    const std::size_t n = g.decoded.size() / 4;
    const auto grad = tithe::golden::stream(0, n), residual = tithe::golden::stream(1, n);
    for (std::size_t i = 0; i < n; ++i) append(g.values, grad[i] + residual[i]);
    std::ifstream in(path + ".bin", std::ios::binary);
    const Bytes frame{std::istreambuf_iterator<char>(in), {}};
    BENCH_CHECK(n > 0 && n <= tithe::inceptionn::kBlock && frame.size() > 68);
    g.setting = {frame[64] ? tithe::inceptionn::kLiteral : tithe::inceptionn::kStrict, frame[66]};
    g.groups = frame[65] == tithe::inceptionn::kBurst ? Bytes(frame.begin() + 70, frame.end())
                                                      : encode(g.values, g.setting);
    all.push_back(std::move(g));
  }
  return all;
}

}  // namespace bench
