// SPDX-License-Identifier: Apache-2.0
#pragma once
// The items of `send`: their types in the payload, the node that encode sends and the node that decode reads.
#include "lang/front/scope.h"

namespace tithe::lang {

inline constexpr double kMaxBlock = 1U << 20;  // in values

class Sending : protected Scope {
 protected:
  using Scope::Scope;

  void add_item(const SendItem& s);
  void add_condition(std::size_t k, const ExprPtr& e);
  void check_lengths();
  // Removes the items that these settings do not send; decode reads 0 instead.
  void omit_item(const std::vector<SendItem>& all);
  void add_pairs(const SendPairs& p);
  Value sum_of(const Item& it, Value fields, Node added);

 private:
  Node input_of(const Item& it, Type type);
  void add_ints(const SendItem& s, Item& it, Value v);
  void check_position(const SendItem& s, Item& it);
  void check_phase(const SendItem& s);
  bool set_width(const SendItem& s, Item& it);
  unsigned bits_of(const Value& width);
  void add_lengths(const SendItem& s, Item& it);
  void check_range(const SendItem& s, const Item& it, const Node& node);
  bool is_sent(const SendItem& s);
};

}  // namespace tithe::lang
