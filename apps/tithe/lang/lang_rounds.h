// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures what a codec program loses over rounds, with and without feedback. A claim of its author must hold; what
// nobody claims is told.
#include <map>

#include "lang_subject.h"

namespace tithe::cli {

class Rounds {
 public:
  Rounds(Subject& subject, Laws& laws) : subject_(subject), laws_(laws) {}

  // In the subject's settings.
  void run();

  // Shares of the values' energy, over some rounds.
  struct Measure {
    bool had = false;      // it encodes and decodes them
    double lost = 0;       // |x - C(x)|^2
    double along = 0;      // C(x) times x: 1 of what is unbiased
    double size = 0;       // |C(x)|^2
    double off = 0;        // what C(x) + C(-x) is on average, of one value, in the values' size; half of it
    double deviation = 0;  // of that mean
    double off_mean() const { return along < 1 ? 1 - along : along - 1; }  // of what is sent, from the value
    double factor() const { return along / size; }
    double least() const { return 1 - along * along / size; }  // lost, were it sent `factor` times as large
  };
  // The findings of the settings that were run first.
  struct Told {
    std::vector<std::string> claims;
    std::map<unsigned, Measure> values;  // by kind
    double left = 0;                     // with feedback: the residual's size in gradients
    std::uint32_t rounds = 0;            // after so many
    bool grows = false;                  // it is unbiased, and feedback is not for it
    std::string refused = {};  // why sessions refuse feedback with these settings; empty: they do not
    // "nothing claimed; bell-shaped values lose 0.34 of their energy, their mean is off by 0.34; ..."
    std::string text() const;
  };
  const Told& told() const { return told_; }

 private:
  struct Feedback {
    bool settled = false;
    std::uint32_t rounds = 0;
    double left = 0;  // the residual's size in gradients
    std::string why;  // it did not settle
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
  Told told_;
};

}  // namespace tithe::cli
