// SPDX-License-Identifier: Apache-2.0
#include "engine/device/device_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace tithe::engine {
namespace {

using device::Address;

constexpr std::string_view kOnHost = "on the host: ";  // the prefix of lang::OnDevice::how
constexpr std::size_t kAligned = 64;

using tithe::bytes_of;
std::size_t bytes_of(const Tensor& t) { return t.n * bytes_of(t.dtype); }
Address address_of(const void* at) { return reinterpret_cast<Address>(at); }

}  // namespace

DeviceParts::DeviceParts(std::vector<PlannedPart> parts, std::size_t staged_values,
                         std::shared_ptr<Gpus> gpus)
    : made_(std::move(parts)), staged_values_(staged_values), gpus_(std::move(gpus)), parts_(made_.size()) {}

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
    const std::vector<Share>& shares = made_[p].shares;
    part.values = address(shares[0]);
    part.in_place = std::ranges::all_of(shares, [&](const Share& s) {
      return bucket_[s.tensor].dtype == DType::kF32 && address(s) == part.values + 4 * s.at;
    });
    if (!part.in_place) part.values = staged_.at() + 4 * made_[p].staged_at;
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
    if (why.empty() && made.largest_chunk < gpus_->choice().least)
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
  while (first > 0 && !made_[first].begins) --first;
  while (end < made_.size() && !made_[end].begins) ++end;
  for (std::size_t p = first; p < end; ++p) parts_[p].why = why;
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
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!parts_[p].why.empty()) continue;
    Status there;
    if (made_[p].copied && staged_.handle() == 0) {
      Result<device::Memory> memory = gpu_->on().memory(4 * staged_values_);
      there = memory.status();
      if (memory.ok()) staged_ = std::move(*memory);
    }
    for (int lane = 0; lane < gpu_->lanes() && there.ok() && !reserved_; ++lane) {
      const auto held = gpu_->hold(lane);
      const Spec& spec = made_[p].spec;
      there = parts_[p].by().reserve(
          gpu_->lane(lane), parts_[p].made->settings_of(*spec.codec, spec.settings), made_[p].largest_chunk);
    }
    if (there.ok()) there = feedback.to_device(static_cast<int>(p), gpu_->ferry());
    if (!there.ok()) TITHE_TRY(give_up(p, there));
  }
  reserved_ = true;
  for (std::size_t p = 0; p < parts_.size(); ++p)
    if (!parts_[p].why.empty()) TITHE_TRY(feedback.to_host(static_cast<int>(p)));
  return {};
}

// Tensors of host parts are contiguous in the mirror, so most of these parts are used in place.
Status DeviceParts::make_mirror() {
  mirror_ = bucket_;
  std::vector<bool> here(bucket_.size());
  for (std::size_t p = 0; p < parts_.size(); ++p)
    for (const Share& s : made_[p].shares) here[s.tensor] = here[s.tensor] || !parts_[p].why.empty();
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < bucket_.size(); ++k)
    if (here[k]) bytes = (bytes + 3) / 4 * 4 + bytes_of(bucket_[k]);
  if (bytes > mirrored_.bytes()) {
    mirrored_ = {};
    Result<device::Pinned> memory = gpu_->on().pinned(bytes + kAligned);
    if (!memory.ok()) return memory.status();
    mirrored_ = std::move(*memory);
  }
  std::size_t at = 0;
  for (std::size_t k = 0; k < bucket_.size(); ++k) {
    at = (at + 3) / 4 * 4;
    mirror_[k].data = here[k] ? mirrored_.data() + at : nullptr;
    if (here[k]) at += bytes_of(bucket_[k]);
  }
  return {};
}

// ---- Transfers

Address DeviceParts::address(const Share& s) const {
  const Tensor& t = bucket_[s.tensor];
  return address_of(t.data) + bytes_of(t.dtype) * s.skip;
}

Status DeviceParts::drained(int lane, const Status& status) {
  const Status waited = gpu_->on().wait(gpu_->lane(lane).stream());
  return status.ok() ? waited : status;
}

// Calls body(tensor, offset in the tensor, offset in the part, count) for each share, until one fails.
template <typename Body>
Status DeviceParts::each_share(int lane, int part, std::size_t first, std::size_t n, Body body) {
  const auto all = [&]() -> Status {
    const std::vector<Share>& shares = made(part).shares;
    auto at = std::ranges::partition_point(shares, [&](const Share& s) { return s.at + s.n <= first; });
    for (; at != shares.end() && at->at < first + n; ++at) {
      const std::size_t from = std::max(at->at, first), to = std::min(at->at + at->n, first + n);
      if (from < to) TITHE_TRY(body(at->tensor, at->skip + (from - at->at), from, to - from));
    }
    return {};
  };
  return drained(lane, all());
}

Status DeviceParts::bring(int lane, int part, std::size_t first, std::size_t n) {
  const auto held = gpu_->hold(lane);
  const device::Stream& stream = gpu_->lane(lane).stream();
  TITHE_TRY(gpu_->on().wait_for(stream, given_));
  return each_share(
      lane, part, first, n, [&](std::size_t k, std::size_t skip, std::size_t, std::size_t count) {
        const std::size_t w = bytes_of(bucket_[k].dtype);
        return gpu_->on().copy_down(stream, static_cast<std::uint8_t*>(mirror_[k].data) + w * skip,
                                    address_of(bucket_[k].data) + w * skip, w * count);
      });
}

Status DeviceParts::take_back(int lane, int part, std::size_t first, std::size_t n) {
  const auto held = gpu_->hold(lane);
  return each_share(
      lane, part, first, n, [&](std::size_t k, std::size_t skip, std::size_t, std::size_t count) {
        const std::size_t w = bytes_of(bucket_[k].dtype);
        return gpu_->on().copy_up(gpu_->lane(lane).stream(), address_of(bucket_[k].data) + w * skip,
                                  static_cast<const std::uint8_t*>(mirror_[k].data) + w * skip, w * count);
      });
}

Status DeviceParts::load(int lane, int part, std::size_t first, std::size_t n) {
  const auto held = gpu_->hold(lane);
  lang::DeviceLane& on = gpu_->lane(lane);
  const PartState& p = at(part);
  TITHE_TRY(gpu_->on().wait_for(on.stream(), given_));
  if (p.in_place) return drained(lane, {});
  return each_share(
      lane, part, first, n, [&](std::size_t k, std::size_t skip, std::size_t to, std::size_t count) {
        const DType dtype = bucket_[k].dtype;
        const Address from = address_of(bucket_[k].data) + bytes_of(dtype) * skip;
        return dtype == DType::kF32 ? gpu_->on().copy_within(on.stream(), p.values + 4 * to, from, 4 * count)
                                    : p.by().widen(on, from, dtype == DType::kBF16, p.values + 4 * to, count);
      });
}

Status DeviceParts::unload(int lane, int part, std::size_t first, std::size_t n) {
  const auto held = gpu_->hold(lane);
  lang::DeviceLane& on = gpu_->lane(lane);
  const PartState& p = at(part);
  if (p.in_place) return {};
  return each_share(lane, part, first, n,
                    [&](std::size_t k, std::size_t skip, std::size_t from, std::size_t count) {
                      const DType dtype = bucket_[k].dtype;
                      const Address to = address_of(bucket_[k].data) + bytes_of(dtype) * skip;
                      return dtype == DType::kF32
                                 ? gpu_->on().copy_within(on.stream(), to, p.values + 4 * from, 4 * count)
                                 : p.by().narrow(on, p.values + 4 * from, to, dtype == DType::kBF16, count);
                    });
}

// A schedule changes the ratio between rounds.
Call DeviceParts::kernel_call(int part, const Call& call) const {
  Call own = call;
  own.settings = at(part).made->settings_of(*made(part).spec.codec, call.settings);
  return own;
}

Result<Encoded> DeviceParts::encode(int lane, int part, const Call& call, std::size_t first, std::size_t n,
                                    const feedback::ErrorFeedback::DeviceView& kept, Bytes out) {
  const auto held = gpu_->hold(lane);
  lang::DeviceLane& on = gpu_->lane(lane);
  const Codec& codec = *made(part).spec.codec;
  const Call own = kernel_call(part, call);
  const Result<Bytes> room = on.room(own.settings.codec->phases[0].bound(own.settings, n));
  if (!room.ok()) return room.status();
  const Result<Encoded> done = at(part).by().encode(
      on, codec.name, own, {at(part).values + 4 * first, kept.residual, kept.left, n}, *room);
  if (!done.ok() || !done->finite) return done;
  if (done->bytes > out.size()) return Status(Code::kIo, "a GPU's payload is longer than the codec's bound");
  if (done->bytes > 0) std::memcpy(out.data(), room->data(), done->bytes);
  return done;
}

Status DeviceParts::decode(int lane, int part, const Call& call, std::span<const ByteView> payloads,
                           bool onto, float divide, std::size_t first, std::size_t n, float* largest) {
  const auto held = gpu_->hold(lane);
  lang::DeviceLane& on = gpu_->lane(lane);
  std::size_t bytes = 0;
  for (const ByteView payload : payloads) bytes += payload.size();
  const Result<Bytes> room = on.room(bytes);
  if (!room.ok()) return room.status();
  std::vector<ByteView> pinned;
  for (std::size_t at = 0; const ByteView payload : payloads) {
    if (!payload.empty()) std::memcpy(room->data() + at, payload.data(), payload.size());
    pinned.emplace_back(room->data() + at, payload.size());
    at += payload.size();
  }
  const Address values = at(part).values + 4 * first;
  return at(part).by().decode(on, made(part).spec.codec->name, kernel_call(part, call), pinned,
                              {onto ? values : 0, divide, largest}, values, n);
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
