// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Program is the plan of one bucket as steps with successors: the graphs of all parts and phases in one list. It is
// built once per layout and executed every round.
//
// A strategy's graph contains chunks and frames, but neither sizes nor laws. Here each node becomes one or two steps,
// each frame a slot of memory of fixed size, and each law (laws.h) the steps that it needs. So a round decides
// nothing, looks nothing up and allocates nothing: it counts down `waits`, and runs the steps that reach zero. Work
// that does not depend on sizes is done once for all parts with the same TemplateKey (template.h).
//
// Threads  none: built by the caller of the first sync() of a layout, constant afterwards, read by all lanes.
// Owners   a Unit owns its program; slots are offsets into the Unit's memory. A slot holds one frame per round. It
//          belongs to the step that writes it until the steps that wait for that step have read it. Two slots may share
//          memory: all uses of the first frame end before the second is received.
// Window   parts begin in the plan's order. A part begins when all parts up to PartLayout::begins_after have ended, so
//          it can reuse their memory, and a bucket needs at most the memory of its three largest parts, or
//          min_window(). The window cannot deadlock. Take the first part that has not ended on all ranks. All earlier
//          parts have ended on all ranks, so this part has begun on all ranks and its receives are posted, and no step
//          of it waits for a later part. A receive that reuses the memory of an outgoing frame (template.cc) is posted
//          when that frame has been sent: the incoming frame was made from it, so the other ranks have received it.
// Urgency  a part's priority; then steps that lead to a send come first (ready.h explains why).
// Stages   a part with separate exchanges inside and between hosts has the exchange inside hosts first, then the
//          phases of its codec between hosts.
// Order    the order of the graph, and two additions: sends of a part to one peer are sequential, and a phase uses a
//          chunk after the previous phase has stored it. The first step that uses a chunk loads its values, and the
//          last phase's store writes the result to the caller's memory. So no chunk waits for other chunks of its
//          part, unless clipping needs the norm of the part.
// Failure  none: the parts have passed choose_laws(). Settings that could differ between ranks are compared before
// (Card).
#include <cstdint>
#include <span>
#include <vector>

#include "engine/program/makers.h"
#include "engine/program/tagging.h"
#include "tithe/schedule.h"
#include "tithe/seam/plan.h"

namespace tithe::engine {

enum class StepKind : std::uint8_t {
  // Copies values into the flat buffer and adds momentum: of a chunk, if its first user waits for a message; of a
  // whole part (chunk kWholePart), if the part is clipped.
  kLoad,
  // Encodes this rank's own payload of a chunk, before payloads of other ranks are merged into it (all laws except
  // decode).
  kOwn,
  kEncode,  // makes the frame of a chunk
  kSend,
  kRecv,
  // Validates a received frame against its expected header. If only one step reads the frame, and the frame is small
  // or that step reads it sequentially, that step does the check instead.
  kCheck,
  kMerge,
  kStore,
};

inline constexpr Chunk kWholePart = -1;
// The minimum window in bytes of frames and copied values.
inline constexpr std::size_t kMinWindow = std::size_t{1} << 26;

struct Range {  // a range in Program::indices
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct Step {
  StepKind kind{};
  Stage stage = Stage::kBetween;
  std::uint8_t phase = 0;        // of the stage's codec
  bool loads = false;            // the first step that uses its chunk: it loads the values
  bool direct = false;           // encode: nothing was merged, so it encodes into the outgoing frame
  bool onto = false;             // merge: adds the own values into the first received frame
  Cover cover = Cover::kHeader;  // encode, check, onto: the part of a frame that its tag covers
  int part = 0;
  Chunk chunk = 0;
  Rank peer = -1;
  int slot = -1;             // of the frame that it writes, checks or sends
  int own_slot = -1;         // concat: of the own payload, before it is joined
  int before = 0;            // merge: the number of frames from lower ranks; they come first
  int waits = 0;             // number of its predecessors
  std::uint32_t level = 0;   // index among Program's compute or mail levels
  std::uint32_t place = 0;   // index in the level
  std::uint32_t weight = 0;  // compute steps: values read or written, over all frames
  Range frames;              // slots: merge, store; encode under the concat law: the merged frames
  Range makers;  // encode, check: the ranks whose payloads the frame contains; the first one encoded it
  Range next;    // successors
};

// Memory in the arena for one frame.
struct Slot {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

// Steps of equal urgency, in the order in which ready ones run.
struct Level {
  std::int64_t urgency = 0;  // comparable between programs
  std::vector<int> steps;
};

// This rank's contribution to a chunk: its index among the ranks that may lead the chunk, and the number of payloads
// in the chunk's result. A rank may lead a chunk if it has values and encodes the chunk for ranks of other hosts.
struct Contribution {
  int at = -1;  // -1: not among them
  int of = 1;
  int payloads = 1;
};

struct PartLayout {
  std::vector<Law> laws;                    // by phase of the codec between hosts
  std::vector<Contribution> contributions;  // by chunk
  int chunks = 1;
  int first_chunk = 0;     // index of its chunk 0 among all chunks of the program
  int begins_after = -1;   // all parts up to this one must have ended
  int shape = 0;           // equal for parts with the same steps and dependencies
  std::vector<int> first;  // steps without predecessors
  std::size_t steps = 0;
  bool copied = false;              // codecs may be unable to use the tensors' own memory
  std::size_t staged_at = 0;        // offset of its values in the staging memory, if they are copied
  std::vector<std::size_t> starts;  // of chunk c in the part; chunks + 1 entries
  std::size_t at(Chunk c) const { return starts[static_cast<std::size_t>(c)]; }
  Contribution contribution(Chunk c) const { return contributions[static_cast<std::size_t>(c)]; }
  std::size_t size(Chunk c) const { return at(c + 1) - at(c); }
};

struct Program {
  std::vector<Step> steps;
  std::vector<int> indices;
  std::vector<int> waits;                          // Step::waits, by step
  std::vector<Level> compute_levels, mail_levels;  // the most urgent first; mail: sends and receives
  std::vector<Step> checks;                        // the checks that the frame's reader does; not steps
  std::vector<int> check_of;                       // by slot: index in `checks`, or -1
  std::vector<Slot> slots;
  std::vector<PartLayout> parts;
  int chunks = 0;               // of all parts
  std::size_t arena_bytes = 0;  // 64-byte aligned
  std::size_t staged_values = 0;
  std::size_t scratch_bytes = 0;  // for one step
  std::size_t max_views = 0;      // the most payloads that one step reads
};

// The plan's parts must have passed choose_laws(). Memory suffices for each of `ratios` and for the codecs' own
// ratio. `known`: a cache of makers for the same place; nullptr: none. `copied`, by part: codecs may be unable to use
// the tensors' own memory; empty: false for all.
Program compile(const Plan& plan, const Place& at, std::span<const double> ratios,
                const Tagging& tagging = {}, KnownMakers* known = nullptr,
                const std::vector<bool>& copied = {});

class Templates;
// For a simulator, which does not verify frames: steps have no makers and no `before`. All parts have one strategy,
// whose graph on this rank is `graph`. any_merge: a graph of some rank merges frames. `copied`: for all parts.
Program compile_unverified(const Plan& plan, const Place& at, const Graph& graph, bool any_merge,
                           Templates& templates, bool copied = false);

// The memory for a part's frames while the part is active, in bytes: the same on all ranks (see "Window").
std::size_t bytes_under_way(const Part& part, const StrategyCost& cost, std::span<const double> ratios = {});

}  // namespace tithe::engine
