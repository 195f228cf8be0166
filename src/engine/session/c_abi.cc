// SPDX-License-Identifier: Apache-2.0
// The C interface (tithe/tithe.h) of Session. A handle owns one C++ object. Options and statistics are copied field by
// field, from options.def and stats.def, so both interfaces have the same fields.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "tithe/connect.h"
#include "tithe/session.h"
#include "tithe/tithe.h"

struct tithe_transport {
  std::unique_ptr<tithe::Transport> transport;
};
struct tithe_session {
  std::unique_ptr<tithe::Session> session;
};

namespace tithe {
namespace {

static_assert(TITHE_INVALID == static_cast<int>(Code::kInvalid));
static_assert(TITHE_PEER_LOST == static_cast<int>(Code::kPeerLost));
static_assert(TITHE_CANCELLED == static_cast<int>(Code::kCancelled));
static_assert(TITHE_PROPOSED_REFUSED == static_cast<int>(Proposal::State::kRefused));
static_assert(TITHE_F16 == static_cast<int>(DType::kF16));
static_assert(TITHE_ALL_GATHER == static_cast<int>(RoundKind::kAllGather));

int report(const Status& s, tithe_error* error) {
  if (error != nullptr) {
    error->code = static_cast<int>(s.code());
    error->peer = s.peer();
    const std::size_t n = std::min(s.what().size(), sizeof error->what - 1);
    std::memcpy(error->what, s.what().data(), n);
    error->what[n] = '\0';
  }
  return static_cast<int>(s.code());
}

int invalid(const char* what, tithe_error* error) { return report({Code::kInvalid, what}, error); }

int give(Result<std::unique_ptr<Transport>> opened, tithe_transport** out, tithe_error* error) {
  if (!opened.ok()) return report(opened.status(), error);
  *out = new tithe_transport{std::move(*opened)};
  return report({}, error);
}

// Blobs of any size through gathers of one size: first the sizes, then the blobs, padded to the longest.
AllGather padded(int world, tithe_all_gather gather, void* user) {
  return [=](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    const auto ranks = static_cast<std::size_t>(world);
    std::uint8_t size[8];
    wire::put(size, std::uint64_t{mine.size()});
    std::vector<std::uint8_t> sizes(8 * ranks);
    if (gather(user, size, sizeof size, sizes.data()) != 0)
      return Status(Code::kIo, "the caller's all-gather failed");
    std::size_t longest = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      longest = std::max<std::size_t>(longest, wire::get<std::uint64_t>(&sizes[8 * r]));
    constexpr std::size_t kLongestAddress = 1U << 20;
    if (longest < mine.size() || longest > kLongestAddress)
      return Status(Code::kCorrupt, "the caller's all-gather returned inconsistent sizes");
    std::vector<std::uint8_t> blob(longest), blobs(longest * ranks);
    std::copy(mine.begin(), mine.end(), blob.begin());
    if (gather(user, blob.data(), longest, blobs.data()) != 0)
      return Status(Code::kIo, "the caller's all-gather failed");
    std::vector<std::vector<std::uint8_t>> all;
    for (std::size_t r = 0; r < ranks; ++r) {
      const auto from = blobs.begin() + static_cast<std::ptrdiff_t>(r * longest);
      all.emplace_back(from, from + static_cast<std::ptrdiff_t>(wire::get<std::uint64_t>(&sizes[8 * r])));
    }
    return all;
  };
}

std::vector<std::string> names(const char* const* members, int world) {
  if (members == nullptr) return {};
  return {members, members + world};
}

int give(const Result<std::vector<std::uint8_t>>& state, void** bytes, std::size_t* count,
         tithe_error* error) {
  if (!state.ok()) return report(state.status(), error);
  *count = state->size();
  *bytes = std::malloc(state->size());
  if (*bytes == nullptr) return report({Code::kIo, "state: out of memory"}, error);
  std::memcpy(*bytes, state->data(), state->size());
  return report({}, error);
}

constexpr int kAutomaticThreads = -1;

// Conversions of options between C and C++, by their kind.
void from_c(const char* given, std::string& option) {
  if (given != nullptr) option = given;
}
void from_c(int given, bool& option) { option = given != 0; }
void from_c(std::int64_t given, std::chrono::milliseconds& option) {
  option = std::chrono::milliseconds(given);
}
void from_c(int given, std::optional<int>& option) {
  if (given != kAutomaticThreads) option = given;
}
template <typename T>
void from_c(T given, T& option) {
  option = given;
}

const char* to_c(const std::string& option) { return option.c_str(); }
std::int64_t to_c(std::chrono::milliseconds option) { return option.count(); }
int to_c(std::optional<int> option) { return option.value_or(kAutomaticThreads); }
template <typename T>
T to_c(T option) {
  return option;
}

Result<SessionOptions> read(const tithe_options& o, int world) {
  if (o.size < sizeof(tithe_options)) return Status(Code::kInvalid, "options: call tithe_options_init first");
  if (o.codec == nullptr || o.strategy == nullptr)
    return Status(Code::kInvalid, "options: codec and strategy must be named");
  SessionOptions out;
#define TITHE_OPTION(kind, name, initial, documentation) from_c(o.name, out.name);
#include "tithe/options.def"
#undef TITHE_OPTION
  out.members = names(o.members, world);
  if (o.ended != nullptr)
    out.ended = [call = o.ended, user = o.user](std::uint64_t ticket, const Status& how) {
      tithe_error error;
      (void)report(how, &error);
      call(user, ticket, &error);
    };
  return out;
}

}  // namespace
}  // namespace tithe

using tithe::report;

int tithe_open_loop(int world, tithe_transport** out, tithe_error* error) {
  if (world < 1 || out == nullptr) return tithe::invalid("open_loop: world must be at least 1", error);
  auto all = tithe::open_loop(world);
  for (int r = 0; r < world; ++r) out[r] = new tithe_transport{std::move(all[static_cast<std::size_t>(r)])};
  return report({}, error);
}

int tithe_open_transport(const char* transport, int rank, int world, tithe_all_gather gather, void* user,
                         tithe_transport** out, tithe_error* error) {
  if (world < 1 || rank < 0 || rank >= world || gather == nullptr || out == nullptr)
    return tithe::invalid("open_transport: rank, world, gather or out is wrong", error);
  auto given = tithe::token_from_environment();
  if (!given.ok()) return report(given.status(), error);
  return tithe::give(tithe::open_transport(transport == nullptr ? "" : transport,
                                           {.rank = rank,
                                            .world = world,
                                            .all_gather = tithe::padded(world, gather, user),
                                            .token = std::move(given->token)}),
                     out, error);
}

int tithe_open_environment(const char* transport, tithe_transport** out, tithe_error* error) {
  if (out == nullptr) return tithe::invalid("open_environment: out is NULL", error);
  const auto launch = tithe::launch_from_environment();
  if (!launch.ok()) return report(launch.status(), error);
  return tithe::give(
      tithe::open_transport(transport == nullptr ? "" : transport, tithe::connect_options(*launch)), out,
      error);
}

void tithe_transport_free(tithe_transport* transport) { delete transport; }

void tithe_options_init(tithe_options* options) {
  static const tithe::SessionOptions kDefaults;
  *options = {};
  options->size = sizeof(tithe_options);
#define TITHE_OPTION(kind, name, initial, documentation) options->name = tithe::to_c(kDefaults.name);
#include "tithe/options.def"
#undef TITHE_OPTION
}

int tithe_session_open(tithe_transport* transport, const tithe_options* options, tithe_session** out,
                       tithe_error* error) {
  const std::unique_ptr<tithe_transport> taken(transport);
  if (transport == nullptr || options == nullptr || out == nullptr)
    return tithe::invalid("session_open: an argument is NULL", error);
  const auto read = tithe::read(*options, transport->transport->world());
  if (!read.ok()) return report(read.status(), error);
  auto opened = tithe::Session::open(std::move(taken->transport), *read);
  if (!opened.ok()) return report(opened.status(), error);
  *out = new tithe_session{std::move(*opened)};
  return report({}, error);
}

void tithe_session_close(tithe_session* session) { delete session; }
int tithe_rank(const tithe_session* session) { return session->session->rank(); }
int tithe_world(const tithe_session* session) { return session->session->world(); }

static int sync_from(tithe_session* session, const tithe_tensor* bucket, size_t tensors,
                     const tithe::Origin& origin, tithe::RoundKind kind, uint64_t* ticket,
                     tithe_error* error) {
  if (ticket == nullptr || (bucket == nullptr && tensors > 0))
    return tithe::invalid("sync: bucket or ticket is NULL", error);
  std::vector<tithe::Tensor> list;
  const auto entries = static_cast<size_t>(session->session->world()) + 1;
  for (size_t i = 0; i < tensors; ++i) {
    const tithe_tensor& t = bucket[i];
    if (t.key == nullptr || t.dtype < TITHE_F32 || t.dtype > TITHE_F16)
      return tithe::invalid("sync: a tensor has no key or an unknown type", error);
    list.push_back({t.key, t.data, t.n, static_cast<tithe::DType>(t.dtype), t.row, {}});
    if (t.bounds != nullptr) list.back().bounds = {t.bounds, entries};
  }
  const auto given = session->session->sync(list, origin, kind);
  if (given.ok()) *ticket = *given;
  return report(given.status(), error);
}

int tithe_sync(tithe_session* session, const tithe_tensor* bucket, size_t tensors, uint64_t* ticket,
               tithe_error* error) {
  return sync_from(session, bucket, tensors, {}, tithe::RoundKind::kAllReduce, ticket, error);
}
int tithe_sync_on(tithe_session* session, const tithe_tensor* bucket, size_t tensors, int device,
                  void* stream, uint64_t* ticket, tithe_error* error) {
  if (device < 0) return tithe::invalid("sync_on: the number of a GPU must be at least 0", error);
  return tithe_sync_kind(session, TITHE_ALL_REDUCE, bucket, tensors, device, stream, ticket, error);
}
int tithe_sync_kind(tithe_session* session, tithe_round_kind kind, const tithe_tensor* bucket, size_t tensors,
                    int device, void* stream, uint64_t* ticket, tithe_error* error) {
  const int number = kind;
  if (number < TITHE_ALL_REDUCE || number > TITHE_ALL_GATHER)
    return tithe::invalid("sync_kind: unknown kind of round", error);
  return sync_from(session, bucket, tensors, {device, reinterpret_cast<uint64_t>(stream)},
                   static_cast<tithe::RoundKind>(number), ticket, error);
}

int tithe_wait(tithe_session* session, uint64_t ticket, tithe_error* error) {
  return report(session->session->wait(ticket), error);
}
int tithe_poll(tithe_session* session, uint64_t ticket, int* done, tithe_error* error) {
  if (done == nullptr) return tithe::invalid("poll: done is NULL", error);
  const auto ended = session->session->poll(ticket);
  *done = ended.ok() && *ended ? 1 : 0;
  return report(ended.status(), error);
}
int tithe_commit(tithe_session* session, tithe_error* error) {
  return report(session->session->commit(), error);
}
int tithe_evaluated(tithe_session* session, double loss, tithe_error* error) {
  return report(session->session->evaluated(loss), error);
}
int tithe_learning_rate(tithe_session* session, double rate, tithe_error* error) {
  return report(session->session->learning_rate(rate), error);
}
void tithe_cancel(tithe_session* session) { session->session->cancel(); }
int tithe_last_round_dropped(const tithe_session* session) {
  return session->session->last_round_dropped() ? 1 : 0;
}

int tithe_propose(tithe_session* session, const char* choices, uint64_t round, tithe_error* error) {
  if (choices == nullptr) return tithe::invalid("propose: choices is NULL", error);
  return report(session->session->propose(std::string_view(choices), round), error);
}

int tithe_proposal(const tithe_session* session, uint64_t* round, tithe_error* why) {
  const tithe::Proposal p = session->session->proposal();
  if (round != nullptr) *round = p.round;
  (void)report(p.why, why);
  return static_cast<int>(p.state);
}

int tithe_state(tithe_session* session, void** bytes, size_t* count, tithe_error* error) {
  if (bytes == nullptr || count == nullptr) return tithe::invalid("state: an argument is NULL", error);
  return tithe::give(session->session->state(), bytes, count, error);
}

int tithe_common_state(tithe_session* session, void** bytes, size_t* count, tithe_error* error) {
  if (bytes == nullptr || count == nullptr) return tithe::invalid("common_state: an argument is NULL", error);
  return tithe::give(session->session->common_state(), bytes, count, error);
}

int tithe_restore(tithe_session* session, const void* bytes, size_t count, tithe_error* error) {
  return report(session->session->restore({static_cast<const std::uint8_t*>(bytes), count}), error);
}

int tithe_restore_states(tithe_session* session, const void* const* states, const size_t* counts, size_t n,
                         int book, tithe_error* error) {
  if (n > 0 && (states == nullptr || counts == nullptr))
    return tithe::invalid("restore_states: an argument is NULL", error);
  std::vector<tithe::ByteView> all;
  for (size_t i = 0; i < n; ++i) all.emplace_back(static_cast<const std::uint8_t*>(states[i]), counts[i]);
  return report(session->session->restore(all, book != 0 ? tithe::Lost::kBook : tithe::Lost::kSpread), error);
}

int tithe_undo(tithe_session* session, tithe_error* error) { return report(session->session->undo(), error); }

int tithe_reform(tithe_session* session, tithe_transport* transport, const char* const* members,
                 uint64_t epoch, tithe_error* error) {
  const std::unique_ptr<tithe_transport> taken(transport);
  if (transport == nullptr || members == nullptr) return tithe::invalid("reform: an argument is NULL", error);
  auto names = tithe::names(members, transport->transport->world());
  return report(session->session->reform(std::move(taken->transport), std::move(names), epoch), error);
}

int tithe_residual(const tithe_session* session, const char* key, float* out, size_t n, tithe_error* error) {
  if (key == nullptr || (out == nullptr && n > 0))
    return tithe::invalid("residual: an argument is NULL", error);
  return report(session->session->residual(key, {out, n}), error);
}

void tithe_free(void* bytes) { std::free(bytes); }

int tithe_session_stats(const tithe_session* session, tithe_stats* out, tithe_error* error) {
  if (out == nullptr || out->size < sizeof(tithe_stats))
    return tithe::invalid("stats: set size to sizeof(tithe_stats) first", error);
  const tithe::SessionStats s = session->session->stats();
#define TITHE_STAT(type, name, initial, documentation) out->name = s.name;
#include "tithe/stats.def"
#undef TITHE_STAT
  return report({}, error);
}
