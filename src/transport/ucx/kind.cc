// SPDX-License-Identifier: Apache-2.0
// The description of the ucx transport, in every build, including builds without the library.
#include "transport/long_messages.h"
#include "transport/transports.h"
#include "transport/ucx/open.h"

namespace tithe {
namespace ucx {
namespace {

constexpr TransportOption kOptions[] = {
    {"transports", "",
     "UCX_TLS, e.g. tcp or tcp,self; empty: the value from the environment, or UCX's default"},
    {"devices", "", "UCX_NET_DEVICES, e.g. eth0 or mlx5_0:1; empty: as for transports"},
};
constexpr std::string_view kExamples[] = {"ucx", "ucx:transports=tcp"};

}  // namespace
}  // namespace ucx

const TransportKind ucx_transport = {.name = "ucx",
                                     .doc = "shared memory, TCP or RDMA, through UCX",
                                     .options = ucx::kOptions,
                                     .examples = ucx::kExamples,
                                     .usable = ucx::usable,
                                     .probe = ucx::probe,
                                     .open = ucx::open_with,
                                     .open_threads = nullptr};

const LongMessages ucx_long_messages = {};  // over TCP UCX sends without asking the receiver (worker.cc)

}  // namespace tithe
