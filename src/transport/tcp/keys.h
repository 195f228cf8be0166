// SPDX-License-Identifier: Apache-2.0
#pragma once
// The certificates of a job: the job's own certificate authority, and one certificate per rank signed by it.
#include <chrono>
#include <string>

#include "tithe/status.h"

namespace tithe::tcp {

// Creates `folder` with ca.pem and, for each rank, rank<R>.pem and rank<R>.key (mode 600). The authority's private key
// is not stored, so no further rank of this job can be created. kInvalid if the folder exists or cannot be created. A
// certificate is valid from an hour ago, since clocks differ, until `lasting` from now.
Status make_keys(const std::string& folder, int world, std::chrono::seconds lasting);

}  // namespace tithe::tcp
