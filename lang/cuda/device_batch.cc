// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/device_batch.h"

#include <algorithm>
#include <cstring>

namespace tithe::lang {

namespace {

using device::Address;

constexpr std::size_t kMaxPlans = 4096;     // in the cache
constexpr std::size_t kPlannedAtOnce = 64;  // shapes, which limits the memory for plans
// A planning kernel computes with these addresses of the scratch and of the payload, and never reads them.
constexpr Address kNominalScratch = Address{1} << 44, kNominalPayload = Address{2} << 44;

Address moved(Address at, Address scratch, const std::uint8_t* payload) {
  if (at >= kNominalPayload) return at - kNominalPayload + reinterpret_cast<Address>(payload);
  return at >= kNominalScratch ? at - kNominalScratch + scratch : at;
}

// The call from which a tensor's plan is computed: everything that the plan depends on.
KernelCall shape_of(BatchCalls& batch, std::size_t tensor) {
  const KernelCall& call = batch.of(tensor)[0];
  KernelCall shape = {};
  std::ranges::copy(call.settings, shape.settings);
  shape.n = call.n;
  shape.payload = pointer_of<std::uint8_t>(kNominalPayload);
  shape.payload_bytes = batch.bounds.empty() ? 0 : batch.bounds[tensor];
  shape.scratch = pointer_of<std::uint8_t>(kNominalScratch);
  shape.agreed_ranks = call.agreed_ranks;
  shape.field_bits = call.field_bits;
  return shape;
}

std::uint64_t each_blocks(std::size_t n) {
  return std::max<std::size_t>(1, (n + kEachValues - 1) / kEachValues);
}

std::size_t table_bytes(std::size_t tensors, std::size_t row, std::size_t launches) {
  return tensors * (row * sizeof(KernelCall) + launches * sizeof(std::uint64_t));
}

// A table in a lane's room: the calls, then for each launch the numbers of thread blocks.
class Table {
 public:
  Table(const DeviceRoom& room, std::size_t tensors, std::size_t row)
      : room_(room), tensors_(tensors), row_(row) {}
  void put(std::size_t tensor, std::span<const KernelCall> calls) {
    std::memcpy(room_.host + tensor * row_ * sizeof(KernelCall), calls.data(), row_ * sizeof(KernelCall));
  }
  // blocks(t): of tensor t. Returns their sum.
  template <typename Blocks>
  std::uint64_t count(std::size_t launch, Blocks blocks) {
    std::uint64_t all = 0;
    for (std::size_t t = 0; t < tensors_; ++t) {
      all += blocks(t);
      std::memcpy(room_.host + ends(launch) + t * sizeof all, &all, sizeof all);
    }
    return all;
  }
  KernelBatch batch(std::size_t launch, std::size_t first, std::size_t rounds) const {
    return {.calls = room_.at + first * sizeof(KernelCall),
            .ends = room_.at + ends(launch),
            .tensors = static_cast<std::uint32_t>(tensors_),
            .row = static_cast<std::uint32_t>(row_),
            .rounds = static_cast<std::uint32_t>(rounds),
            .unused = 0};
  }

 private:
  std::size_t ends(std::size_t launch) const {
    return tensors_ * (row_ * sizeof(KernelCall) + launch * sizeof(std::uint64_t));
  }
  DeviceRoom room_;
  std::size_t tensors_, row_;
};

}  // namespace

Result<device::Kernel> DeviceKernels::kernel(const device::Device& on, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto known = kernels_.find(name); known != kernels_.end()) return known->second;
  const Result<device::Kernel> there = on.kernel(module_, name.c_str());
  if (there.ok()) kernels_.emplace(name, *there);
  return there;
}

Status DeviceKernels::launch(const DeviceLane& lane, device::Kernel kernel, std::uint64_t blocks,
                             const KernelBatch& batch) {
  return lane.on().launch(lane.stream(), kernel, blocks, kKernelThreads, &batch);
}

// ---- Plans

bool DeviceKernels::Plan::runs_kernels_of(const Plan& other) const {
  return std::ranges::equal(
      launches, other.launches, {}, [](const Launch& l) { return l.kernel.function; },
      [](const Launch& l) { return l.kernel.function; });
}

Result<DeviceKernels::Plan> DeviceKernels::read(const device::Device& on, const KernelPlan& made) {
  if (made.launches > kMaxLaunches) return Status(Code::kUnsupported, "it launches too many kernels");
  Plan plan{.scratch = made.scratch};
  if (made.launches == 0) return plan;  // the planner has not written `within`
  std::ranges::transform(made.within, plan.within.begin(),
                         [](const void* at) { return reinterpret_cast<Address>(at); });
  for (std::size_t k = 0; k < made.launches; ++k) {
    const Result<device::Kernel> found = kernel(on, made.launch[k].kernel);
    if (!found.ok()) return found.status();
    plan.launches.push_back({*found, made.launch[k].blocks});
  }
  return plan;
}

// One launch computes the plans of several shapes.
Status DeviceKernels::compute(DeviceLane& lane, const char* planner,
                              const std::map<std::string, KernelCall>& calls) {
  const Result<device::Kernel> by = kernel(lane.on(), planner);
  if (!by.ok()) return by.status();
  for (auto next = calls.begin(); next != calls.end();) {
    const auto first = next;
    std::size_t count = 0;
    for (; next != calls.end() && count < kPlannedAtOnce; ++next) ++count;
    const Result<DeviceRoom> made = lane.room(count * sizeof(KernelPlan)),
                             room = lane.room(table_bytes(count, 1, 1));
    if (!made.ok()) return made.status();
    if (!room.ok()) return room.status();
    Table table(*room, count, 1);
    std::size_t t = 0;
    for (auto one = first; one != next; ++one, ++t) {
      KernelCall call = one->second;
      call.plan = pointer_of<void>(made->at + t * sizeof(KernelPlan));
      table.put(t, {&call, 1});
    }
    table.count(0, [](std::size_t) { return std::uint64_t{1}; });
    TITHE_TRY(lane.on().fill(lane.stream(), made->at, 0, count * sizeof(KernelPlan)));  // not all is written
    TITHE_TRY(lane.up(*room, table_bytes(count, 1, 1)));
    TITHE_TRY(launch(lane, *by, count, table.batch(0, 0, 1)));
    TITHE_TRY(lane.down(*made, count * sizeof(KernelPlan)));
    TITHE_TRY(lane.wait());
    t = 0;
    for (auto one = first; one != next; ++one, ++t) {
      KernelPlan plan;
      std::memcpy(&plan, made->host + t * sizeof plan, sizeof plan);
      Result<Plan> found = read(lane.on(), plan);
      if (!found.ok()) return found.status();
      const std::lock_guard lock(mutex_);
      if (plans_.size() >= kMaxPlans) plans_.clear();
      plans_[one->first] = std::make_shared<const Plan>(std::move(*found));
    }
  }
  return {};
}

Result<DeviceKernels::Plans> DeviceKernels::plans(DeviceLane& lane, const char* planner, BatchCalls& batch) {
  Plans found(batch.tensors());
  for (bool computed = false;; computed = true) {
    std::map<std::string, KernelCall> missing;
    for (std::size_t t = 0; t < found.size(); ++t) {
      if (found[t] != nullptr) continue;
      const KernelCall shape = shape_of(batch, t);
      std::string key = planner + std::string(reinterpret_cast<const char*>(&shape), sizeof shape);
      const std::lock_guard lock(mutex_);
      const auto known = plans_.find(key);
      if (known != plans_.end())
        found[t] = known->second;
      else
        missing.emplace(std::move(key), shape);
    }
    if (missing.empty()) return found;
    if (computed) return Status(Code::kUnsupported, "a batch has too many shapes");
    TITHE_TRY(compute(lane, planner, missing));
  }
}

Result<DeviceKernels::Memory> DeviceKernels::memory(DeviceLane& lane, const char* planner,
                                                    BatchCalls& batch) {
  const Result<Plans> plans = this->plans(lane, planner, batch);
  if (!plans.ok()) return plans.status();
  Memory memory;
  std::size_t launches = 0;
  for (const auto& plan : *plans) {
    memory.scratch += DeviceLane::rounded(plan->scratch);
    launches = std::max(launches, plan->launches.size());
  }
  memory.room = DeviceLane::rounded(table_bytes(plans->size(), batch.row, launches + 1));
  return memory;
}

// ---- Launches

Status DeviceKernels::launch(DeviceLane& lane, const char* planner, BatchCalls& batch, bool finishes) {
  const Result<Plans> plans = this->plans(lane, planner, batch);
  if (!plans.ok()) return plans.status();
  std::size_t bytes = 0;
  for (const auto& plan : *plans) bytes += DeviceLane::rounded(plan->scratch);
  Address at = 0;
  if (bytes > 0) {
    const Result<Address> scratch = lane.scratch(bytes);
    if (!scratch.ok()) return scratch.status();
    at = *scratch;
  }
  for (std::size_t t = 0; t < plans->size(); ++t) {
    const Plan& plan = *(*plans)[t];
    for (KernelCall& call : batch.of(t)) {
      call.scratch = pointer_of<std::uint8_t>(at);
      for (std::size_t k = 0; k < plan.within.size(); ++k)
        call.within[k] = pointer_of<void>(moved(plan.within[k], at, call.payload));
    }
    at += DeviceLane::rounded(plan.scratch);
  }
  std::vector<std::size_t> left(plans->size()), alike;
  for (std::size_t t = 0; t < left.size(); ++t) left[t] = t;
  while (!left.empty()) {
    const Plan& first = *(*plans)[left[0]];
    alike.clear();
    std::erase_if(left, [&](std::size_t t) {
      if (!(*plans)[t]->runs_kernels_of(first)) return false;
      alike.push_back(t);
      return true;
    });
    TITHE_TRY(launch_alike(lane, batch, *plans, alike, finishes));
  }
  return {};
}

// If there is one kernel, a thread block runs the calls of a row one after the other: each call reads the values that
// the same thread block wrote. Otherwise each call needs launches of its own.
Status DeviceKernels::launch_alike(DeviceLane& lane, BatchCalls& batch, const Plans& plans,
                                   std::span<const std::size_t> tensors, bool finishes) {
  const std::vector<Plan::Launch>& launches = plans[tensors[0]]->launches;
  const std::size_t bytes = table_bytes(tensors.size(), batch.row, launches.size() + 1);
  const Result<DeviceRoom> room = lane.room(bytes);
  if (!room.ok()) return room.status();
  Table table(*room, tensors.size(), batch.row);
  for (std::size_t t = 0; t < tensors.size(); ++t) table.put(t, batch.of(tensors[t]));
  std::vector<std::uint64_t> blocks;
  for (std::size_t k = 0; k < launches.size(); ++k)
    blocks.push_back(table.count(k, [&](std::size_t t) { return plans[tensors[t]]->launches[k].blocks; }));
  const std::uint64_t last =
      table.count(launches.size(), [&](std::size_t t) { return each_blocks(batch.of(tensors[t])[0].n); });
  TITHE_TRY(lane.up(*room, bytes));
  const std::size_t rounds = launches.size() == 1 ? batch.row : 1;
  for (std::size_t call = 0; call < batch.row; call += rounds)
    for (std::size_t k = 0; k < launches.size(); ++k)
      TITHE_TRY(launch(lane, launches[k].kernel, blocks[k], table.batch(k, call, rounds)));
  if (!finishes) return {};
  const Result<device::Kernel> finish = kernel(lane.on(), "tithe_finish");
  if (!finish.ok()) return finish.status();
  return launch(lane, *finish, last, table.batch(launches.size(), batch.row - 1, 1));
}

std::size_t DeviceKernels::each_bytes(std::size_t tensors) {
  return DeviceLane::rounded(table_bytes(tensors, 1, 1));
}

Status DeviceKernels::launch_each(DeviceLane& lane, const char* name, const BatchCalls& batch) {
  const Result<device::Kernel> found = kernel(lane.on(), name);
  if (!found.ok()) return found.status();
  const std::size_t bytes = table_bytes(batch.tensors(), 1, 1);
  const Result<DeviceRoom> room = lane.room(bytes);
  if (!room.ok()) return room.status();
  Table table(*room, batch.tensors(), 1);
  for (std::size_t t = 0; t < batch.tensors(); ++t) table.put(t, {&batch.calls[t], 1});
  const std::uint64_t blocks = table.count(0, [&](std::size_t t) { return each_blocks(batch.calls[t].n); });
  TITHE_TRY(lane.up(*room, bytes));
  return launch(lane, *found, blocks, table.batch(0, 0, 1));
}

}  // namespace tithe::lang
