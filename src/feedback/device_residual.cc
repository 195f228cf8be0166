// SPDX-License-Identifier: Apache-2.0
#include "feedback/device_residual.h"

namespace tithe::feedback {

Status DeviceResidual::to_device(DoubleBuffer& here, std::size_t n,
                                 const std::shared_ptr<device::Ferry>& by) {
  if (on_device_ && by_ != by) TITHE_TRY(to_host(here, n));
  if (by_ != by) copies_ = {};
  by_ = by;
  for (std::size_t k = 0; k < 2 && !on_device_; ++k) {
    if (copies_[k].handle() == 0) {
      Result<device::Memory> there = by_->on().memory(sizeof(float) * n);
      if (!there.ok()) return there.status();
      copies_[k] = std::move(*there);
    }
    TITHE_TRY(here[k].empty() ? by_->fill_32(copies_[k].at(), 0, n)
                              : by_->up(copies_[k].at(), here[k].data(), sizeof(float) * n));
  }
  on_device_ = true;
  for (LargeFloats& copy : here) LargeFloats().swap(copy);
  return {};
}

Status DeviceResidual::to_host(DoubleBuffer& here, std::size_t n) {
  if (!std::exchange(on_device_, false)) return {};
  Status status;
  for (std::size_t k = 0; k < 2; ++k) {
    here[k].assign(n, 0.0F);
    const Status copied = by_->down(here[k].data(), copies_[k].at(), sizeof(float) * n);
    if (status.ok()) status = copied;
  }
  return status;
}

Status DeviceResidual::read_copy(DoubleBuffer& here, int which, std::size_t n) const {
  if (!on_device_) return {};
  here[which].resize(n);
  return by_->down(here[which].data(), copies_[which].at(), sizeof(float) * n);
}

}  // namespace tithe::feedback
