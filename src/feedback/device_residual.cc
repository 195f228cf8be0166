// SPDX-License-Identifier: Apache-2.0
#include "feedback/device_residual.h"

namespace tithe::carry {

Status Afar::leave(Copies& here, std::size_t n, const std::shared_ptr<device::Ferry>& by) {
  if (away_ && by_ != by) TITHE_TRY(come_home(here, n));
  if (by_ != by) copies_ = {};
  by_ = by;
  for (std::size_t k = 0; k < 2 && !away_; ++k) {
    if (copies_[k].handle() == 0) {
      Result<device::Memory> there = by_->on().memory(sizeof(float) * n);
      if (!there.ok()) return there.status();
      copies_[k] = std::move(*there);
    }
    TITHE_TRY(here[k].empty() ? by_->fill_32(copies_[k].at(), 0, n)
                              : by_->up(copies_[k].at(), here[k].data(), sizeof(float) * n));
  }
  away_ = true;
  for (LargeFloats& copy : here) LargeFloats().swap(copy);
  return {};
}

Status Afar::come_home(Copies& here, std::size_t n) {
  if (!std::exchange(away_, false)) return {};
  Status status;
  for (std::size_t k = 0; k < 2; ++k) {
    here[k].assign(n, 0.0F);
    const Status came = by_->down(here[k].data(), copies_[k].at(), sizeof(float) * n);
    if (status.ok()) status = came;
  }
  return status;
}

Status Afar::see(Copies& here, int which, std::size_t n) const {
  if (!away_) return {};
  here[which].resize(n);
  return by_->down(here[which].data(), copies_[which].at(), sizeof(float) * n);
}

}  // namespace tithe::carry
