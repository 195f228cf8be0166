// SPDX-License-Identifier: Apache-2.0
#include "engine/device/device_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

namespace tithe::engine {
namespace {

using device::Address;

constexpr std::string_view kOnHost = "on the host: ";  // the prefix of catalogue::OnDevice::how
constexpr std::size_t kAligned = 64;
constexpr std::size_t kNotMirrored = SIZE_MAX;  // in mirrored_at_: the host path does not use the tensor

using tithe::bytes_of;
std::size_t bytes_of(const Tensor& t) { return t.n * bytes_of(t.dtype); }
Address address_of(const void* at) { return reinterpret_cast<Address>(at); }

}  // namespace

bool adjacent(std::span<const Tensor> bucket, std::span<const PartShare> shares) {
  return std::ranges::all_of(shares, [&](const PartShare& s) {
    return s.dtype == DType::kF32 && s.data(bucket) == shares[0].data(bucket) + 4 * s.at;
  });
}

DeviceParts::DeviceParts(std::vector<PlannedPart> parts, std::size_t staged_values, std::size_t most_payloads,
                         std::shared_ptr<Gpus> gpus)
    : made_(std::move(parts)),
      staged_values_(staged_values),
      most_payloads_(std::max<std::size_t>(most_payloads, 1)),
      gpus_(std::move(gpus)),
      parts_(made_.size()) {}

// ---- The start of a round

// Checks that the bucket is on the GPU, chooses paths if the GPU is new, reserves memory, and sets the address of
// each part's values: the tensors' own memory if it is contiguous fp32, otherwise staging memory.
Status DeviceParts::begin(std::span<const Tensor> bucket, const Origin& origin,
                          feedback::ErrorFeedback& feedback) {
  on_ = false;
  const Result<Gpu*> there = gpus_->at(origin.device);
  if (!there.ok())
    return {there.status().code(),
            fmt::format("a bucket on GPU {}: {}", origin.device, there.status().what())};
  const device::Device& on = (*there)->on();
  for (const Tensor& t : bucket)
    if (t.n > 0)
      if (const Status owned = on.owns(address_of(t.data)); !owned.ok())
        return {owned.code(), owned.code() != Code::kInvalid
                                  ? owned.what()
                                  : fmt::format("tensor '{}' {}, and its bucket was passed as data on GPU {}",
                                                t.key, owned.what(), origin.device)};
  bucket_.assign(bucket.begin(), bucket.end());
  if (*there != gpu_) {
    TITHE_TRY(feedback.to_host());
    staged_ = {};
    mirrored_ = {};
    gpu_ = *there;
    Result<device::Event> event = on.event();
    if (!event.ok()) return event.status();
    given_ = std::move(*event);
    reserved_ = false;
    choose(feedback);
  }
  TITHE_TRY(take_memory(feedback));
  TITHE_TRY(make_mirror());
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    PartState& part = parts_[p];
    if (!part.why.empty() || made_[p].shares.empty()) continue;
    part.in_place = adjacent(bucket_, made_[p].shares);
    part.values =
        part.in_place ? address_of(made_[p].shares[0].data(bucket_)) : staged_.at() + 4 * made_[p].staged_at;
  }
  TITHE_TRY(on.record(given_, origin.stream));
  on_ = true;
  return {};
}

// Chooses the path of each part on this GPU.
void DeviceParts::choose(const feedback::ErrorFeedback& feedback) {
  std::size_t values = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    parts_[p] = {};
    const PlannedPart& made = made_[p];
    std::string why = made.why;
    if (!gpus_->choice().on) why = "device=off";
    if (why.empty() && made.largest_chunk() < gpus_->choice().least)
      why = fmt::format("chunks of fewer than {} values are faster on the host", gpus_->choice().least);
    if (why.empty() && feedback.reads_alone(static_cast<int>(p)))
      why = "it sends the residual of another codec";
    if (why.empty()) {
      const Gpu::Program& program = gpu_->program(made.spec);
      parts_[p].made = &program;
      if (program.on.program == nullptr) {
        why = program.on.how.substr(kOnHost.size());
        gpus_->say(fmt::format("{}: {}", made.spec.codec->name, program.on.how));
      }
    }
    parts_[p].why = std::move(why);
  }
  for (std::size_t p = 0; p < parts_.size(); ++p)
    if (!parts_[p].why.empty()) leave_to_host(p, std::string(parts_[p].why));
  bool copies = false;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!parts_[p].why.empty()) continue;
    if (feedback.has_residual(static_cast<int>(p))) values += 2 * made_[p].n;
    copies = copies || made_[p].copied;
  }
  if (copies) values += staged_values_;
  if (values > 0 && !bucket_.empty())
    gpus_->say(fmt::format(
        "device: {}: {:.1f} MB for residuals and copies of the bucket of '{}' and {} other tensors",
        gpu_->name(), 4e-6 * static_cast<double>(values), bucket_[0].key, bucket_.size() - 1));
}

void DeviceParts::leave_to_host(std::size_t part, const std::string& why) {
  std::size_t first = part, end = part + 1;
  while (first > 0 && !made_[first].begins()) --first;
  while (end < made_.size() && !made_[end].begins()) ++end;
  for (std::size_t p = first; p < end; ++p) parts_[p].why = why;
}

// A batch has at most the same chunk of each device part, and each batch lane runs one batch. Also plans the kernels
// for all sizes.
Status DeviceParts::reserve() {
  std::map<const Gpu::Program*, std::vector<std::size_t>> parts;  // by program
  std::size_t shares = 0;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!parts_[p].why.empty()) continue;
    parts[parts_[p].made].push_back(p);
    shares += made_[p].shares.size();
  }
  // The tables of conversions before and after.
  std::size_t room = 2 * catalogue::DeviceProgram::conversion_bytes(shares), scratch = 0;
  for (const auto& [program, of] : parts) {
    const Gpu::BatchLane lane = gpu_->batch_lane();
    const Spec& spec = made_[of[0]].spec;
    catalogue::DeviceMemory most;
    for (std::size_t chunk = 0;; ++chunk) {
      std::vector<std::size_t> sizes;
      for (const std::size_t p : of)
        if (chunk < made_[p].chunks.size()) sizes.push_back(made_[p].chunks[chunk]);
      if (sizes.empty()) break;
      lane.on.begin();
      const auto memory = program->on.program->memory(
          lane.on, program->settings_of(*spec.codec, spec.settings), sizes, most_payloads_);
      if (!memory.ok()) return lane.on.drained(memory.status());
      most = {std::max(most.room, memory->room), std::max(most.scratch, memory->scratch)};
    }
    room += most.room;
    scratch += most.scratch;
  }
  return parts.empty() ? Status{} : gpu_->reserve(room, scratch);
}

// If memory cannot be allocated for a part, the host takes the part. Only a lost context ends the session.
Status DeviceParts::take_memory(feedback::ErrorFeedback& feedback) {
  const auto give_up = [&](std::size_t p, const Status& why) -> Status {
    TITHE_TRY(gpu_->on().lost());
    leave_to_host(p, why.what());
    gpus_->say(
        fmt::format("part {} of the bucket of '{}' runs on the host: {}", p, bucket_[0].key, why.what()));
    return {};
  };
  while (!reserved_) {
    const Status there = reserve();
    reserved_ = there.ok();
    if (reserved_) break;
    std::size_t largest = parts_.size();
    for (std::size_t p = 0; p < parts_.size(); ++p)
      if (parts_[p].why.empty() && (largest == parts_.size() || made_[p].n > made_[largest].n)) largest = p;
    TITHE_TRY(give_up(largest, there));
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!parts_[p].why.empty()) continue;
    Status there;
    if (made_[p].copied && staged_.handle() == 0) {
      Result<device::Memory> memory = gpu_->on().memory(4 * staged_values_);
      there = memory.status();
      if (memory.ok()) staged_ = std::move(*memory);
    }
    if (there.ok()) there = feedback.to_device(static_cast<int>(p), gpu_->ferry());
    if (!there.ok()) TITHE_TRY(give_up(p, there));
  }
  for (std::size_t p = 0; p < parts_.size(); ++p)
    if (!parts_[p].why.empty()) TITHE_TRY(feedback.to_host(static_cast<int>(p)));
  return {};
}

// Tensors of host parts are contiguous in the mirror, so most of these parts are used in place.
Status DeviceParts::make_mirror() {
  mirror_ = bucket_;
  mirrored_at_.assign(bucket_.size(), kNotMirrored);
  for (std::size_t p = 0; p < parts_.size(); ++p)
    if (!parts_[p].why.empty())
      for (const PartShare& s : made_[p].shares) mirrored_at_[s.tensor] = 0;
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < bucket_.size(); ++k) {
    if (mirrored_at_[k] == kNotMirrored) continue;
    mirrored_at_[k] = (bytes + 3) / 4 * 4;
    bytes = mirrored_at_[k] + bytes_of(bucket_[k]);
  }
  if (bytes > mirrored_.bytes()) {
    mirrored_ = {};
    Result<device::Pinned> memory = gpu_->on().pinned(bytes + kAligned);
    if (!memory.ok()) return memory.status();
    mirrored_ = std::move(*memory);
  }
  for (std::size_t k = 0; k < bucket_.size(); ++k)
    mirror_[k].data = mirrored_at_[k] == kNotMirrored ? nullptr : mirrored_.data() + mirrored_at_[k];
  return {};
}

// ---- Transfers

Status DeviceParts::drained(int lane, const Status& status) { return gpu_->lane(lane).drained(status); }

Status DeviceParts::bring(int lane, int part, std::size_t first, std::size_t n) {
  const auto held = gpu_->hold(lane);
  const device::Stream& stream = gpu_->lane(lane).stream();
  TITHE_TRY(gpu_->on().wait_for(stream, given_));
  return copy_shares(lane, part, first, n, [&](const PartShare& s) {
    return gpu_->on().copy_down(stream, s.data(mirror_), address_of(s.data(bucket_)), s.bytes());
  });
}

Status DeviceParts::take_back(int lane, int part, std::size_t first, std::size_t n) {
  const auto held = gpu_->hold(lane);
  return copy_shares(lane, part, first, n, [&](const PartShare& s) {
    return gpu_->on().copy_up(gpu_->lane(lane).stream(), address_of(s.data(bucket_)), s.data(mirror_),
                              s.bytes());
  });
}

// ---- Batches

Call DeviceParts::kernel_call(int part, const Call& call) const {
  Call own = call;
  own.settings = at(part).made->settings_of(*made(part).spec.codec, call.settings);
  return own;
}

Address DeviceParts::values(const PartRange& of) const { return at(of.part).values + 4 * of.first; }

template <typename Start, typename Finish>
Status DeviceParts::run(std::span<const PartRange> loads, Start start, Finish finish) {
  const Gpu::BatchLane lane = gpu_->batch_lane();
  lane.on.begin();
  const auto all = [&]() -> Status {
    TITHE_TRY(gpu_->on().wait_for(lane.on.stream(), given_));
    TITHE_TRY(convert(lane.on, loads, true));
    return start(lane.on);
  };
  TITHE_TRY(lane.on.drained(all()));
  const Status finished = finish(lane.on);
  return finished.ok() ? finished : lane.on.drained(finished);
}

// Gathers values that are not in place, or writes them to the tensors. One launch.
Status DeviceParts::convert(catalogue::DeviceLane& on, std::span<const PartRange> all, bool gathers) {
  using Conversion = catalogue::DeviceProgram::Conversion;
  std::vector<Conversion> some;
  for (const PartRange& of : all) {
    if (at(of.part).in_place) continue;
    TITHE_TRY(each_share(made(of.part).shares, of.first, of.n, [&](const PartShare& s) {
      some.push_back({.type = s.dtype == DType::kF32    ? Conversion::kFp32
                              : s.dtype == DType::kBF16 ? Conversion::kBf16
                                                        : Conversion::kFp16,
                      .narrow = address_of(s.data(bucket_)),
                      .wide = at(of.part).values + 4 * s.at,
                      .n = s.n});
      return Status();
    }));
  }
  return some.empty() ? Status{} : at(all[0].part).by().convert(on, some, gathers);
}

Status DeviceParts::load(std::span<const PartRange> loads) {
  // The next batch waits for the caller's work on values that are in place.
  if (std::ranges::all_of(loads, [&](const PartRange& of) { return at(of.part).in_place; })) return {};
  const auto nothing = [](catalogue::DeviceLane&) { return Status(); };
  return run(loads, nothing, nothing);
}

Status DeviceParts::encode(std::span<const PartRange> loads, std::span<Encoding> all) {
  struct Group {
    std::vector<catalogue::DeviceProgram::Encoding> items;
    std::vector<Encoding*> of;
  };
  std::map<const Gpu::Program*, Group> groups;
  for (Encoding& one : all) {
    Group& group = groups[at(one.of.part).made];
    group.items.push_back({.call = kernel_call(one.of.part, one.call),
                           .in = {values(one.of), one.kept.residual, one.kept.left, one.of.n},
                           .out = one.out});
    group.of.push_back(&one);
  }
  const auto name = [&](const Group& group) { return made(group.of[0]->of.part).spec.codec->name; };
  return run(
      loads,
      [&](catalogue::DeviceLane& on) -> Status {
        for (auto& [program, group] : groups)
          TITHE_TRY(program->on.program->start(on, name(group), group.items));
        return {};
      },
      [&](catalogue::DeviceLane& on) -> Status {
        for (auto& [program, group] : groups) {
          TITHE_TRY(program->on.program->finish(on, name(group), group.items));
          for (std::size_t k = 0; k < group.of.size(); ++k) group.of[k]->done = group.items[k].done;
        }
        return {};
      });
}

Status DeviceParts::decode(std::span<const PartRange> loads, std::span<Decoding> all) {
  struct Group {
    std::string_view name;
    std::vector<catalogue::DeviceProgram::Decoding> items;
  };
  std::map<const Gpu::Program*, Group> groups;
  std::vector<PartRange> stored;
  for (Decoding& one : all) {
    const Address to = values(one.of);
    Group& group = groups[at(one.of.part).made];
    group.name = made(one.of.part).spec.codec->name;
    group.items.push_back({.call = kernel_call(one.of.part, one.call),
                           .payloads = std::move(one.payloads),
                           .onto = {one.is_merge ? to : 0, one.divide, one.is_merge ? nullptr : &one.largest},
                           .out = to,
                           .n = one.of.n});
    if (!one.is_merge) stored.push_back(one.of);
  }
  return run(
      loads,
      [&](catalogue::DeviceLane& on) -> Status {
        for (auto& [program, group] : groups)
          TITHE_TRY(program->on.program->start(on, group.name, group.items));
        return convert(on, stored, false);
      },
      [&](catalogue::DeviceLane&) {
        for (const auto& [program, group] : groups) catalogue::DeviceProgram::finish(group.items);
        return Status();
      });
}

Status DeviceParts::fill_with_nan() {
  for (const Tensor& t : bucket_) {
    const Address at = address_of(t.data);
    TITHE_TRY(t.dtype == DType::kF32
                  ? gpu_->ferry()->fill_32(at, 0x7fc00000, t.n)
                  : gpu_->ferry()->fill_16(at, t.dtype == DType::kBF16 ? 0x7fc0 : 0x7e00, t.n));
  }
  return {};
}

Status DeviceParts::read(std::size_t tensor, std::vector<std::uint8_t>& to) {
  to.resize(bytes_of(bucket_[tensor]));
  TITHE_TRY(gpu_->ferry()->wait_for(given_));
  return gpu_->ferry()->down(to.data(), address_of(bucket_[tensor].data), to.size());
}

// ---- Descriptions

std::string DeviceParts::text() const {
  if (gpu_ == nullptr) return {};
  std::map<std::string, std::vector<std::size_t>> by_why;
  for (std::size_t p = 0; p < parts_.size(); ++p) by_why[parts_[p].why].push_back(p);
  std::string out;
  for (const auto& [why, parts] : by_why) {
    const std::string where = why.empty() ? "on " + gpu_->name() : why;
    fmt::format_to(std::back_inserter(out), "  {}part{} {}: {}\n", why.empty() ? "" : kOnHost,
                   parts.size() == 1 ? "" : "s", fmt::join(parts, ", "), where);
  }
  return out;
}

}  // namespace tithe::engine
