// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensors on a GPU as a framework passes them: their values are written by work that is still queued on the caller's
// stream. On the fake GPU (fake_gpu.h), or on the machine's if TITHE_TEST_GPU=real.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "device/ferry.h"
#include "tithe/session.h"

namespace tithe::testing {

// Sessions of this process find the fake driver and its compiler.
inline const bool kFindsFakes = [] {
  const char* requested = std::getenv("TITHE_TEST_GPU");
  if (requested != nullptr && std::string_view(requested) == "real") return false;
  return ::setenv("TITHE_CUDA", TITHE_FAKE_CUDA, 1) == 0 && ::setenv("TITHE_NVRTC", TITHE_FAKE_NVRTC, 1) == 0;
}();

class GpuTensors {
 public:
  explicit GpuTensors(int ordinal = 0) : ordinal_(ordinal) {
    const Result<device::Device> on = device::Device::open(*device::this_driver(), ordinal);
    EXPECT_TRUE(on.ok()) << on.status().what();
    ferry_ = there(device::Ferry::open(*on));
    stream_ = there(on->stream());
  }
  ~GpuTensors() { EXPECT_TRUE(on().wait(stream_).ok() || !on().lost().ok()); }
  GpuTensors(const GpuTensors&) = delete;
  GpuTensors& operator=(const GpuTensors&) = delete;

  const device::Device& on() const { return ferry_->on(); }
  Origin origin() const { return {.device = ordinal_, .stream = stream_.handle()}; }

  // Copies of the tensors on the GPU, filled by work of the stream. `apart`: each in memory of its own; else
  // contiguous.
  std::vector<Tensor> take(std::span<const Tensor> bucket, bool apart = true) {
    EXPECT_TRUE(on().wait(stream_).ok());
    tensors_.clear();
    pinned_.clear();
    std::size_t all = 0;
    for (const Tensor& t : bucket) all += bytes_of(t);
    if (!apart) tensors_.push_back(there(on().memory(all)));
    std::vector<Tensor> out;
    for (std::size_t at = 0; const Tensor& t : bucket) {
      const std::size_t bytes = bytes_of(t);
      if (apart) tensors_.push_back(there(on().memory(bytes)));
      const device::Address to = tensors_.back().at() + (apart ? 0 : at);
      at += bytes;
      pinned_.push_back(there(on().pinned(bytes)));
      if (bytes > 0) std::memcpy(pinned_.back().data(), t.data, bytes);
      EXPECT_TRUE(on().copy_up(stream_, to, pinned_.back().data(), bytes).ok());
      out.push_back(t);
      out.back().data = reinterpret_cast<void*>(to);  // NOLINT(performance-no-int-to-ptr)
    }
    return out;
  }
  // Reads the values that are there now.
  void read(std::span<const Tensor> there_now, std::span<const Tensor> into) {
    for (std::size_t k = 0; k < into.size(); ++k) {
      const Status s =
          ferry_->down(into[k].data, reinterpret_cast<device::Address>(there_now[k].data), bytes_of(into[k]));
      EXPECT_TRUE(s.ok()) << s.what();
    }
  }

 private:
  template <typename T>
  static T there(Result<T> result) {
    EXPECT_TRUE(result.ok()) << result.status().what();
    return std::move(*result);
  }
  static std::size_t bytes_of(const Tensor& t) { return t.n * (t.dtype == DType::kF32 ? 4 : 2); }

  const int ordinal_;
  std::shared_ptr<device::Ferry> ferry_;
  device::Stream stream_;
  std::vector<device::Pinned> pinned_;
  std::vector<device::Memory> tensors_;
};

}  // namespace tithe::testing
