// SPDX-License-Identifier: Apache-2.0
#include "advisor/planner/policies.h"

#include <fmt/format.h>

#include "base/nearest.h"
#include "base/text.h"

namespace tithe::planner {
namespace {

constexpr const Policy* kPolicies[] = {
#define TITHE_POLICY(name) &name##_policy,
#include "advisor/planner/policies.def"
#undef TITHE_POLICY
};

}  // namespace

std::span<const Policy* const> all_policies() { return kPolicies; }

Result<const Policy*> find_policy(std::string_view text, std::string_view& argument) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  argument = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  std::vector<std::string_view> names;
  for (const Policy* p : kPolicies) {
    names.push_back(p->name);
    if (p->name != name) continue;
    if (p->argument.empty() != argument.empty())
      return Status(Code::kInvalid,
                    p->argument.empty()
                        ? fmt::format("policy '{}': the name takes no value", p->name)
                        : fmt::format("policy '{0}': give {1}, as in {0}:1MB", p->name, p->argument));
    return p;
  }
  return Status(Code::kInvalid,
                fmt::format("unknown policy '{}': {}", printable(name, 50), suggest(name, names)));
}

}  // namespace tithe::planner
