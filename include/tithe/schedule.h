// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Schedule changes the ratio of a codec from round to round. It is an option of the session, independent of codec and
// feedback, for any codec with a parameter `ratio`. As text:
//
//   warmup:ROUNDS   over the first ROUNDS rounds the ratio falls from 25 % to the codec's, in four stages of equal
//                   length and equal factors (Lin et al. 2018: 25, 6.3, 1.6, 0.4 %, then 0.1 %, for ratio=0.001)
//   theta:L         the dropped fraction theta = 1 - ratio follows the learning rate: theta^2 = L * rate, but never
//                   more than the codec's ratio drops (Wang et al. 2020, theorem 3.5). Before a rate is given: the
//                   codec's ratio
//   recover:SAG     each evaluation with a loss above (1 + SAG) times the least so far multiplies the ratio by four (at
//                   most 1); each other evaluation takes one such step back (Wang et al. 2020: "recovering from
//                   failures"). SAG is 0.05 by default
//   none            or an empty text: the codec's ratio in every round
//
// Joined by '+', as in "warmup:400+recover": the larger of the ratios of warmup and theta, raised by recover.
//
//   same      the ratio depends on the text, the round and the reported learning rates and losses, by operations that
//             round alike on every machine: ranks with the same reports have the same bits
//   listed    ratios() holds every value that ratio() gives, so that memory is sized once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/seam/spec.h"

namespace tithe {

class Schedule {
 public:
  // The learning rate and losses so far; saved with a session's state.
  struct State {
    double learning_rate = 0;  // 0: none yet
    double min_loss = std::numeric_limits<double>::infinity();
    std::uint32_t steps = 0;  // steps of recover: the ratio is multiplied by 4^steps
    friend bool operator==(const State&, const State&) = default;
  };

  Schedule() = default;  // none
  // kInvalid: an unknown word, a number out of range, a word twice, or a codec without a ratio.
  static Result<Schedule> parse(std::string_view text, const Spec& spec);

  bool active() const { return warmup_ > 0 || theta_ > 0 || sag_ > 0; }
  bool follows_rate() const { return theta_ > 0; }
  bool follows_loss() const { return sag_ > 0; }
  // The shortest text that parses to the same Schedule; empty for none.
  std::string text() const;

  double ratio(std::uint64_t round) const;
  std::vector<double> ratios() const;  // all values that ratio() can return; empty without a schedule

  // kInvalid unless finite and positive.
  Status learning_rate(double rate);
  // A loss above (1 + SAG) times the least so far counts as a sag, and so does NaN.
  void evaluated(double loss);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  double stage(std::uint64_t number) const;
  static double next_rung(double ratio);

  double target_ = 1;  // the codec's ratio
  double warmup_ = 0;  // rounds
  double theta_ = 0;   // L
  double sag_ = 0;
  State state_;
};

// The codec's settings with another ratio; unchanged if the codec has no ratio.
Settings with_ratio(const Spec& spec, double ratio);

}  // namespace tithe
