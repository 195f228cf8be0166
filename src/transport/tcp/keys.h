// SPDX-License-Identifier: Apache-2.0
#pragma once
// The certificates of a job: an authority of its own, and one certificate per rank that it has signed.
#include <chrono>
#include <string>

#include "tithe/status.h"

namespace tithe::tcp {

// Makes `folder`, with ca.pem and, for each rank, rank<R>.pem and rank<R>.key (mode 600). The authority's key is kept
// nowhere: nobody can make another rank of this job. kInvalid where the folder is there already, or cannot be made.
// A certificate holds from an hour ago, since clocks differ, until `lasting` from now.
Status make_keys(const std::string& folder, int world, std::chrono::seconds lasting);

}  // namespace tithe::tcp
