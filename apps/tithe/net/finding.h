// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "verb.h"

namespace tithe::cli {

// One line of what `tithe doctor` answers.
struct Finding {
  std::string name;
  bool there;
  std::string what;  // what was found
  std::string cure;  // how to get it; empty where there is nothing to get
  Json details = Json::object();
};

// The finding of what a launcher left in this process's environment, and whether a rank could start with it.
Finding launcher();

}  // namespace tithe::cli
