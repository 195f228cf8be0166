// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures the loss of a codec program over rounds, with and without error feedback. Claims of the program's author are
// verified; other results are only reported.
#include <map>

#include "lang_subject.h"

namespace tithe::cli {

class Rounds {
 public:
  Rounds(Subject& subject, Laws& laws) : subject_(subject), laws_(laws) {}

  // Runs in the subject's settings.
  void run();

  // Measurements over some rounds, as shares of the values' energy.
  struct Measure {
    bool had = false;  // the codec encodes and decodes these values
    double lost = 0;   // |x - C(x)|^2
    double along = 0;  // dot product of C(x) and x: 1 if unbiased
    double size = 0;   // |C(x)|^2
    // Half the mean of C(x) + C(-x) per value, relative to the size of the values.
    double off = 0;
    double deviation = 0;                                                  // standard deviation of `off`
    double off_mean() const { return along < 1 ? 1 - along : along - 1; }  // deviation from unbiasedness
    double factor() const { return along / size; }
    // The least loss, if C(x) were scaled by factor().
    double least() const { return 1 - along * along / size; }
  };
  // The results for the settings that ran first.
  struct Measurements {
    std::vector<std::string> claims;
    std::map<unsigned, Measure> values;  // by kind
    double left = 0;                     // with feedback: the residual's size in gradients
    std::uint32_t rounds = 0;            // number of rounds for `left`
    bool grows = false;  // the residual grows: the codec is unbiased and does not need feedback
    // Why sessions refuse feedback with these settings; empty: they accept it.
    std::string refused = {};
    // "nothing claimed; bell-shaped values lose 0.34 of their energy, their mean is off by 0.34; ..."
    std::string text() const;
  };
  const Measurements& measured() const { return measured_; }

 private:
  struct Feedback {
    bool converged = false;
    std::uint32_t rounds = 0;
    double left = 0;  // the residual's size in gradients
    std::string why;  // why it did not settle
  };
  Measure measure(const Floats& grad);
  Feedback feed(unsigned kind, float size, bool steady);
  void claims();
  double contraction() const;
  void scale();
  void feedback();
  bool is_random_and_unbiased(unsigned kind);
  bool is_unbiased(const Floats& grad, const std::vector<double>& sum, const std::vector<double>& squares,
                   double rounds) const;

  Subject& subject_;
  Laws& laws_;
  bool first_ = true;
  Measurements measured_;
};

}  // namespace tithe::cli
