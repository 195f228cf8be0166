// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "verb.h"

namespace tithe::cli {

// One line of the output of `tithe doctor`.
struct Finding {
  std::string name;
  bool there;
  std::string what;  // what was found
  std::string cure;  // how to get it; empty if nothing is missing
  Json details = Json::object();
};

// The launcher's variables in this process's environment, and whether a rank could start with them.
Finding launcher();

}  // namespace tithe::cli
