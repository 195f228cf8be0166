// SPDX-License-Identifier: Apache-2.0
#pragma once
// Speed as a ratio: a kernel and a reference that moves the same bytes run in turn, in one process, on the same
// buffers; what counts is the median of the ratios of each pair.
//
//   fresh    the data change before every timed run (untimed), so that branch predictors learn nothing
//   alike    both start from the same state of the caches: both come right after fresh()
//   in turn  kernel first in even rounds, reference first in odd ones
//   alone    a pair with an involuntary context switch in either half is thrown away
//   pinned   thread i stays on the i-th processor this process may use; buffers start at 2 MiB, huge pages asked for
// GB/s are gradient bytes (4 n) per second, whatever else is moved.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tithe::bench {

// Memory for n values of T, zeroed, every page touched.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t n);
  Buffer(Buffer&&) noexcept = default;
  T* data() const { return data_.get(); }
  std::size_t size() const { return n_; }
  std::span<T> span() const { return {data_.get(), n_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T[], Free> data_;
  std::size_t n_;
};

// Gradient-like values: products of two Gaussians times scale, heavy-tailed. `draw` picks which ones.
void fill_values(std::span<float> out, float scale, std::uint64_t draw);

// One thread's share of a row.
class Case {
 public:
  virtual ~Case() = default;
  virtual void fresh(std::uint64_t draw) = 0;
  virtual void kernel() = 0;
  virtual void reference() = 0;
  virtual std::string note() const { return {}; }  // after the runs: what else there is to know of them
};

struct Row {
  std::string name;       // "onebit encode, feedback in place"
  std::string reference;  // "r += g"
  std::size_t n = 0;      // values over all threads
  double goal = 0;        // ratio to reach on one thread; 0: none
  std::function<std::unique_ptr<Case>(std::size_t n)> make;
  bool bound_by_traffic = true;  // the reference moves the bytes that the kernel must, and does no more
  bool of_every_codec = false;   // one that each codec of the list has
};

struct Options {
  int rounds = 21;  // pairs to keep
  int threads = 1;
  std::function<void(int kept)> watch = {};  // called between pairs
};

struct Outcome {
  double kernel_gbs = 0;  // medians
  double reference_gbs = 0;
  double ratio = 0;  // median over the kept pairs of reference time / kernel time
  double low = 0;    // its quartiles
  double high = 0;
  int kept = 0;
  int tried = 0;  // at most 6 x rounds
  std::string note;
};

Outcome measure(const Row& row, const Options& options);

// The same work on options.threads threads and on one, in turn: the ratio is how many times faster more threads are;
// reference_gbs is one thread's speed. `side` is what runs: the row's kernel or its reference.
enum class Side { kKernel, kReference };
Outcome measure_scaling(const Row& row, const Options& options, Side side);

}  // namespace tithe::bench
