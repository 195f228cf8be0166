// SPDX-License-Identifier: Apache-2.0
#pragma once
// A queue that keeps its memory: it allocates only when it grows beyond its largest size so far.
#include <cstddef>
#include <utility>
#include <vector>

namespace tithe {

template <typename T>
class Fifo {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return ring_[place(i)]; }
  T& front() { return (*this)[0]; }

  void reserve(std::size_t n) {
    if (n <= ring_.size()) return;
    std::vector<T> grown(n);
    for (std::size_t i = 0; i < size_; ++i) grown[i] = std::move((*this)[i]);
    ring_ = std::move(grown);
    head_ = 0;
  }
  void push(T v) {
    if (size_ == ring_.size()) reserve(size_ < 8 ? 16 : 2 * size_);
    ring_[place(size_++)] = std::move(v);
  }
  T pop() {
    T v = std::move(ring_[head_]);
    head_ = place(1);
    --size_;
    return v;
  }
  void erase(std::size_t i) {  // keeps the order of the other items
    for (; i + 1 < size_; ++i) (*this)[i] = std::move((*this)[i + 1]);
    --size_;
  }
  void clear() { head_ = size_ = 0; }

 private:
  // The index of the i-th item in the ring; i is at most the size of the ring.
  std::size_t place(std::size_t i) const {
    const std::size_t at = head_ + i;
    return at < ring_.size() ? at : at - ring_.size();
  }

  std::vector<T> ring_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace tithe
