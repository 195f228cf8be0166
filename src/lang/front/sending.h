// SPDX-License-Identifier: Apache-2.0
#pragma once
// The items of `send`: of each its type on the wire, what encode sends and what decode reads of it.
#include "lang/front/scope.h"

namespace tithe::lang {

inline constexpr double kMostBlock = 1U << 20;  // values

class Sending : protected Scope {
 protected:
  using Scope::Scope;

  void item(const SendItem& s);
  void where(std::size_t k, const ExprPtr& e);
  void check_lengths();
  // Leaves out the items that are not sent in these settings: who reads them reads 0, and does not mind.
  void leave_out(const std::vector<SendItem>& all);
  void pairs(const SendPairs& p);
  Value sum_of(const Item& it, Value fields, Node added);

 private:
  Node reads(const Item& it, Type type);
  void ints(const SendItem& s, Item& it, Value v);
  void stands_well(const SendItem& s, Item& it);
  void stands_in_phase(const SendItem& s);
  bool width(const SendItem& s, Item& it);
  unsigned bits_of(const Value& width);
  void lengths(const SendItem& s, Item& it);
  void fits(const SendItem& s, const Item& it, const Node& node);
  bool is_sent(const SendItem& s);
};

}  // namespace tithe::lang
