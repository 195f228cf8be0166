// SPDX-License-Identifier: Apache-2.0
#include "engine/device/gpus.h"

#include <fmt/format.h>

#include <charconv>

namespace tithe::engine {

Result<DeviceChoice> parse_device(std::string_view text) {
  DeviceChoice choice;
  if (text == "off") return choice;
  choice.on = true;
  if (text == "on") return choice;
  constexpr std::string_view kPrefix = "on,min_values=";
  if (text.starts_with(kPrefix)) {
    const std::string_view number = text.substr(kPrefix.size());
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), choice.least);
    if (error == std::errc{} && end == number.data() + number.size() && choice.least > 0) return choice;
  }
  return Status(Code::kInvalid, fmt::format("device='{}' must be off, on, or on,min_values=N, with N values "
                                            "per chunk, such as on,min_values=65536",
                                            text));
}

Result<std::unique_ptr<Gpu>> Gpu::open(int ordinal, int workers) {
  const Result<device::Driver>& driver = device::this_driver();
  if (!driver.ok()) return driver.status();
  const Result<device::Device> on = device::Device::open(*driver, ordinal);
  if (!on.ok()) return on.status();
  Result<std::shared_ptr<device::Ferry>> ferry = device::Ferry::open(*on);
  if (!ferry.ok()) return ferry.status();
  std::unique_ptr<Gpu> gpu(new Gpu(ordinal, *ferry, workers));
  for (int k = 0; k < workers; ++k) {
    Result<catalogue::DeviceLane> lane = catalogue::DeviceLane::open(*on);
    if (!lane.ok()) return lane.status();
    gpu->lanes_.push_back(std::move(*lane));
  }
  return gpu;
}

// A free lane; the first one if none is free.
Gpu::BatchLane Gpu::batch_lane() {
  for (int k = 0; k < batch_lanes(); ++k)
    if (std::unique_lock held(busy_[static_cast<std::size_t>(k)], std::try_to_lock); held.owns_lock())
      return {std::move(held), lane(k)};
  return {hold(0), lane(0)};
}

Status Gpu::reserve(std::size_t room, std::size_t scratch) {
  for (int k = 0; k < batch_lanes(); ++k) {
    const auto held = hold(k);
    TITHE_TRY(lane(k).reserve(room, scratch));
  }
  return {};
}

std::string Gpu::name() const { return fmt::format("GPU {}, {}", ordinal_, on().name()); }

const Gpu::Program& Gpu::program(const Spec& spec) {
  const std::string name = to_string({.codec = spec.codec, .settings = spec.settings, .feedback = {}});
  const std::lock_guard lock(mutex_);
  Program& made = programs_[name];
  if (!made.on.how.empty()) return made;
  if (spec.codec->kernels != nullptr) {
    made.on = catalogue::on_device(on(), device::this_compiler(), *spec.codec, spec.settings);
    return made;
  }
  made.source = catalogue::kernel_source(*spec.codec, spec.settings);
  if (made.source)
    made.on = catalogue::on_device(on(), device::this_compiler(),
                                   made.source->program->of(made.source->settings), made.source->settings);
  else
    made.on.how = "on the host: tithe generates no kernels for this codec with these settings";
  return made;
}

Result<Gpu*> Gpus::at(int ordinal) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Gpu>& gpu = open_[ordinal];
  if (gpu == nullptr) {
    Result<std::unique_ptr<Gpu>> opened = Gpu::open(ordinal, workers_);
    if (!opened.ok()) return opened.status();
    gpu = std::move(*opened);
  }
  return gpu.get();
}

void Gpus::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (known_.insert(line).second) lines_.push_back(line);
}

std::vector<std::string> Gpus::messages() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lines_, {});
}

}  // namespace tithe::engine
