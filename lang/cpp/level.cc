// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "lang/cpp/object_cache.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lang/cpp/level.cc"
#include <hwy/foreach_target.h>
// must follow foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tithe::lang::HWY_NAMESPACE {
namespace {

// Better targets have lower numbers in Highway.
Level level() {
  return HWY_TARGET <= HWY_AVX3 ? Level::kAvx512 : HWY_TARGET <= HWY_AVX2 ? Level::kAvx2 : Level::kBase;
}

}  // namespace
}  // namespace tithe::lang::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::lang {
TITHE_EXPORT(level)
Level level_in_use() { return HWY_DYNAMIC_DISPATCH(level)(); }
}  // namespace tithe::lang
#endif
