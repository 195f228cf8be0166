// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sparsifier's payload, as a list of indices and values.
#include "codec/shared/sparse/sparse.h"
#include "support/codec_run.h"

namespace tithe::sparse {

struct SparseOutput {
  std::vector<std::uint32_t> index;
  std::vector<float> value;
  std::vector<float> residual_out;
  bool finite = true;
  std::vector<std::uint8_t> payload;
};

// Encodes with every impl, which must give equal results; an empty residual means zeros.
inline SparseOutput encode_all(const Codec& codec, const Call& call, const std::vector<float>& grad,
                               std::vector<float> residual = {}) {
  residual.resize(grad.size());
  harness::EncodeOutput sent = harness::send(codec, call, grad, residual);
  SparseOutput listed{{}, {}, std::move(sent.residual_out), sent.finite, std::move(sent.payload)};
  if (!listed.finite) return listed;
  const Pairs pairs(listed.payload);
  for (std::size_t j = 0; j < pairs.count(); ++j) {
    listed.index.push_back(pairs.index(j));
    listed.value.push_back(pairs.value(j));
  }
  return listed;
}

inline Call call_of(const std::string& spec) { return {.settings = harness::spec_of(spec).settings}; }

}  // namespace tithe::sparse
