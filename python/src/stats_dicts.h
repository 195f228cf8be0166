// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session's statistics and events as Python objects: the names are those of include/tithe/session.h.
#include <nanobind/nanobind.h>

#include <vector>

#include "tithe/session.h"

namespace tithe::python {

nanobind::dict to_dict(const SessionStats& stats);
nanobind::list to_list(const std::vector<TensorStats>& tensors);
nanobind::list to_list(const std::vector<TraceEvent>& events);

}  // namespace tithe::python
