// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Session is what a user holds: it averages tensors over all ranks, keeps what was not sent, and can be saved.
//
//   mean      after wait(), every tensor of the bucket holds the mean (or the sum) over ranks, bit-identical on all
//   alone     a tensor's result depends on its values, its key, the ranks and what is chosen for it: not on the bucket
//             that it is in, nor on its place there. One in a group that travels by a codec shares a part with the
//             others of its group in its bucket, and its result depends on theirs too
//   ledger    over all ranks, gradients + residuals before == result + residuals after (docs/inside/flow.md)
//   commit    residuals change only at commit(); a failed or non-finite round leaves them as they were, but for those
//             beyond 2^63, which no later round could send: they are let go, and stats() and said() tell
//   together  a NaN or Inf on one rank makes every tensor of that round NaN on all ranks: those of its bucket by the
//             end of wait(), the others by the end of commit(). In a reduce-scatter wait() shows it to the owner of the
//             value, commit() to all
//   keyed     residuals belong to tensors by key, whatever bucket the tensor is in
//   named     a lost, silent or differing peer is named in the Status on every survivor
//   steady    after the first round of a layout in the host's memory, sync() and wait() allocate nothing, whatever the
//             codec is: a program in the codec language, too. On a GPU they take no memory there after the second
//   threads   one thread at a time calls a session, with exceptions: sync(), wait(), poll(), commit(), stats(),
//             propose() and proposal() of several threads take turns, but for a sync() during a commit(), which is
//             refused; cancel() may run beside anything
//   asked     poll() tells without waiting whether a bucket holds its result, and SessionOptions::ended is called once
//             for each ticket
//   regrouped states go on in a world of other ranks: who is there still keeps what it owes, what the lost owed is
//             spread or booked, and the ledger says so (restore with several states)
//   undone    undo() leaves all as it was before the round that was committed last
//   changed   what is chosen for the tensors changes between two rounds, the same two on all ranks, and nothing that is
//             owed is lost (propose)
//   quiet     no thread it was not given, but for one while a proposal or a plan is prepared or lost ranks are left,
//             and one where somebody stands in for a rank; no global state, nothing printed, nothing aborted in release
//   stood_in  where it is asked for, rounds go on without a rank that is late: all ranks get the same bits, and what it
//             hands over later is left unsent and goes out in a later round (SessionOptions::stragglers)
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
  void* data =
      nullptr;  // n values of dtype, where Origin says; read by sync(), written before wait() and commit() return
  std::size_t n = 0;
  DType dtype = DType::kF32;
  // Values per row of the matrix that it is: of all dimensions but the first; n for a vector. 0: not known. Codecs that
  // look for more in a matrix than its values (powersgd) need it.
  std::size_t row = 0;
  // Not a gradient but a tensor that an optimizer averages in the same round. SessionStats leaves it out of
  // gradient_bytes and of the norms, which would otherwise be those of the optimizer's statistics. May differ by rank.
  bool side = false;
  // Of a reduce-scatter or an all-gather: rank r owns the values [bounds[r], bounds[r + 1]); world + 1 entries that do
  // not fall, from 0 to n. Ranges may differ in size and be empty. Empty: equal_bounds (tithe/seam/plan.h). Read by
  // sync(). The same on all ranks.
  std::span<const std::size_t> bounds = {};
};

// Where a bucket lies, and what has to be over before it is read. All its tensors lie in one place.
struct Origin {
  int device = -1;  // on this GPU, as the CUDA driver counts them; -1: in the host's memory
  std::uint64_t stream =
      0;  // a cudaStream_t: the tensors are what the work will make them that it has been given
};

using Ticket = std::uint64_t;

struct SessionOptions {
  // A spec string (tithe/seam/spec.h); why this one: docs/start/choosing.md. Or "auto", "auto:allow=onebit+fp8":
  // measured and planned while the job runs (docs/guide/plan_auto.md); without choices, schedule and servers then.
  std::string codec = "fp8";
  std::optional<Spec> spec = {};  // instead of `codec`: a codec that no list names
  // A name in strategies.def; or "auto": for each part what is fastest by what all ranks know, which are the codec, the
  // world, who shares a host and `link` (docs/reference/strategies.md). Part of the plan, so it is the same on all
  // ranks.
  std::string strategy = "auto";
  // The choices for each tensor, as JSON (tithe/choices.h, docs/guide/choices.md). Codec, strategy, min_values and
  // part_values are what these leave out.
  std::string choices = {};
  std::optional<std::vector<Rule>> rules = {};  // instead of `choices`
  // The link between two ranks, if it is known, such as "10Gb/s" or "1Gb/s+50us" (with the cost of a frame), and the
  // link inside a host: "25Gb/s+50us, inside 10GB/s+9us" (parse_link). min_values and part_values that have their usual
  // values then follow from it (tithe/choices.h). The same on all ranks.
  std::string link = {};
  // The ranks that share a host: "4x2", "3+1", "0,1,0,1" (tithe/hosts.h). Empty: as the transport finds it. The same on
  // all ranks.
  std::string hosts = {};
  // Names of the ranks, by rank, that outlive a job: of machines or replicas, each once, of 1 to 200 bytes.
  // The same on all ranks. Empty: "0", "1" and so on. States know them.
  std::vector<std::string> members = {};
  // How often the members have changed since the job began; the same on all ranks. Frames of another epoch are refused.
  std::uint64_t epoch = 0;
  // The round that was committed last can be taken back (undo). Residuals from before it then stay until the next
  // round begins: pages of them that the system may have between rounds without it (docs/reference/resources.md,
  // "Memory").
  bool undo = false;
  // So many ranks, the last ones, only serve: they sum for the others by strategy "server". They hand over the same
  // buckets, whose values count for nothing, and get the same result. The mean is over those that work.
  int servers = 0;
  std::string schedule = "none";  // how the codec's ratio changes between rounds (tithe/schedule.h)
  // Compute threads; 0: wait() itself does all the work, on the caller's thread. Not said: as many as this rank's share
  // of the cores, without one that its program has, and 1 to 8 (docs/reference/resources.md, "Lanes"). Results have the
  // same bits.
  std::optional<int> lanes = {};
  bool average = true;                       // divide by the world size
  std::size_t min_values = kUsualMinValues;  // smaller tensors travel raw, where no rule takes them
  std::size_t part_values = kUsualPartValues;
  // Nothing is heard for this long from a peer that owes something: kTimeout names it. Bytes that arrive count, and
  // answers: with lanes, a rank that evaluates or saves for minutes answers. Without lanes it cannot, and this must
  // be longer than the longest time between two of its calls.
  std::chrono::milliseconds timeout{30'000};
  // A peer answers, but does not hand over its buckets for this long: kTimeout names it. At least `timeout`.
  std::chrono::milliseconds patience{1'800'000};
  std::uint64_t seed = 0;        // of all random draws; equal on all ranks
  std::uint64_t run = 0;         // a number that frames of this job carry
  bool force_reference = false;  // slow truth: the last impl of every codec
  // The cover of a frame's tag between processes (docs/reference/security.md): "headers", "payloads", or "auto", which
  // covers payloads where that costs little: of frames up to 16 kB, and of codecs that send at most 4 bits per value.
  std::string authenticate = "auto";
  // The cover of a frame's checksum. "headers" is for network cards that round payloads on their way, as INCEPTIONN's
  // (docs/inside/card.md): damage to a value is not noticed either, ranks end with different bits, and what is rounded
  // off is lost. For codec fp32 alone (kInvalid for another), the same on all ranks. Otherwise "frames": header and
  // payload.
  std::string checksum = "frames";
  // How many bytes of frames may be under way to one peer: "off", or "window=BYTES"; with ",rotation=on" one peer is
  // fed at a time, or so many as a number says (docs/guide/pacing.md). Results are the same bits either way.
  std::string pacer = "off";
  // Where codecs run for buckets that lie on a GPU (docs/inside/device.md): "off", on the host; "on", there, where they
  // can, with the same bytes, so that each rank may choose. "on,least=65536": in chunks of N values and more. Run on an
  // NVIDIA H200.
  std::string device = "off";
  // A file for the trace of all that the session does (docs/guide/trace.md): ".rank0" and so on is put before its
  // ending, or stands for {rank} in it. Empty: what TITHE_TRACE names, and none where it names none.
  std::string trace = {};
  // Norms of gradients and residuals (SessionStats, tensor_stats) are taken in rounds 1, 2, 4, 8 and so on, and from
  // there on in every round of so many; 0: in none. Such a round reads each gradient and each residual once more.
  std::uint64_t measure = 100;
  // Ranks whose programs hand over late (docs/guide/stragglers.md). "share=0.25": one that takes so much
  // longer than the median of all is named, in SessionStats and in said(). With ",without=4,ranks=1,level=100" rounds
  // go on without it as well: at most 4 in a row, without at most one rank at a time, and not around every 100th round,
  // after which states may be taken. Its gradient is left unsent then, and goes out later. "off": nobody is named.
  // kUnsupported for what cannot do without a rank's own gradient: momentum, clip, feedback=none of a lossy codec,
  // votes, auto, a schedule, servers, undo. Buckets are in the host's memory then, and the same in each round.
  std::string stragglers = "share=0.25";
  // Asked ten times a second on the thread of a call that waits; true withdraws, as cancel() does.
  std::function<bool()> interrupted = {};
  // Called once for each ticket: with ok when its bucket holds its result, or with the Status that has ended the
  // session. On a thread of the session, or one that is in a call of it; sync() may not have returned the ticket yet,
  // and wait() may have returned. Be quick, throw nothing, call nothing of the session: wake somebody who does.
  std::function<void(std::uint64_t ticket, const Status& how)> ended = {};
};

// Sums since open(); times in nanoseconds of lane time, so they may add up to more than the wall clock.
struct SessionStats {
  std::uint64_t rounds = 0;          // committed
  std::uint64_t rounds_dropped = 0;  // non-finite by agreement
  // Residuals of tensors that are let go, because they were beyond 2^63 (docs/guide/footguns.md, "One spike"): values
  // that were not zero, and their sum.
  std::uint64_t values_let_go = 0;
  double sum_let_go = 0;
  double sum_forgotten = 0;  // by feedback=decay: of all that it took from residuals in committed rounds
  std::uint64_t rounds_undone = 0;
  std::uint64_t epoch = 0;  // of its members, as it was opened or reformed last
  // Ranks that were lost with what they had left unsent, which nobody knows; the same on all ranks.
  std::uint64_t ranks_lost = 0;
  // Residuals of lost ranks that are given up, where they are known: values that were not zero, and their sum.
  // Booked on one rank, so that sums over ranks are right.
  std::uint64_t values_lost = 0;
  double sum_lost = 0;
  // The rank whose program was late in the last 32 rounds (SessionOptions::stragglers), or -1; how much longer than the
  // median it took, as a share; and for how long the others waited for it, per round. The same on all ranks.
  int late_rank = -1;
  double late_share = 0;
  std::uint64_t late_ns = 0;
  std::uint64_t rounds_missed = 0;  // that went on without this rank's program
  std::uint64_t rounds_behind = 0;  // of them, those whose results wait for it
  int lanes = 0;                    // compute threads, as said or as chosen (plan_text() says why)
  std::uint64_t values = 0;         // values synchronised by this rank, those of side tensors included
  std::uint64_t frames_sent = 0;
  std::uint64_t bytes_sent = 0;  // frames, headers included
  std::uint64_t encode_ns = 0;
  std::uint64_t merge_ns = 0;        // merge and store: decode, add, divide
  std::uint64_t send_ns = 0;         // from posting a frame to its completion
  std::uint64_t wait_ns = 0;         // callers blocked in wait()
  std::uint64_t strange = 0;         // control messages that were not heard: they did not carry the job's tag
  std::uint64_t events_lost = 0;     // of the trace: pushed out by newer ones before take_trace()
  std::uint64_t gradient_bytes = 0;  // of the gradients handed over, in their own type; no side tensors
  std::uint64_t exchange_ns = 0;     // of committed rounds: from the first sync() to the end of commit()
  std::uint64_t exposed_ns = 0;      // of it, after the last sync(): who commits then waits so long
  // This rank in the last round that was measured (SessionOptions::measure), over its gradients, without side tensors:
  std::uint64_t measured_round = 0;  // its number, from 1; 0: none was measured yet
  double gradient_norm = 0;          // L2, of the gradients as they were handed over
  double residual_norm = 0;          // L2, of the residuals after it
};

// Facts about one tensor on this rank.
struct TensorStats {
  std::string key;
  std::size_t n = 0;         // values
  std::string codec;         // as a spec string; between hosts, where those are treated apart
  std::string strategy;      // the name of the strategy, likewise
  bool side = false;         // as Tensor
  double gradient_norm = 0;  // as above; zeros where no round was measured since it is there
  double residual_norm = 0;
  std::uint64_t values_lost = 0;  // as SessionStats
  double sum_lost = 0;
};

// The fate of the values that a lost rank had left unsent, where its state is at hand.
enum class Lost : std::uint8_t {
  kSpread,  // every rank takes over a slice of each tensor
  kBook     // it is given up; rank 0 books it
};

// The fate of the choices that were proposed last, as this rank knows it.
struct Proposal {
  enum class State : std::uint8_t {
    kNone,      // there were none
    kUnderWay,  // they travel, or some rank is not ready
    kAgreed,    // all ranks are ready, and all take them at `round`
    kSwitched,  // all ranks have taken them: `round` was the first
    kRefused    // all ranks keep those that they had: `why` says which rank could not serve them, and why not
  };
  State state = State::kNone;
  std::uint64_t round = 0;
  Status why = {};
};
std::string_view name(Proposal::State state);  // "none", "under_way", "agreed", "switched", "refused"

class Session {
 public:
  // Takes the transport. kInvalid: unknown codec, strategy or parameter; codec and strategy share no law; choices that
  // are wrong, with the number of the rule. kIo: a trace that cannot be written where it is asked for.
  static Result<std::unique_ptr<Session>> open(std::unique_ptr<Transport> transport,
                                               const SessionOptions& options);
  ~Session();  // cancels what is in flight, joins its lanes
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const;
  int world() const;

  // Starts to synchronise a bucket; its tensors must stay untouched until wait(ticket) returns, and alive until
  // commit(): only the round says whether all of it was finite.
  // The first time that a layout (keys, sizes, types in order) is seen, its plan is compared over all ranks:
  // kMismatch names the rank that differs. So it does for a rank that hands over another bucket than its peers, in any
  // round. kInvalid for a key that is part of the open round already: commit() first.
  // kInvalid after the first round, if choices name a key that no bucket of it had.
  // A bucket on a GPU has its results there when wait() has returned. kInvalid for a tensor that does not lie on that
  // GPU; kUnsupported where there is no driver.
  //
  // kind: the exchange of this bucket (docs/reference/sharded_rounds.md); one round may have buckets of several kinds.
  //   kReduceScatter   after wait() this rank's range of each tensor holds the mean (or the sum) over ranks. The other
  //                    ranges are left as they were handed over
  //   kAllGather       this rank's range is read. After wait() all ranges hold their owners' values as decoded, this
  //                    rank's too, so all ranks hold the same bits. Nothing is divided
  // kUnsupported for a codec that all ranks have to take part in, and in sessions with servers, with codec "auto" or
  // with a stand-in for late ranks. kInvalid for bounds that do not fit, and for a tensor that came in a bucket of
  // another kind before.
  Result<Ticket> sync(std::span<const Tensor> bucket, const Origin& origin = {},
                      RoundKind kind = RoundKind::kAllReduce);

  // Blocks until the bucket holds its result. kInvalid for a ticket that was never given or was waited for.
  Status wait(Ticket ticket);

  // True where the bucket holds its result, so that wait(ticket) would not block; at once. Without lanes it does the
  // work that can be done without waiting. kInvalid for a ticket that was never given; else what ended the session.
  Result<bool> poll(Ticket ticket);

  // Ends the round: waits for all its tickets, and until all ranks have ended theirs. Then residuals move on; or stay,
  // if any bucket was not finite, and then all buckets of the round are filled with NaN. Apply the results after it. No
  // rank commits a round that another one reports as failed.
  Status commit();

  // Tells what ended the session; else kPeerLost with a rank that has gone without a word, even between rounds, when
  // nobody waits for it. Ok: all ranks may come again. Sends nothing. From any thread.
  Status present() const;
  // The ranks that this one has reason to believe lost: whom the failure names, who has gone, and whom it did not hear
  // where the session ended by silence. In order. After the session's end, too, more of them as they go (with lanes).
  // Ranks that left to go on with others may be among them. From any thread.
  std::vector<Rank> missed() const;

  // From any thread, while another one waits: cancels what is in flight. wait(), commit() and whatever is called later
  // return kCancelled; peers see this rank leave. The destructor does it too, but must not meet a call of another
  // thread.
  void cancel();

  // A schedule follows these: the loss of an evaluation, the learning rate from now on. The same on all ranks, between
  // the same two rounds: a rank that was told something else is named (kMismatch) in the next round. Each commits the
  // open round first.
  Status evaluated(double loss);
  Status learning_rate(double rate);
  // The fraction of values that the next round sends; 0 where no schedule is set.
  double ratio() const;

  // The number of the next round, as in messages and states: rounds that were committed since the job began.
  std::uint64_t round() const;

  // True if the last committed round was dropped because some rank's gradient was not finite.
  bool last_round_dropped() const;

  // Other choices from round `round` on, on all ranks: JSON text or rules, as at open. On rank 0 alone, at any time.
  // It returns once they are checked here; they travel and are built beside the rounds, and all ranks take them at the
  // same round or none does (engine/peers/reconfiguration.h). Rounds count as in messages and states; 0: as soon as all are
  // ready. Owed values are sent under the new ones, also where those would leave nothing unsent.
  // kInvalid: another rank; a proposal is under way; the round has begun; choices that open() would not take, that
  // name a key which was not seen in any round, or that change the momentum.
  Status propose(std::string_view choices, std::uint64_t round = 0);
  Status propose(std::span<const Rule> rules, std::uint64_t round = 0);
  Proposal proposal() const;
  // The rules of the next round, as JSON without reasons; empty where there are none.
  std::string choices() const;
  // The events of the job since the last call, a line each: what codec "auto" has found and decided, on rank 0,
  // where lines that tell of trouble begin with "auto: trouble: "; residuals that were let go, on the rank that had
  // them; on a GPU, what is taken there ("device: ...") and what is left to the host.
  std::vector<std::string> said();

  // Residuals, what codecs remember, choices and counters of this rank as bytes (docs/reference/format_state.md,
  // "state"). Commits the open round first. After a failure, or cancel(), it gives those of the last commit.
  Result<std::vector<std::uint8_t>> state();
  // Goes on from there, with the choices that the last commit had. kInvalid for another rank, codec, schedule or world
  // size, and where the session was opened with other choices than that one (the text says what to do); nothing changes
  // then.
  Status restore(ByteView state);
  // The same where ranks have gone or have come since: `states` are of one round of one job, each of another rank, and
  // what becomes of each rank of that job goes by its name (SessionOptions::members).
  //   is here still   it keeps what it had left unsent, whatever its number is now; its own state is among them
  //   is lost         what it had left unsent goes by `lost` where its state is among them; else nobody knows it, and
  //                   the rank is booked (SessionStats::ranks_lost, said())
  //   is new          it begins with nothing unsent, and needs any one of the states
  // Any state has what codecs remember: it is the same on all ranks; where this world cuts tensors in other places
  // all begin without. States of lost ranks are given to all ranks or to none: in the next round kMismatch names a rank
  // that went on from others, or from a state of another job. kInvalid: no state, two of one rank, this rank's own is
  // missing, or what restore() of one refuses. kMismatch: they are not of one round of one job. kUnsupported with
  // servers. Nothing changes then.
  Status restore(std::span<const ByteView> states, Lost lost = Lost::kSpread);
  // The state that all ranks have alike: state() without what this rank has left unsent. Enough for a rank that is new.
  Result<std::vector<std::uint8_t>> common_state();
  // The same object goes on with other ranks, after a failure or between two rounds: from the last commit, with its
  // options, choices and residuals, by the rule of restore() with this rank's own state. A round that is open is given
  // up, and others hear that this rank leaves. `transport` connects `members`, by rank, who all name the same epoch,
  // which is later than that of before (tithe/rejoin.h finds both). In the next round kMismatch names a rank that does
  // not go on from the same round. Sums of stats() go on; norms, tickets and a proposal under way are of the old world
  // and end with it; a trace file holds the last epoch.
  // kInvalid: no transport, names that are wrong or miss this rank's own, an epoch that is over, hosts or servers that
  // do not fit the new world: nothing changes then.
  // Other failures are those of open() and restore(): the session is over, state() still gives the last commit, and
  // reform() may be called again. Beside it nothing may be called but cancel(), stats(), present() and
  // missed().
  Status reform(std::unique_ptr<Transport> transport, std::vector<std::string> members, std::uint64_t epoch);
  // The checks of reform() on its arguments, for rank `rank` of a world whose transport is not open yet.
  Status may_reform(Rank rank, int world, const std::vector<std::string>& members, std::uint64_t epoch) const;
  // Takes back the round that was committed last: residuals, velocities, what codecs remember, counters and state() are
  // as before it, on all ranks that do it; what its buckets hold stays. All ranks do it for the same round, or the next
  // round fails with kMismatch, which names the rank that differs. kInvalid: no `undo` at open; nothing was committed
  // since open, restore, undo or a change of choices or schedule; a round is open.
  Status undo();

  // Sum over this rank's keys of what was left unsent, for the ledger: out[i] of the tensor `key`.
  // kInvalid if the key or its size is unknown. Zeros where nothing was left.
  Status residual(std::string_view key, std::span<float> out) const;

  SessionStats stats() const;
  // The stats of every tensor of the layouts in use, by key. May run beside what stats() may.
  std::vector<TensorStats> tensor_stats() const;
  // The plans of all layouts in use: parts, tensors, why. A layout whose tensors have come in others for 16 rounds is
  // forgotten, with all its memory. After the first round also rules that took no tensor.
  std::string plan_text() const;
  void trace(bool on);  // keeps the last 65,536 events while on; stats() says how many more there were
  std::vector<TraceEvent> take_trace();
  bool tracing() const;  // for take_trace(), or for a file
  // The file of the trace (SessionOptions::trace), whole, as far as it goes: ok where none is asked for. The destructor
  // does it, and so does what fails because the session is over; a process that is killed leaves none.
  Status write_trace();
  // An event of the caller's own, such as a backward pass: times of the steady clock. Nothing where nothing is traced.
  // May run beside all other calls.
  void mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns);

 private:
  class Impl;
  explicit Session(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl() const;
  mutable std::mutex mutex_;  // of the pointer, which reform() changes
  std::shared_ptr<Impl> impl_;
};

}  // namespace tithe
