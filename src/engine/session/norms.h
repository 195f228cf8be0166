// SPDX-License-Identifier: Apache-2.0
#pragma once
// Norms of gradients and residuals by tensor, for the measured rounds. A round is measured completely or not at all:
// the norms of a round that fails or is dropped are discarded.
//
// Threads  none: under the session's mutex.
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "tithe/session.h"

namespace tithe::engine {

// L2, summed in double.
double norm(std::span<const float> values);
double norm(const Tensor& tensor);

class Norms {
 public:
  struct Pair {
    double gradient = 0, residual = 0;
  };

  explicit Norms(std::uint64_t every) : every_(every) {}

  // True if the round that makes the number of committed rounds `committed` is measured.
  bool due(std::uint64_t committed) const {
    return every_ > 0 &&
           (committed % every_ == 0 || (committed < every_ && (committed & (committed - 1)) == 0));
  }
  // Adds a key with its first layout, so that measuring allocates nothing.
  void know(const Tensor& tensor) { tensors_[std::string(tensor.key)].side = tensor.side; }
  // Measures a gradient of the open round before it is changed.
  void take(const Tensor& tensor) { tensors_.find(tensor.key)->second.open = norm(tensor); }
  // The open round is committed. residual(key): the current residual.
  template <typename Residual>
  void commit(std::uint64_t committed, Residual residual) {
    for (auto& [key, t] : tensors_) {
      if (t.open < 0) continue;
      t.last = {t.open, norm(residual(key))};
      t.open = kNothing;
    }
    committed_ = committed;
  }
  void drop() {
    for (auto& [key, t] : tensors_) t.open = kNothing;
  }

  std::uint64_t committed() const { return committed_; }
  Pair of(std::string_view key) const;
  bool is_side(std::string_view key) const;
  Pair total() const;  // without side tensors

 private:
  static constexpr double kNothing = -1;
  struct TensorNorms {
    double open = kNothing;  // of the open round
    Pair last;
    bool side = false;
  };
  const std::uint64_t every_;
  std::uint64_t committed_ = 0;
  std::map<std::string, TensorNorms, std::less<>> tensors_;
};

}  // namespace tithe::engine
