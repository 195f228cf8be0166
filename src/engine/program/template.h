// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Template is what a part becomes whatever its size: the steps of a strategy's graph under the laws of a codec's
// phases, and which of them wait for which. A program is templates with sizes; parts that differ in size alone have the
// same one.
//
//   one rank   it is drawn from the graph of its own rank
//   linear     building it costs as many operations as the graph has nodes and edges
//   counted    slots, chunks and steps count from the part's first ones
#include <compare>
#include <map>
#include <span>
#include <vector>

#include "engine/program/program.h"

namespace tithe::engine {

// All that a template depends on, at one place.
struct TemplateKey {
  const Strategy* strategy = nullptr;
  std::vector<Law> laws;  // by phase of the codec between hosts
  bool inside = false;    // hosts are treated apart: the exchange inside them comes first
  bool clips = false;     // a step of its own brings in the values of the whole part
  bool much = false;      // to bring values in is more than a glance
  bool plain = false;     // what is sent is what lies there: others' payloads need none of its own to come to
  std::vector<bool> small;  // by exchange: who reads a frame checks it
  auto operator<=>(const TemplateKey&) const = default;
};

struct Template {
  // The use of a slot.
  struct SlotUse {
    std::size_t exchange = 0;
    Chunk chunk = 0;
    bool joined = false;  // the frame may hold the payloads of several ranks
    int received = -1;    // the node of the graph that receives the frame
    int made = -1;        // that makes one there; both, where values are added to what came
    int instead = -1;     // the slot whose frame has left when this one comes: it has that one's memory
  };

  std::vector<Step> steps;                  // of part 0, without level, weight, cover and makers
  std::vector<Step> checks;                 // as in Program
  std::vector<int> check_of;                // by slot
  std::vector<SlotUse> slot_uses;           // by slot
  std::vector<int> indices;                 // slots and steps that a step's ranges name
  std::vector<bool> leads;                  // by step: a send comes of it
  std::vector<int> first;                   // steps that wait for none
  std::vector<Contribution> contributions;  // by chunk
  std::size_t most_views = 0;
};

// A stage of a codec's phase: where hosts are treated apart, that inside them is number 0.
inline std::size_t exchange_of(bool has_inside, Stage stage, std::size_t phase) {
  return stage == Stage::kInside ? 0 : phase + (has_inside ? 1 : 0);
}

Template make_template(const TemplateKey& key, const Place& at, const Graph& graph);

// The templates of one place.
class Templates {
 public:
  const Template& of(const TemplateKey& key, const Place& at, const Graph& graph) {
    const auto found = known_.find(key);
    return found != known_.end() ? found->second
                                 : known_.emplace(key, make_template(key, at, graph)).first->second;
  }
  std::size_t size() const { return known_.size(); }

 private:
  std::map<TemplateKey, Template> known_;
};

}  // namespace tithe::engine
