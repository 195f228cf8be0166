// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Template is a part of a program without sizes: the steps of a strategy's graph under the laws of a codec's
// phases, and their dependencies. A program consists of templates with sizes; parts that differ only in size share a
// template.
//
//   one rank   a template is drawn from the graph of its own rank
//   linear     building it takes a number of operations linear in the nodes and edges of the graph
//   relative   slots, chunks and steps are numbered from the part's first one
#include <compare>
#include <map>
#include <span>
#include <vector>

#include "engine/program/program.h"

namespace tithe::engine {

// Everything on which a template depends, for one place.
struct TemplateKey {
  const Strategy* strategy = nullptr;
  std::vector<Law> laws;  // by phase of the codec between hosts
  bool inside = false;    // the part has an exchange inside hosts
  bool clips = false;     // a separate step loads the values of the whole part
  bool much = false;      // loading values is expensive
  // The payload is the tensor's own memory, so payloads of other ranks are added into a received frame.
  bool plain = false;
  std::vector<bool> small;  // by exchange: the reader of a frame checks it
  auto operator<=>(const TemplateKey&) const = default;
};

struct Template {
  // The use of a slot.
  struct SlotUse {
    std::size_t exchange = 0;
    Chunk chunk = 0;
    bool joined = false;  // the frame may contain payloads of several ranks
    int received = -1;    // the graph node that receives the frame
    // The graph node that encodes the frame. Both are set if values are added into a received frame.
    int made = -1;
    // The slot of an outgoing frame whose memory this received frame reuses.
    int instead = -1;
  };

  std::vector<Step> steps;                  // of part 0, without level, weight, cover and makers
  std::vector<Step> checks;                 // as in Program
  std::vector<int> check_of;                // by slot
  std::vector<SlotUse> slot_uses;           // by slot
  std::vector<int> indices;                 // slots and steps in the steps' ranges
  std::vector<bool> leads;                  // by step: it leads to a send
  std::vector<int> first;                   // steps without predecessors
  std::vector<Contribution> contributions;  // by chunk
  std::size_t max_views = 0;
};

// The index of an exchange, which is a phase in a stage. The exchange inside hosts has index 0.
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
