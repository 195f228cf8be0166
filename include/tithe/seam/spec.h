// SPDX-License-Identifier: Apache-2.0
#pragma once
// A spec string names a codec and its settings everywhere: command line, Python, plans, tests (catalogue.h reads
// it).
//
//   dgc                                   every parameter at its default
//   dgc:ratio=0.01,feedback=momentum      codec and feedback parameters, in any order, each at most once
//
// Error feedback is not part of the codec, so its parameters are the same for all codecs:
//   feedback   none | residual | momentum | decay | default; default: none for lossless codecs, residual for the
//              others; in a reduce-scatter also none for unbiased codecs, in an all-gather none for all
//   mu         momentum of the correction, 0..1, default 0.9 (Lin et al. 2018, DGC)
//   beta       with decay: the fraction of the residual that is kept from round to round, 0..1, default 0.9; the rest
//              is dropped (momentum of the unsent values, as in DeMo: Peng et al. 2024)
//   mask       on | off: momentum factor masking, default on for codecs that select values
//   nesterov   on | off, default off
//   clip       local gradient clipping: the largest L2 norm of a tensor's gradient on one rank; 0 = off
#include <cstdint>
#include <string>
#include <string_view>

#include "tithe/seam/codec.h"

namespace tithe {

enum class Feedback : std::uint8_t { kNone, kResidual, kMomentum, kDecay };
std::string_view name(Feedback feedback);

struct FeedbackPolicy {
  Feedback kind = Feedback::kNone;
  double mu = 0.9;
  double beta = 0.9;
  bool mask = false;
  bool nesterov = false;
  // The spec contains feedback=residual: rounds that keep no residual by default keep one.
  bool requested = false;
  double clip = 0.0;
  friend bool operator==(const FeedbackPolicy&, const FeedbackPolicy&) = default;
};

struct Spec {
  const Codec* codec = nullptr;
  Settings settings;
  FeedbackPolicy feedback;
  friend bool operator==(const Spec&, const Spec&) = default;
};

// The shortest text that parses to the same Spec: parameters with default values are omitted.
std::string to_string(const Spec& spec);

// The feedback parameters above as a table, for the CLI and the docs, in the order of FeedbackPolicy.
std::span<const ParamSpec> feedback_params();

}  // namespace tithe
