// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures speed as a ratio. A kernel and a reference that moves the same bytes run alternately, in one process, on the
// same buffers; the result is the median of the ratios of the pairs.
//
//   - fresh: the data changes before every timed run (untimed), so that branch predictors cannot learn it.
//   - alike: both start from the same cache state, right after fresh().
//   - in turn: the kernel runs first in even rounds, the reference in odd ones.
//   - alone: a pair with an involuntary context switch in either half is dropped.
//   - pinned: thread i stays on the i-th core that this process may use. Buffers are aligned to 2 MiB and ask for huge
//     pages.
//
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

// Gradient-like, heavy-tailed values: products of two Gaussians times `scale`. `draw` selects them.
void fill_values(std::span<float> out, float scale, std::uint64_t draw);

// One thread's share of a row.
class Case {
 public:
  virtual ~Case() = default;
  virtual void fresh(std::uint64_t draw) = 0;
  virtual void kernel() = 0;
  virtual void reference() = 0;
  virtual std::string note() const { return {}; }  // further results of the runs
};

struct Row {
  std::string name;       // "onebit encode, feedback in place"
  std::string reference;  // "r += g"
  std::size_t n = 0;      // values over all threads
  double goal = 0;        // target ratio on one thread; 0: none
  std::function<std::unique_ptr<Case>(std::size_t n)> make;
  bool bound_by_traffic = true;  // the reference moves only the bytes that the kernel must move
  bool of_every_codec = false;   // a row that exists for every codec
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
  int tried = 0;  // at most 6 times `rounds`
  std::string note;
};

Outcome measure(const Row& row, const Options& options);

// Two kinds of work, each on every thread: `kernel` selects the kernel or the reference. fresh() precedes every timed
// run, and gets another `draw` each time.
struct PairedWork {
  std::function<void(int thread)> make;
  std::function<void(int thread, bool kernel, std::uint64_t draw)> fresh;
  std::function<void(int thread, bool kernel)> run;
};
// Likewise, for work that moves n values.
Outcome in_pairs(std::size_t n, const Options& options, const PairedWork& work);

}  // namespace tithe::bench
