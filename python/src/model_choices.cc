// SPDX-License-Identifier: Apache-2.0
// The choices that options make for a model's tensors, without a session: include/tithe/choices.h.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "core.h"
#include "engine/peers/session_config.h"
#include "tithe/choices.h"
#include "tithe/session.h"

namespace tithe::python {
namespace {

using Keys = std::vector<std::string>;
using Sizes = std::vector<std::size_t>;

void check_sizes(const Keys& keys, const Sizes& sizes) {
  if (keys.size() != sizes.size()) raise({Code::kInvalid, "give one size per key"});
}

std::vector<std::string> unmet_rules(const SessionOptions& options, const Keys& keys, const Sizes& sizes) {
  const Choices choices = unwrap(engine::choices_of(options, 1));
  check_sizes(keys, sizes);
  std::vector<Tensor> tensors;
  for (std::size_t k = 0; k < keys.size(); ++k) tensors.push_back({.key = keys[k], .n = sizes[k]});
  engine::RulesUsed used(choices);
  used.add(choices, tensors);
  check(used.check(choices));
  return used.unused(choices);
}

// The number of small tensors, which are sent uncompressed, and the payload bytes of the others.
nb::dict sends_uncompressed(const SessionOptions& options, const Keys& keys, const Sizes& sizes) {
  const Choices choices = unwrap(engine::choices_of(options, 1));
  check_sizes(keys, sizes);
  const Choice& small = choices.all()[choices.rules().size()];
  std::size_t tensors = 0, values = 0, others = 0;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const Choice& c = choices.choice(keys[k], sizes[k]);
    if (&c == &small) {
      ++tensors;
      values += sizes[k];
    } else {
      for (const Phase& phase : c.spec.codec->phases) others += phase.bound(c.spec.settings, sizes[k]);
    }
  }
  nb::dict d;
  d["min_values"] = choices.min_values();
  d["uncompressed_tensors"] = tensors;
  d["uncompressed_values"] = values;
  d["other_bytes"] = others;
  return d;
}

// The indices of the tensors that share parts with others of their bucket.
std::vector<std::size_t> in_groups(const SessionOptions& options, const Keys& keys, const Sizes& sizes) {
  const Choices choices = unwrap(engine::choices_of(options, 1));
  check_sizes(keys, sizes);
  std::vector<std::size_t> out;
  for (std::size_t k = 0; k < keys.size(); ++k)
    if (!choices.choice(keys[k], sizes[k]).group.empty()) out.push_back(k);
  return out;
}

}  // namespace

void bind_choices(nb::module_& m) {
  m.def(
      "check_choices", [](const SessionOptions& options) { (void)unwrap(engine::choices_of(options, 1)); },
      nb::arg("options"), "Raises ValueError for options whose codec, strategy or choices are invalid.");
  m.def("unmet_rules", &unmet_rules, nb::arg("options"), nb::arg("keys"), nb::arg("sizes"),
        "The rules of choices that match no tensor of a model. Raises ValueError if a rule names a missing "
        "tensor.");
  m.def("sends_uncompressed", &sends_uncompressed, nb::arg("options"), nb::arg("keys"), nb::arg("sizes"),
        "The numbers of small tensors and of their values that are sent uncompressed, and about how many "
        "bytes the other tensors take in a message.");
  m.def("in_groups", &in_groups, nb::arg("options"), nb::arg("keys"), nb::arg("sizes"),
        "The indices of the tensors that are sent in groups.");
}

}  // namespace tithe::python
