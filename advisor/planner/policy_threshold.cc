// SPDX-License-Identifier: Apache-2.0
// threshold: a tensor of at least the given number of bytes is compressed with the first codec that is allowed for it,
// whatever the cost. BytePS has this rule (BYTEPS_MIN_COMPRESS_BYTES), and so does the release of HiPress (1 MiB).
#include <fmt/format.h>

#include <charconv>

#include "advisor/planner/policies.h"
#include "base/text.h"

namespace tithe::planner {
namespace {

Result<double> bytes_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const double factor = unit.empty() || unit == "B" ? 1
                        : unit == "KB"              ? 1e3
                        : unit == "MB"              ? 1e6
                        : unit == "GB"              ? 1e9
                                                    : 0;
  if (error != std::errc{} || !(value >= 0) || !(value < 1e18) || factor == 0)
    return Status(
        Code::kInvalid,
        fmt::format("policy 'threshold:{}': give bytes, such as 262144, 64KB or 1MB", printable(text, 50)));
  return value * factor;
}

Result<Assignment> decide(PlanSearch& search, std::string_view argument) {
  const Result<double> least = bytes_of(argument);
  if (!least.ok()) return least.status();
  Assignment out = search.uniform(search.find(half_spec(), "server"), kDefaultPartValues);
  for (std::size_t t = 0; t < out.size(); ++t) {
    const Spec* lossy = search.lossy(t);
    if (lossy != nullptr && 4.0 * static_cast<double>(search.query().job.tensors[t].n) >= *least)
      out[t] = {search.find(*lossy, "server"), kDefaultPartValues, false};
  }
  return out;
}

}  // namespace

const Policy threshold_policy = {.name = "threshold", .argument = "bytes", .decide = decide};

}  // namespace tithe::planner
