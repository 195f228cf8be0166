// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Session averages tensors over all ranks, keeps each rank's residuals between rounds, and can be saved.
//
//   mean      after wait(), every tensor of the bucket holds the mean (or the sum) over ranks, bit-identical on all
//   alone     a tensor's result depends on its values, its key, the ranks and the choice for it. It does not depend on
//             the bucket or on the tensor's position there. Exception: tensors of a group that has a codec share a
//             part, so their results depend on each other
//   ledger    over all ranks, gradients + residuals before == result + residuals after (docs/inside/flow.md)
//   commit    residuals change only at commit(); a failed or non-finite round leaves them unchanged. Exception: values
//             beyond 2^63, which no later round could send, are dropped; stats() and messages() report them
//   together  a NaN or Inf on one rank makes every tensor of that round NaN on all ranks: those of its bucket by the
//             end of wait(), the others by the end of commit(). In a reduce-scatter wait() shows it to the owner of the
//             value, commit() to all
//   keyed     a residual belongs to the tensor's key; the tensor may change buckets
//   named     the Status on every survivor names a lost, silent or differing peer
//   steady    after the first round of a layout in the host's memory, sync() and wait() allocate nothing, with any
//             codec or program of the codec language. On a GPU they allocate no memory there after the second round
//   threads   one thread at a time calls a session, with exceptions: calls of sync(), wait(), poll(), commit(),
//             stats(), propose() and proposal() from several threads are serialised, but sync() during a commit() is
//             refused; cancel() may run at the same time as any call
//   polled    poll() returns without waiting whether a bucket holds its result; SessionOptions::ended is called once
//             for each ticket
//   regrouped a world of other ranks can continue from saved states: a rank that is still there keeps its residual, the
//             residual of a lost rank is spread or booked, and the ledger includes both (restore with several states)
//   undone    undo() restores the state before the last committed round
//   changed   new choices for the tensors take effect between the same two rounds on all ranks, and no residual is
//             lost (propose)
//   quiet     starts only the lanes, one background thread while it prepares a proposal or a plan or frees the
//             residuals of lost ranks, and one thread for a straggler proxy. No global state, no output, no abort in a
//             release build
//   proxied   if stragglers= enables it, rounds continue without a late rank: all ranks get the same bits, and the late
//             gradient is added to that rank's residual and sent in a later round (SessionOptions::stragglers)
//
//   auto s = Session::open(std::move(transport), {.codec = "dgc:ratio=0.01", .strategy = "gather"});
//   auto t = (*s)->sync(bucket);          // any number of buckets, the same order on all ranks
//   TITHE_TRY((*s)->wait(*t));
//   TITHE_TRY((*s)->commit());            // end of the step
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tithe/schedule.h"
#include "tithe/seam/plan.h"
#include "tithe/seam/transport.h"
#include "tithe/status.h"
#include "tithe/trace.h"

namespace tithe {

enum class DType : std::uint8_t { kF32, kBF16, kF16 };
constexpr std::size_t bytes_of(DType type) { return type == DType::kF32 ? 4 : 2; }

// One named parameter's gradient, in place.
struct Tensor {
  std::string_view key;  // the same on all ranks and in every step
  // n values of dtype, in the memory that Origin names; written before wait() and commit() return.
  void* data = nullptr;
  std::size_t n = 0;
  DType dtype = DType::kF32;
  // Values per row of the matrix: the product of all dimensions but the first; n for a vector; 0: not known. Codecs for
  // matrices (powersgd) need it.
  std::size_t row = 0;
  // A side tensor: an optimizer averages it in the same round, but it is no gradient. SessionStats excludes it from
  // gradient_bytes and from the norms. May differ by rank.
  bool side = false;
  // Of a reduce-scatter or an all-gather: rank r owns the values [bounds[r], bounds[r + 1]); world + 1 entries that do
  // not fall, from 0 to n. Ranges may differ in size and be empty. Empty: equal_bounds (tithe/seam/plan.h). Read by
  // sync(). The same on all ranks.
  std::span<const std::size_t> bounds = {};
};

// The memory that holds a bucket, and the stream to wait for before the bucket is read. One for all its tensors.
struct Origin {
  int device = -1;  // CUDA device number; -1: the host's memory
  // A cudaStream_t: the tensors are valid after the work already queued on this stream.
  std::uint64_t stream = 0;
};

using Ticket = std::uint64_t;

// The types of options in tithe/options.def.
namespace option {
using Text = std::string;
using Flag = bool;
using Count = std::size_t;
using Number = std::uint64_t;
using Integer = int;
using Milliseconds = std::chrono::milliseconds;
using ThreadCount = std::optional<int>;
}  // namespace option

struct SessionOptions {
  using Milliseconds = option::Milliseconds;
#define TITHE_OPTION(kind, name, initial, documentation) option::kind name = initial;
#include "tithe/options.def"
#undef TITHE_OPTION

  // Permanent names of the ranks, by rank, such as names of machines or replicas; unique, 1 to 200 bytes each.
  // The same on all ranks. Empty: "0", "1" and so on. Saved states contain them.
  std::vector<std::string> members = {};
  std::optional<Spec> spec = {};                // instead of `codec`: a codec that no list names
  std::optional<std::vector<Rule>> rules = {};  // instead of `choices`
  // Called ten times a second on the thread of a waiting call; if it returns true, the session is cancelled.
  std::function<bool()> interrupted = {};
  // Called once for each ticket: with ok when its bucket holds its result, or with the Status that ended the session.
  // It runs on a thread of the session or in a call of the session, possibly before sync() returns the ticket or after
  // wait() returns. It must return quickly, must not throw and must not call the session: wake another thread instead.
  std::function<void(std::uint64_t ticket, const Status& how)> ended = {};
};

// Statistics (tithe/stats.def). Sums continue after reform(). Times are nanoseconds; those of lanes are sums
// over lanes, so they may exceed the wall clock.
struct SessionStats {
#define TITHE_STAT(type, name, initial, documentation) type name = initial;
#include "tithe/stats.def"
#undef TITHE_STAT
};

// Facts about one tensor on this rank.
struct TensorStats {
  std::string key;
  std::size_t n = 0;         // values
  std::string codec;         // as a spec string; the codec between hosts if the strategy has two levels
  std::string strategy;      // the name of the strategy, likewise
  bool side = false;         // as Tensor
  double gradient_norm = 0;  // as in SessionStats; 0 until a round with the tensor is measured
  double residual_norm = 0;
  std::uint64_t values_lost = 0;  // as SessionStats
  double sum_lost = 0;
};

// The use of a lost rank's residual, if its state is at hand.
enum class Lost : std::uint8_t {
  kSpread,  // every rank adds a slice of each tensor to its own residual
  kBook     // it is discarded; rank 0 counts it in its stats
};

// This rank's state of the last proposal.
struct Proposal {
  enum class State : std::uint8_t {
    kNone,      // no proposal was made
    kUnderWay,  // the choices are being sent, or some rank is not ready
    kAgreed,    // all ranks are ready and will use the choices from `round` on
    kSwitched,  // all ranks use the choices since `round`
    kRefused  // all ranks keep the old choices: `why` names the rank that cannot use the new ones, and the reason
  };
  State state = State::kNone;
  std::uint64_t round = 0;
  Status why = {};
};
std::string_view name(Proposal::State state);  // "none", "under_way", "agreed", "switched", "refused"

class Session {
 public:
  // Takes ownership of the transport. kInvalid: unknown codec, strategy or parameter; codec and strategy share no law;
  // wrong choices, with the number of the rule. kIo: the trace file cannot be written.
  static Result<std::unique_ptr<Session>> open(std::unique_ptr<Transport> transport,
                                               const SessionOptions& options);
  ~Session();  // cancels operations in flight and joins the lanes
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const;
  int world() const;

  // Starts to synchronise a bucket. Its tensors must not be changed until wait(ticket) returns, and must stay alive
  // until commit(), which may fill them with NaN.
  // The first time that a layout (keys, sizes, types in order) is seen, its plan is compared over all ranks:
  // kMismatch names the rank that differs. kMismatch also names a rank that passes another bucket than its peers, in
  // any round. kInvalid for a key that is part of the open round already: commit() first.
  // kInvalid after the first round, if choices name a key that no bucket of that round had.
  // The results of a bucket on a GPU are there when wait() has returned. kInvalid for a tensor that is not on that GPU;
  // kUnsupported without a driver.
  //
  // kind: the exchange of this bucket (docs/reference/sharded_rounds.md); one round may have buckets of several kinds.
  //   kReduceScatter   after wait() this rank's range of each tensor holds the mean (or the sum) over ranks. The other
  //                    ranges are left as they were handed over
  //   kAllGather       this rank's range is read. After wait() all ranges hold their owners' values as decoded, this
  //                    rank's too, so all ranks hold the same bits. Nothing is divided
  // kUnsupported for a codec that needs the payloads of all ranks, and in sessions with servers, with codec "auto" or
  // with a straggler proxy. kInvalid for bounds that do not fit, and for a tensor that was in a bucket of another kind
  // before.
  Result<Ticket> sync(std::span<const Tensor> bucket, const Origin& origin = {},
                      RoundKind kind = RoundKind::kAllReduce);

  // Blocks until the bucket holds its result. kInvalid for a ticket that was never given or was waited for.
  Status wait(Ticket ticket);

  // Returns at once; true if the bucket holds its result, so that wait(ticket) would not block. Without lanes it does
  // the work that can be done without waiting. kInvalid for an unknown ticket; else the Status that ended the session.
  Result<bool> poll(Ticket ticket);

  // Ends the round: waits for all its tickets and for the other ranks. If all buckets were finite, the new residuals
  // replace the old ones; else the old residuals stay and all buckets of the round are filled with NaN. Apply the
  // results after commit(). No rank commits a round that another rank reports as failed.
  Status commit();

  // Returns the Status that ended the session; else kPeerLost with a rank whose connection is gone, even between
  // rounds; else ok. Sends nothing. From any thread.
  Status present() const;
  // The ranks that this rank has lost, in order: the rank that the failure names, ranks whose connection is gone,
  // and, after a timeout, silent ranks. The list may grow after the session's end (with lanes). It may contain ranks
  // that left to continue with others. From any thread.
  std::vector<Rank> missed() const;

  // From any thread, while another one waits: cancels all operations in flight. wait(), commit() and later calls return
  // kCancelled; peers receive this rank's farewell. The destructor does the same, but must not run during a call of
  // another thread.
  void cancel();

  // Inputs of a schedule: the loss of an evaluation, and the learning rate from now on. All ranks must pass the same
  // values between the same two rounds; in the next round kMismatch names a rank that did not. Each call commits the
  // open round first.
  Status evaluated(double loss);
  Status learning_rate(double rate);
  // The fraction of values that the next round sends; 0 where no schedule is set.
  double ratio() const;

  // The number of the next round, as in messages and states: the rounds committed since the job began.
  std::uint64_t round() const;

  // True if the last committed round was dropped because some rank's gradient was not finite.
  bool last_round_dropped() const;

  // Proposes new choices from round `round` on, for all ranks: JSON text or rules, as at open. Rank 0 only, at any
  // time. It returns once the choices are checked here. They are sent and built while rounds continue, and all ranks
  // switch at the same round or none does. Rounds count as in messages and states; 0: as soon as all ranks are ready.
  // Residuals are sent under the new choices, even if these keep no residual.
  // kInvalid: another rank; a proposal is under way; the round has begun; choices that open() would refuse, that name a
  // key which no round had, or that change the momentum.
  Status propose(std::string_view choices, std::uint64_t round = 0);
  Status propose(std::span<const Rule> rules, std::uint64_t round = 0);
  Proposal proposal() const;
  // The rules of the next round, as JSON without reasons; empty where there are none.
  std::string choices() const;
  // Log lines since the last call: findings and decisions of codec "auto" on rank 0, where lines about a problem begin
  // with "auto: trouble: "; dropped residuals, on the rank that had them; on a GPU, the parts that run there
  // ("device: ...") and the parts that run on the host.
  std::vector<std::string> messages();

  // Residuals, what codecs remember, choices and counters of this rank as bytes (docs/reference/format_state.md,
  // "state"). Commits the open round first. After a failure, or cancel(), it returns the state of the last commit.
  Result<std::vector<std::uint8_t>> state();
  // Continues from a saved state, with the choices of its last commit. kInvalid for another rank, codec, schedule or
  // world size, and if this session was opened with other choices than the saved one (the text names the cure); nothing
  // changes then.
  Status restore(ByteView state);
  // The same if ranks have left or joined since: `states` are of one round of one job, one per rank. Ranks are
  // identified by name (SessionOptions::members).
  //   still a member  keeps its residual, under its new number; `states` must contain its own state
  //   lost            if `states` contains its state, `lost` decides about its residual; else its residual is unknown
  //                   and the rank is counted in SessionStats::ranks_lost and reported by messages()
  //   new             begins with a zero residual, and needs any one of the states
  // Codec memories are the same on all ranks, so any state provides them; if this world cuts tensors at other
  // positions, all ranks begin without memories. Pass the states of lost ranks to all ranks or to none: in the next
  // round kMismatch names a rank that restored other states or another job's. kInvalid: no state, two of one rank, this
  // rank's own is missing, or an error of restore() of one state. kMismatch: the states are not of one round of one
  // job. kUnsupported with servers. Nothing changes then.
  Status restore(std::span<const ByteView> states, Lost lost = Lost::kSpread);
  // The state that is the same on all ranks: state() without this rank's residual. Sufficient for a new rank.
  Result<std::vector<std::uint8_t>> common_state();
  // Continues this session with other ranks, after a failure or between two rounds: from the last commit, with its
  // options, choices and residuals, as restore() with this rank's own state does. An open round is discarded, and the
  // old peers receive this rank's farewell. `transport` connects `members`, in rank order; all members pass the same
  // epoch, greater than the old one (tithe/rejoin.h determines both). In the next round kMismatch names a rank that
  // does not continue from the same round. Sums of stats() continue; norms, tickets and a proposal under way end with
  // the old world; a trace file holds the last epoch.
  // kInvalid: no transport, wrong names or a list without this rank's name, an old epoch, or hosts or servers that do
  // not fit the new world: nothing changes then.
  // Other failures are those of open() and restore(): the session has ended, state() still returns the last commit, and
  // reform() may be called again. During reform() only cancel(), stats(), present() and
  // missed() may be called.
  Status reform(std::unique_ptr<Transport> transport, std::vector<std::string> members, std::uint64_t epoch);
  // The argument checks of reform(), for rank `rank` of a world whose transport is not open yet.
  Status may_reform(Rank rank, int world, const std::vector<std::string>& members, std::uint64_t epoch) const;
  // Reverts the last committed round: residuals, velocities, codec memories, counters and state() are those from before
  // it; the buckets keep their values. All ranks must revert the same round; else the next round fails with kMismatch,
  // which names the rank that differs. kInvalid: no `undo` at open; nothing was committed since open, restore, undo or
  // a change of choices or schedule; a round is open.
  Status undo();

  // Copies the residual of the tensor `key` on this rank, for the ledger; zeros if there is none.
  // kInvalid if the key is unknown or out.size() is not its size.
  Status residual(std::string_view key, std::span<float> out) const;

  SessionStats stats() const;
  // The stats of every tensor of the layouts in use, by key. Thread rules are those of stats().
  std::vector<TensorStats> tensor_stats() const;
  // The plans of all layouts in use: parts, tensors, reasons; after the first round also rules that match no tensor. A
  // layout whose tensors were in other layouts for 16 rounds is freed.
  std::string plan_text() const;
  void trace(bool on);  // while on, the last 65,536 events are kept; stats() counts the lost ones
  std::vector<TraceEvent> take_trace();
  bool tracing() const;  // for take_trace(), or for a file
  // Writes the trace file (SessionOptions::trace) up to now; ok if none is configured. The destructor writes it, and so
  // does a call that fails because the session has ended; a process that is killed leaves none.
  Status write_trace();
  // Adds an event of the caller, such as a backward pass, with times of the steady clock. Does nothing without a trace.
  // May run at the same time as any other call.
  void mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns);

 private:
  class Impl;
  explicit Session(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl() const;
  mutable std::mutex mutex_;  // of the pointer, which reform() changes
  std::shared_ptr<Impl> impl_;
};

}  // namespace tithe
