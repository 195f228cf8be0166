// SPDX-License-Identifier: Apache-2.0
// The ucx transport in a build without UCX (TITHE_UCX=OFF): it reports why it is unavailable.
#include "transport/ucx/open.h"

namespace tithe::ucx {

Status usable() {
  return {Code::kUnsupported,
          "this build has no UCX: use tcp, or install UCX (apt-get install libucx-dev) and rebuild tithe"};
}

TransportProbe probe() { return {}; }

Result<std::unique_ptr<Transport>> open_with(const ConnectOptions&, std::span<const std::string>) {
  return usable();
}

}  // namespace tithe::ucx
