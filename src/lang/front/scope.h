// SPDX-License-Identifier: Apache-2.0
#pragma once
// The meaning of a program's names where they are written, and its expressions as nodes.
#include <vector>

#include "lang/front/ast.h"
#include "lang/front/typed.h"

namespace tithe::lang {

// Where a name is written; what it may see follows from that. kBefore: in `send` of the phase in front of this one.
enum class Part : std::uint8_t { kPlan, kBefore, kEncode, kDecode };

struct Binding {
  Name name;
  Value value;
  Part part = Part::kPlan;
  bool argument = false;
  bool used = false;
  bool known = false;   // sent, but the receiver knows it: check() compares
  bool shapes = false;  // sent, and says how wide other items are
};

class Scope {
 public:
  Scope(const File& file, std::size_t phase, std::vector<double> params, Problems& problems)
      : file_(file), phase_(phase), problems_(problems), build_(problems) {
    build_.program.params = std::move(params);
  }

 protected:
  Checked& program() { return build_.program; }
  void bind(const Name& name, Value value, Part part);
  void let(const Let& l, Part part) { bind(l.name, expr(*l.value, part), part); }
  Value name(const Expr& e, Part part);
  Value expr(const Expr& e, Part part);

  const PhaseText& here() const { return file_.phases[phase_]; }

  const File& file_;
  const std::size_t phase_;
  Problems& problems_;
  Builder build_;
  std::vector<Binding> names_;

 private:
  Value given(std::string_view name, Part part, Span at);
  Value unknown(const Expr& e, Part part);
  Value of_other_phase(const Expr& e);
  Value is(const Expr& e);
  Value call(const Expr& e, Part part);
  Value reduction(const Expr& e, Part part);
  Value unknown_function(const Expr& e);
  Value inlined(std::size_t k, const std::vector<Value>& args, const Expr& e, Part part);
  // A function sees those above it, so none calls itself.
  std::size_t functions_known() const { return in_function_ ? inner_ : file_.functions.size(); }

  std::size_t steps_ = 0;
  bool in_function_ = false;
  std::size_t inner_ = 0;  // functions that the one being copied sees
};

}  // namespace tithe::lang
