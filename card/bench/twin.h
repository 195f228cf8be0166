// SPDX-License-Identifier: Apache-2.0
#pragma once
// The card's C++ twin (card/model/), held against the model of frames.h.
#include "card/model/network_card.h"
#include "frames.h"

namespace bench {

inline tithe::card::Config twin_config(const CardConfig& c) {
  return {.on = c.on,
          .exact = c.exact,
          .mode = c.setting.mode,
          .b = c.setting.b,
          .dscp = c.dscp,
          .least = c.least};
}

// The twin with SIMD kernels and the twin without, in both directions.
class Twins {
 public:
  explicit Twins(const CardConfig& c)
      : config_(c),
        twins_{tithe::card::Card(twin_config(c), tithe::inceptionn::kSimd),
               tithe::card::Card(twin_config(c), tithe::inceptionn::kReference)} {}
  // True if both twins change `f` as the model does.
  bool agree(tithe::card::Direction direction, const Bytes& f) {
    const Outcome want = direction == tithe::card::Direction::kToWire ? pack(f, config_) : unpack(f, config_);
    bool same = true;
    for (auto& twin : twins_) {
      const auto got = twin.pass(direction, f);
      same = same && static_cast<int>(got.event) == static_cast<int>(want.event) &&
             Bytes(got.frame.begin(), got.frame.end()) == want.frame;
    }
    return same;
  }

 private:
  CardConfig config_;
  tithe::card::Card twins_[2];
};

}  // namespace bench
