// SPDX-License-Identifier: Apache-2.0
#pragma once
// Resolves names and translates expressions to nodes.
#include <vector>

#include "lang/front/ast.h"
#include "lang/front/typed.h"

namespace tithe::lang {

// The section in which a name is bound, which decides its visibility. kBefore: bound by `send` of the previous phase.
enum class Part : std::uint8_t { kPlan, kBefore, kEncode, kDecode };

struct Binding {
  Name name;
  Value value;
  Part part = Part::kPlan;
  bool argument = false;
  bool used = false;
  bool known = false;   // sent, although the receiver can compute it: check() compares
  bool shapes = false;  // sent, and determines the width of other items
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
  // A function can call only functions defined above it, so recursion is impossible.
  std::size_t visible_functions() const { return in_function_ ? inner_ : file_.functions.size(); }

  std::size_t steps_ = 0;
  bool in_function_ = false;
  std::size_t inner_ = 0;  // number of functions visible in the function being inlined
};

}  // namespace tithe::lang
