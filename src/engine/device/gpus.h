// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPUs that hold a session's buckets. No driver is loaded and no GPU is opened before the first bucket on one.
//
//   chosen   SessionOptions::device says whether codecs may run on GPUs
//   checked  a codec runs on a GPU only after on_device() has compared it with the interpreter on that GPU
//   logged   each codec that runs on a GPU, and each reason why one does not, is a line of messages(), once
//
// Threads  any. A user of a lane holds it: the lane's own thread, or sync() if a bucket needs memory.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "catalogue/device_kernels.h"
#include "device/ferry.h"
#include "tithe/seam/spec.h"

namespace tithe::engine {

struct DeviceChoice {
  bool on = false;
  std::size_t least = std::size_t{1} << 16;  // the smallest chunk for which a GPU step, about 40 us, pays
};
// "off", "on", "on,min_values=65536"
Result<DeviceChoice> parse_device(std::string_view text);

class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> open(int ordinal, int workers);
  const device::Device& on() const { return ferry_->on(); }
  std::string name() const;  // "GPU 0, NVIDIA H100"
  int lanes() const { return static_cast<int>(lanes_.size()); }
  std::unique_lock<std::mutex> hold(int k) { return std::unique_lock(busy_[static_cast<std::size_t>(k)]); }
  catalogue::DeviceLane& lane(int k) { return lanes_[static_cast<std::size_t>(k)]; }
  // Batches run on the first lanes, which limits the memory for batches: one uses the GPU while the other copies.
  static constexpr int kBatchLanes = 2;
  int batch_lanes() const { return std::min(lanes(), kBatchLanes); }
  struct BatchLane {
    std::unique_lock<std::mutex> held;
    catalogue::DeviceLane& on;
  };
  BatchLane batch_lane();
  Status reserve(std::size_t room, std::size_t scratch);  // on each batch lane
  const std::shared_ptr<device::Ferry>& ferry() const { return ferry_; }
  // A codec on this GPU. Lives as long as the Gpu.
  struct Program {
    catalogue::OnDevice on;
    std::optional<catalogue::KernelSource> source;  // none: the codec has its own kernels
    // The settings for the kernels. A schedule changes the codec's settings between rounds.
    Settings settings_of(const Codec& codec, const Settings& settings) const {
      return source ? catalogue::kernel_settings(*source, codec, settings) : settings;
    }
  };
  const Program& program(const Spec& spec);

 private:
  Gpu(int ordinal, std::shared_ptr<device::Ferry> ferry, int workers)
      : ordinal_(ordinal), ferry_(std::move(ferry)), busy_(static_cast<std::size_t>(workers)) {}

  const int ordinal_;
  const std::shared_ptr<device::Ferry> ferry_;
  std::mutex mutex_;
  std::map<std::string, Program, std::less<>> programs_;  // by codec and settings
  std::vector<std::mutex> busy_;                          // by lane
  std::vector<catalogue::DeviceLane> lanes_;              // destroyed before the programs
};

class Gpus {
 public:
  Gpus(DeviceChoice choice, int workers) : choice_(choice), workers_(workers) {}
  const DeviceChoice& choice() const { return choice_; }
  // kUnsupported: there is no driver, or no such GPU.
  Result<Gpu*> at(int ordinal);
  void say(const std::string& line);    // each line once
  std::vector<std::string> messages();  // since the last call

 private:
  const DeviceChoice choice_;
  const int workers_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Gpu>> open_;
  std::set<std::string> known_;
  std::vector<std::string> lines_;
};

}  // namespace tithe::engine
